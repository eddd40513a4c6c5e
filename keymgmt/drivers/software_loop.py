"""The loop that relay and traffic generator share: frame ports, one JSON control socket, timers."""

from __future__ import annotations

import json
import selectors
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from keymgmt.drivers.software_ports import MAX_FRAME, accepted, boottime_ns, control_socket

BATCH: Final = 256  # frames taken from one port before the others get a turn
Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Loop:
    """Serves until `stop`; `tick` is called at least every `period_ns`."""

    def __init__(self, control: str, answer: Handler, tick: Callable[[int], None], period_ns: int) -> None:
        self._path, self._answer, self._tick, self._period_ns = control, answer, tick, period_ns
        self._selector = selectors.DefaultSelector()
        self._stopped = False
        listener = control_socket(control)
        self._register(listener, lambda: self._accept(listener))

    def port(self, sock: socket.socket, take: Callable[[bytes], None]) -> None:
        """Hand each frame that arrives on a port to `take`."""
        self._register(sock, lambda: self._frames(sock, take))

    def run(self) -> None:
        """Serve until `stop`."""
        due = boottime_ns()
        while not self._stopped:
            now = boottime_ns()
            if now >= due:
                self._tick(now)
                due = max(due + self._period_ns, now)
            for key, _ in self._selector.select(max(0, due - boottime_ns()) / 1e9):
                key.data()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        Path(self._path).unlink(missing_ok=True)

    def stop_on_signal(self) -> None:
        """Let SIGTERM end the loop; for the main thread of a process."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def stop(self, *_: object) -> None:
        """Leave the loop at its next turn."""
        self._stopped = True

    def _register(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, ready)

    def _frames(self, sock: socket.socket, take: Callable[[bytes], None]) -> None:
        for _ in range(BATCH):
            try:
                frame = sock.recv(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError:  # a neighbour that is away, told late
                continue
            take(frame)

    def _accept(self, listener: socket.socket) -> None:
        peer = accepted(listener)
        if peer is not None:
            self._register(peer, lambda: self._command(peer))

    def _command(self, peer: socket.socket) -> None:
        try:
            message = peer.recv(MAX_FRAME)
            if message:
                peer.send(json.dumps(self._reply(message)).encode())
                return
        except OSError:
            pass
        self._selector.unregister(peer)
        peer.close()

    def _reply(self, message: bytes) -> Mapping[str, Any]:
        try:
            return {"ok": dict(self._answer(json.loads(message)))}
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as bad:
            return {"error": {"code": "EINVAL", "detail": type(bad).__name__}}


def ask(control: str, command: str, timeout_s: float = 5.0, **fields: Any) -> dict[str, Any]:
    """Send one command to a relay or generator and return its answer.

    Raises:
        OSError: nobody answers there.
        ValueError: it refused the command.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(timeout_s)
        sock.connect(control)
        sock.send(json.dumps({"cmd": command, **fields}).encode())
        reply: dict[str, Any] = json.loads(sock.recv(1 << 20))
    if "error" in reply:
        raise ValueError(f"{command}: {reply['error']['detail']}")
    answer: dict[str, Any] = reply["ok"]
    return answer
