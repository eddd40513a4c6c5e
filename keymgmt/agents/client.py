"""The agent's side of its stream to the control plane: mTLS, one kept connection per loop, no framework.

A poll may be held for 25 s; `interrupt` breaks it from another thread when there is news that must not wait.
What the control plane did not answer counts as not delivered.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from keymgmt.agents.config import Server
from keymgmt.agents.identity import Identity
from keymgmt.errors import ControlUnavailable, SaidNo

MAX_ANSWER: Final = 4 * 1024 * 1024  # octets


class Refused(SaidNo):
    """The server answered with an error status.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Interrupted(ControlUnavailable):
    """Another thread broke the request, because there is news to send."""


class Connection:
    """One kept HTTPS connection; reconnects when it broke or the identity was renewed.

    Args:
        server: where to.
        identity: returns the current identity; None for a connection without client certificate.
    """

    def __init__(self, server: Server, identity: Callable[[], Identity | None], timeout_s: float) -> None:
        self._server, self._identity, self._timeout_s = server, identity, timeout_s
        self._lock = threading.Lock()
        self._http: http.client.HTTPSConnection | None = None
        self._serial: int | None = None
        self._broken = False

    def post(self, path: str, doc: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
        """Send a JSON object and return the answer's octets.

        Raises:
            ControlUnavailable: no answer; whether the request was seen is unknown.
            Refused: an error status; the text holds no part of the answer.
        """
        return self.request("POST", path, json.dumps(doc, separators=(",", ":")).encode(), headers)

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send one request; see `post`."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        kept = self._http is not None
        try:
            status, answer = self._once(method, path, body, sent)
        except (OSError, http.client.HTTPException) as lost:
            self.close()
            if self._broken:
                self._broken = False
                raise Interrupted("interrupted") from None
            # A kept connection that the server has closed in the meantime is tried once more.
            if not kept or isinstance(lost, TimeoutError):
                raise self._away(lost) from None
            try:
                status, answer = self._once(method, path, body, sent)
            except (OSError, http.client.HTTPException) as again:
                self.close()
                raise self._away(again) from None
        self._broken = False
        if status >= 400:
            raise Refused(status, f"{self._server.host}:{self._server.port} answered {status} to {path}")
        return answer

    def interrupt(self) -> None:
        """Break a request that is waiting, from any thread."""
        with self._lock:
            sock = self._http.sock if self._http is not None else None
        if sock is not None:
            self._broken = True
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            http_, self._http = self._http, None
        if http_ is not None:
            http_.close()

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection = self._connected()
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        answer = response.read(MAX_ANSWER + 1)
        if len(answer) > MAX_ANSWER:
            raise http.client.HTTPException("answer too large")
        return response.status, answer

    def _connected(self) -> http.client.HTTPSConnection:
        identity = self._identity()
        serial = identity.serial if identity is not None else None
        if self._http is not None and serial != self._serial:
            self.close()
        if self._http is None:
            connection = http.client.HTTPSConnection(
                self._server.host,
                self._server.port,
                timeout=self._timeout_s,
                context=identity.tls(self._server.ca)
                if identity is not None
                else ssl.create_default_context(cafile=self._server.ca),
            )
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._http, self._serial = connection, serial
        return self._http

    def _away(self, why: Exception) -> ControlUnavailable:
        return ControlUnavailable(f"{self._server.host}:{self._server.port}: {type(why).__name__}")
