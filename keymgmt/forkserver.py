"""Fork server: one single-threaded process that imported the agents' set and forks from it on request.

Agents and data planes get a session of their own and outlive it; relay and traffic generator end with it,
and it ends with whoever holds the other end of its standard input. Forking from one frozen heap keeps each
child's private memory near 10 MB instead of 30. Production execs the same modules instead (`python -m`).

Protocol: unix SEQPACKET, one JSON datagram a request, one an answer: {"cmd": "spawn", "role", "name",
"config", "record", "log"} -> {"ok": <record>} | {"error"}; {"cmd": "exits"} -> {"ok": {name: status}}.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, Self

from keymgmt.checks import Check, is_map, is_str, take
from keymgmt.drivers.software_ports import accepted, control_socket
from keymgmt.errors import CouldNotTell, SaidNo
from keymgmt.processes import Spawned, hold, where

Role = Literal["agent", "dataplane", "relay", "traffic"]
OWN_SESSION: Final = frozenset({"agent", "dataplane"})
MAX_MESSAGE: Final = 131_072
START_S: Final = 20.0  # to the first answer of a new fork server
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15


class ForkServer:
    """Client of a fork server that this process started. Not thread-safe."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process, self._sock = process, sock

    @classmethod
    def start(cls, control: Path, log: Path) -> Self:
        """Start one and wait for it.

        Args:
            control: path of its socket, below 100 characters.
            log: file for its own output.

        Raises:
            CouldNotTell: it did not answer in time.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "keymgmt.forkserver", "--control", str(control)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C is for whoever started us
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                sock.connect(str(control))
            except OSError:
                sock.close()
                time.sleep(0.02)
                continue
            sock.settimeout(START_S)
            return cls(process, sock)
        process.kill()
        process.wait()
        raise CouldNotTell("the fork server did not start", fix=f"see {log}")

    @property
    def pid(self) -> int:
        """Process id of the fork server."""
        return self._process.pid

    def spawn(self, role: Role, name: str, config: Mapping[str, Any], *, record: Path, log: Path) -> Spawned:
        """Fork one process and return its record once it runs.

        Args:
            role: what it is.
            name: unique per role.
            config: the object that the module's `run` takes; holds no secret.
            record: its record file; locked as long as it lives (`keymgmt.processes`).
            log: file for its output.

        Raises:
            SaidNo: a process of this record still lives, or the configuration is not usable.
            CouldNotTell: the fork server is gone.
        """
        request = {"cmd": "spawn", "role": role, "name": name, "config": dict(config)}
        return Spawned(**self._ask(request | {"record": str(record), "log": str(log)}))

    def exits(self) -> dict[str, int]:
        """Return exit statuses since the last call: "role/name" -> status, negative for a signal."""
        return dict(self._ask({"cmd": "exits"}))

    def stop(self) -> None:
        """End the fork server, and with it relay and traffic generator."""
        self._sock.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._sock.send(json.dumps(request).encode())
            octets = self._sock.recv(MAX_MESSAGE)
            reply = json.loads(octets)
        except (OSError, ValueError):
            raise CouldNotTell("the fork server does not answer", fix="restart the control plane") from None
        if "error" in reply:
            raise SaidNo(reply["error"])
        answer: dict[str, Any] = reply["ok"]
        return answer


_SPAWN: Final[Mapping[str, Check]] = {
    "cmd": lambda v: v == "spawn",
    "role": is_str,
    "name": is_str,
    "config": is_map,
    "record": is_str,
    "log": is_str,
}


class _Server:
    def __init__(self, control: str) -> None:
        self._listener = control_socket(control)
        self._control = control
        self._peers: list[socket.socket] = []
        self._names: dict[int, str] = {}
        self._exits: dict[str, int] = {}

    def serve(self) -> None:
        """Serve until standard input ends."""
        while True:
            watched: list[int | socket.socket] = [0, self._listener, *self._peers]
            ready, _, _ = select.select(watched, [], [], 0.5)
            self._reap()
            if 0 in ready and not os.read(0, 1):
                break
            for sock in ready:
                if sock is self._listener:
                    self._accept()
                elif isinstance(sock, socket.socket):
                    self._serve(sock)
        Path(self._control).unlink(missing_ok=True)

    def _accept(self) -> None:
        peer = accepted(self._listener)
        if peer is not None:
            self._peers.append(peer)

    def _serve(self, peer: socket.socket) -> None:
        try:
            message = peer.recv(MAX_MESSAGE)
            if message:
                peer.send(json.dumps(self._answer(message)).encode())
                return
        except OSError:  # gone, or it never reads: no client ends this process
            pass
        self._peers.remove(peer)
        peer.close()

    def _answer(self, message: bytes) -> dict[str, Any]:
        try:
            doc = json.loads(message)
            if isinstance(doc, dict) and doc.get("cmd") == "exits":
                return {"ok": self._take_exits()}
            return {"ok": self._spawn(take(doc, _SPAWN, "request"))}
        except SaidNo as no:
            return {"error": str(no)}
        except (ValueError, RecursionError, OSError) as bad:
            return {"error": f"malformed request: {type(bad).__name__}"}

    def _take_exits(self) -> dict[str, Any]:
        exits, self._exits = self._exits, {}
        return exits

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._exits[self._names.pop(pid, str(pid))] = os.waitstatus_to_exitcode(status)

    def _spawn(self, doc: Mapping[str, Any]) -> dict[str, Any]:
        run = _entry(doc["role"])
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._close_all()
            _child(doc, run, writing)  # never returns
        os.close(writing)
        self._names[pid] = f"{doc['role']}/{doc['name']}"
        with os.fdopen(reading, "rb") as pipe:
            reply = json.loads(pipe.read() or b'{"error": "it ended at once: see its log"}')
        if "error" in reply:
            raise SaidNo(reply["error"])
        record: dict[str, Any] = reply["ok"]
        return record

    def _close_all(self) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.close()


def _child(doc: Mapping[str, Any], run: Callable[[Mapping[str, Any]], None], pipe: int) -> None:
    status = 1
    try:
        _settle(doc["role"], doc["name"], doc["log"])
        me = Spawned.of_self(doc["role"], doc["name"])
        try:
            _kept = hold(Path(doc["record"]), me)
        except SaidNo as no:
            os.write(pipe, json.dumps({"error": str(no)}).encode())
            return
        os.write(pipe, json.dumps({"ok": asdict(me)}).encode())
        os.close(pipe)
        run(doc["config"])
        status = 0
    except BaseException as error:  # the last stop of a forked child
        print(f"{doc['role']} {doc['name']} ended: {where(error)}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _settle(role: str, name: str, log: str) -> None:
    """Make a fresh fork a process of its own: session or parent's death, streams, name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if role in OWN_SESSION:
        os.setsid()
    else:
        parent = os.getppid()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
    libc.prctl(_PR_SET_NAME, f"sg-{name}".encode()[:15])
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    os.close(output)
    os.close(null)


def _entry(role: str) -> Callable[[Mapping[str, Any]], None]:
    from keymgmt.agents import agent
    from keymgmt.drivers import software_dataplane, software_relay, software_traffic

    entries: dict[str, Callable[[Mapping[str, Any]], None]] = {
        "agent": agent.run,
        "dataplane": software_dataplane.run,
        "relay": software_relay.run,
        "traffic": software_traffic.run,
    }
    if role not in entries:
        raise SaidNo(f"unknown role; known: {', '.join(entries)}")
    return entries[role]


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: --control PATH; ends when standard input ends."""
    parser = argparse.ArgumentParser(description="Fork server for agents, data planes, relay and traffic")
    parser.add_argument("--control", required=True)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _entry("agent")
    gc.collect()
    gc.freeze()
    _Server(args.control).serve()


if __name__ == "__main__":
    main()
