"""A cheap HTTP/1.1 client over TLS for bench/admission.py: one thread, ready-made bytes, keep-alive.

The same loop drives every server, so that the server is the bottleneck and the client's cost is equal.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A server under load: where it is, what is sent, and how its verdict is told from the bytes."""

    name: str
    port: int
    context: ssl.SSLContext
    requests: Sequence[bytes]
    allowed: Sequence[bool]  # the expected verdicts, by request
    yes: bytes
    no: bytes


def request(path: str, body: bytes, port: int) -> bytes:
    """The bytes of one POST."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Connection:
    def __init__(self, target: Target) -> None:
        raw = socket.create_connection(("127.0.0.1", target.port), timeout=10)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = target.context.wrap_socket(raw, server_hostname="localhost")
        self.sock.setblocking(False)
        self.buffer = b""
        self.number = -1

    def read(self) -> bytes | None:
        """The body of a complete answer, or None while it is not all there."""
        while True:
            try:
                data = self.sock.recv(65_536)
            except ssl.SSLWantReadError:
                return None
            if not data:
                raise RuntimeError("the server closed the connection")
            self.buffer = self.buffer + data if self.buffer else data
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                continue
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            if at < 0:
                raise RuntimeError("an answer without Content-Length")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self.buffer) < end + 4 + length:
                continue
            body, self.buffer = self.buffer[end + 4 :], b""
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(f"the server answered {head[:40]!r} {body[:200]!r}")
            return body


def drive(
    target: Target, *, connections: int, seconds: float | None, count: int | None = None
) -> tuple[float, list[bytes]]:
    """Keep every connection busy for a time (or for `count` requests); decisions per second, and the bodies.

    Each answer's verdict is compared with the expected one. Bodies are kept only when `count` is given.
    """
    selector = selectors.DefaultSelector()
    lines = [_Connection(target) for _ in range(connections)]
    bodies: list[bytes] = [b""] * (count or 0)
    requests, allowed, total = target.requests, target.allowed, len(target.requests)
    sent = done = 0
    begin = time.perf_counter()
    end = begin + (seconds or 3600)
    for line in lines:
        if count is None or sent < count:
            line.number, sent = sent, sent + 1
            line.sock.send(requests[line.number % total])
        selector.register(line.sock, selectors.EVENT_READ, line)
    while done < sent:
        for key, _ in selector.select(10):
            line = key.data
            body = line.read()
            if body is None:
                continue
            if (target.yes in body, target.no in body) != (
                allowed[line.number % total],
                not allowed[line.number % total],
            ):
                raise RuntimeError(f"{target.name}: another verdict than expected: {body[:600]!r}")
            if count is not None:
                bodies[line.number] = body
            done += 1
            more = sent < count if count is not None else time.perf_counter() < end
            if more:
                line.number, sent = sent, sent + 1
                line.sock.send(requests[line.number % total])
    elapsed = time.perf_counter() - begin
    for line in lines:
        line.sock.close()
    selector.close()
    return done / elapsed, bodies
