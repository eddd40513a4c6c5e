"""How the demo talks to the running system: only through doors that a user has.

HTTPS with the standard library (keep-alive), JSON over unix sockets for the relay, the traffic
generator and the fault door of a data plane, processes by their pid. No part of the server is imported.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ANSWER_MAX: Final = 16 * 1024 * 1024  # octets of one HTTP answer


class DoorClosedError(Exception):
    """The other side did not answer: it could not be asked, which is not a "no"."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer: status and decoded JSON (or text)."""

    status: int
    body: Any


class Https:
    """One TLS connection to one listener, opened again when it broke.

    Args:
        address: (host, port).
        ca: File with the authority of the server's certificate.
        client: (certificate file, key file) to show, if any.
        token: Bearer token, if any.
    """

    def __init__(
        self,
        address: tuple[str, int],
        ca: Path,
        *,
        client: tuple[Path, Path] | None = None,
        token: str | None = None,
        timeout: float = 15.0,
    ) -> None:
        self._address = address
        self._context = ssl.create_default_context(cafile=str(ca))
        if client is not None:
            self._context.load_cert_chain(*map(str, client))
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Reply:
        """GET a path."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Reply:
        """POST a JSON body."""
        return self._ask("POST", path, json.dumps(body).encode())

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes | None) -> Reply:
        for attempt in (1, 2):
            try:
                return self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if attempt == 2 or method != "GET":
                    raise DoorClosedError(f"{method} {path}: {type(error).__name__}") from None
        raise AssertionError("unreachable")

    def _once(self, method: str, path: str, body: bytes | None) -> Reply:
        if self._connection is None:
            host, port = self._address
            self._connection = http.client.HTTPSConnection(
                host, port, context=self._context, timeout=self._timeout
            )
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        data = answer.read(ANSWER_MAX)
        try:
            return Reply(answer.status, json.loads(data))
        except ValueError:
            return Reply(answer.status, data.decode("utf-8", "replace"))


def ask_socket(path: Path, message: Mapping[str, Any], *, timeout: float = 2.0) -> Any:
    """Send one JSON message over a unix socket that keeps messages apart and return the JSON answer.

    Args:
        path: The socket.
        message: What to send.
        timeout: Seconds.

    Raises:
        DoorClosedError: Nobody answered.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.settimeout(timeout)
            door.connect(str(path))
            door.sendall(json.dumps(message).encode())
            return json.loads(door.recv(1 << 20))
    except (OSError, ValueError) as error:
        raise DoorClosedError(f"{path.name}: {type(error).__name__}") from None
