"""Three TLS listeners on one event loop: admission, API and console, agents.

Decides how a listener presents itself and whom it lets shake hands; what a caller may do is decided by the
application behind it. Certificates and client authorities are polled by content hash (mounted secrets
renew neither times nor events). New material is built into a fresh SSLContext; only when that succeeds does
it take the place of the one that serves, because a mismatched pair loaded into a live context leaves it broken.
Open connections go on; the next handshake gets the new material.

Stopping: unready first, then each response says `connection: close`, idle connections are closed after
`drain_linger_s`, and a request that was read is always answered.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evidence.logs import get_logger

log = get_logger("policy_engine.listeners")

ClientCert = Literal["none", "optional", "required"]
App = Callable[..., Awaitable[None]]


class TlsMaterialError(Exception):
    """Certificate, key or client authorities cannot be used together; what served before goes on serving."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a listener's TLS material stands.

    Attributes:
        cert: PEM chain, leaf first.
        key: PEM private key.
        client_ca: PEM file, or a callable that gives PEM text (authorities come from declared state).
    """

    cert: Path
    key: Path
    client_ca: Path | Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One listener: `name` for logs, the ASGI application, address (port 0 picks one) and TLS.

    `client_cert`: `required` for agents, `optional` for admission (path tokens), `none` for the API.
    The peer's certificate (DER) stands in `scope["state"]["peer_cert"]`, absent without one.
    """

    name: str
    app: App
    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    client_cert: ClientCert = "none"
    lifespan: bool = False  # of one listener at most
    keep_alive_s: int = 75
    max_connections: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Listeners:
    """Starts and stops a group of listeners together. Use from one event loop."""

    def __init__(
        self, specs: Sequence[ListenerSpec], *, drain_linger_s: float = 0.2, poll_s: float = 1.0
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Binds and serves every listener; returns when all accept. All or none: a failure stops the rest."""

    async def stop(self) -> None:
        """Drains: no request that reached a listener stays unanswered. Idempotent."""

    def port(self, name: str) -> int:
        """The bound TCP port of a listener."""
        raise NotImplementedError

    async def reload(self) -> list[str]:
        """Looks at all TLS material now; returns the names of the listeners that changed."""
        raise NotImplementedError

    async def serve_until(
        self, stop: asyncio.Event, *, before_drain: Callable[[], None] | None = None
    ) -> None:
        """Runs until `stop` is set, polling TLS material; `before_drain` makes the process unready first."""
