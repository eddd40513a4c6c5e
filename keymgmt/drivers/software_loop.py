"""The loop that data plane, relay and traffic generator share: frame ports, one control socket, timers.

Control is one JSON datagram a command, one an answer: {"ok": {...}} or {"error": {"code", "detail"}}.
"""

from __future__ import annotations

import json
import selectors
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from keymgmt.drivers.software_ports import MAX_FRAME, MAX_MESSAGE, accepted, boottime_ns, control_socket

BATCH: Final = 128  # frames taken from one port before the others get a turn
MOST_PEERS: Final = 8  # control connections at a time; one is needed
LONGEST_WAIT_NS: Final = 1_000_000_000
Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Timer(Protocol):
    """What is to be done by the clock, CLOCK_BOOTTIME in nanoseconds."""

    def next_due_ns(self, now_ns: int) -> int:
        """Return when `tick` has something to do next; asked anew at every turn."""
        ...

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        ...


class Every:
    """A timer with one period; turns that were missed are not made up for."""

    def __init__(self, period_ns: int, work: Callable[[int], None]) -> None:
        self._period_ns, self._work, self._due_ns = period_ns, work, boottime_ns()

    def next_due_ns(self, _now_ns: int) -> int:
        """Return the next turn."""
        return self._due_ns

    def tick(self, now_ns: int) -> None:
        """Work when a turn is due."""
        if now_ns >= self._due_ns:
            self._due_ns = max(self._due_ns + self._period_ns, now_ns)
            self._work(now_ns)


class Loop:
    """Serves until `stop`."""

    def __init__(self, control: str, answer: Callable[[bytes], bytes], timer: Timer) -> None:
        self._path, self._answer, self._timer = control, answer, timer
        self._selector = selectors.DefaultSelector()
        self._stopped, self._peers = False, 0
        listener = control_socket(control)
        self._register(listener, lambda: self._accept(listener))

    def port(self, sock: socket.socket, take: Callable[[bytes, int], None]) -> None:
        """Hand each frame that arrives on a port to `take`, with the time at which it was taken."""
        self._register(sock, lambda: self._frames(sock, take))

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._stopped:
            now = boottime_ns()
            wait_ns = max(0, self._timer.next_due_ns(now) - now)
            ready = self._selector.select(min(wait_ns, LONGEST_WAIT_NS) / 1e9)
            self._timer.tick(boottime_ns())  # first: what is due comes before any frame or command
            for key, _ in ready:
                key.data()
        self.close()

    def run_until_signal(self) -> None:
        """Serve until SIGTERM; for the main thread of a process."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.run()

    def stop(self, *_: object) -> None:
        """Leave the loop at its next turn."""
        self._stopped = True

    def close(self) -> None:
        """Let go of all sockets."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        Path(self._path).unlink(missing_ok=True)

    def _register(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, ready)

    def _frames(self, sock: socket.socket, take: Callable[[bytes, int], None]) -> None:
        for _ in range(BATCH):
            try:
                frame = sock.recv(MAX_FRAME)
            except BlockingIOError:
                return
            except OSError:  # a neighbour that is away, told late
                continue
            take(frame, boottime_ns())  # each by its own time: the process may stand still in between

    def _accept(self, listener: socket.socket) -> None:
        peer = accepted(listener)
        if peer is None:
            return
        if self._peers >= MOST_PEERS:
            peer.close()
            return
        self._peers += 1
        self._register(peer, lambda: self._command(peer))

    def _command(self, peer: socket.socket) -> None:
        try:
            message = peer.recv(MAX_MESSAGE)
            if message:
                peer.send(self._answer(message))
                return
        except OSError:
            pass
        self._selector.unregister(peer)
        self._peers -= 1
        peer.close()


def answering(handle: Handler) -> Callable[[bytes], bytes]:
    """Return how a process that holds no secret answers: a command that does not fit is an error, no end."""

    def answer(message: bytes) -> bytes:
        try:
            reply: Mapping[str, Any] = {"ok": dict(handle(json.loads(message)))}
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as bad:
            reply = {"error": {"code": "EINVAL", "detail": type(bad).__name__}}
        return json.dumps(reply, separators=(",", ":")).encode()

    return answer


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
