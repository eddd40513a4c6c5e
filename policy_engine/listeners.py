"""Three TLS listeners on one event loop: admission, API and console, agents.

Decides how a listener presents itself, how much an unauthenticated peer may cost, and how it stops; what a
caller may do is decided by the application behind it. TLS material is polled by content (mounted secrets
renew neither times nor events) and swapped without touching open connections, see `tls_material`.

Stopping: every response says `connection: close` for `drain_linger_s` while connections are still accepted,
then listening sockets and idle connections are closed, and a request that was read is answered.
"""

import asyncio
import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from evidence.logs import get_logger
from policy_engine.errors import TlsMaterialError
from policy_engine.http_protocol import ListenerProtocol
from policy_engine.limits import LIMITS
from policy_engine.tls_material import ClientCert, ReloadingContext, TlsFiles

log = get_logger("policy_engine.listeners")

App = Callable[..., Awaitable[None]]

_BACKLOG: Final = 2048  # connections; the kernel caps it at net.core.somaxconn
_START_S: Final = 10.0  # seconds until a listener must accept


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One listener: `name` for logs, the ASGI application, address (port 0 takes a free one) and TLS.

    `client_cert`: `required` for agents, `optional` for admission (path tokens), `none` for the API. The
    peer's certificate (DER) stands in `scope["state"]["peer_cert"]`; the key is absent without one.
    """

    name: str
    app: App
    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    client_cert: ClientCert = "none"
    keep_alive_s: int = 75
    max_connections: int = 4096


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, and bounds the TLS handshake as it bounds headers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Uvicorn's for given sockets; its own call leaves a silent peer a minute before TLS."""
        config, loop = self.config, asyncio.get_running_loop()
        await self.lifespan.startup()

        kind: Callable[..., asyncio.Protocol] = config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            return kind(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        handshake = None if config.ssl is None else LIMITS.http_header_s
        self.servers = [
            await loop.create_server(
                protocol,
                sock=sock,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=handshake,
            )
            for sock in sockets or ()
        ]
        self.started = True


class _Listener:
    """One listening socket with its server task."""

    def __init__(self, spec: ListenerSpec) -> None:
        self.spec = spec
        self.tls = ReloadingContext(spec.tls, spec.client_cert) if spec.tls is not None else None
        # A class of its own per listener: flags are read per request without another look-up.
        flags = {"max_connections": spec.max_connections, "direct": getattr(spec.app, "direct", None)}
        self.protocol: type[ListenerProtocol] = type("_ListenerProtocol", (ListenerProtocol,), flags)
        self.sock = _bind(spec.host, spec.port)
        self.server = _Server(self._config())
        self.task: asyncio.Task[None] | None = None

    def _config(self) -> uvicorn.Config:
        tls = self.tls
        extra: dict[str, Any] = {}
        if tls is not None:
            extra["ssl_context_factory"] = lambda _config, _default: tls.outer
        return uvicorn.Config(
            self.spec.app,
            http=self.protocol,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=self.spec.keep_alive_s,
            timeout_graceful_shutdown=LIMITS.http_drain_s,
            **extra,
        )

    async def start(self) -> None:
        self.task = asyncio.create_task(self.server.serve([self.sock]), name=f"listener-{self.spec.name}")
        async with asyncio.timeout(_START_S):
            while not self.server.started:
                if self.task.done():
                    self.task.result()
                    raise RuntimeError(f"listener {self.spec.name} ended while it started")
                await asyncio.sleep(0.01)

    def drain(self) -> None:
        self.protocol.draining = True
        for connection in self.server.server_state.connections:
            connection.drain()  # type: ignore[union-attr]

    async def stop(self) -> None:
        self.server.should_exit = True
        if self.task is not None:
            await self.task
        self.sock.close()

    def refresh(self) -> bool:
        if self.tls is None:
            return False
        try:
            changed = self.tls.refresh()
        except TlsMaterialError as exc:
            log.error(  # noqa: TRY400 - the text says it all; a traceback would show paths
                "tls_material_refused", listener=self.spec.name, reason=str(exc), fix=exc.fix
            )
            return False
        if changed:
            log.info("tls_material_swapped", listener=self.spec.name)
        return changed


class Listeners:
    """Starts, refreshes and stops a group of listeners together. Use from one event loop."""

    def __init__(
        self, specs: Sequence[ListenerSpec], *, drain_linger_s: float = 0.2, poll_s: float = 1.0
    ) -> None:
        self._specs = tuple(specs)
        self._linger_s = drain_linger_s
        self._poll_s = poll_s
        self._running: dict[str, _Listener] = {}

    async def start(self) -> None:
        """Binds and serves every listener; returns when all accept. All or none.

        Raises:
            TlsMaterialError: A listener's material cannot serve.
            OSError: An address is taken.
        """
        try:
            for spec in self._specs:
                self._running[spec.name] = _Listener(spec)
            for listener in self._running.values():
                await listener.start()
        except BaseException:
            await self._close()
            raise

    async def stop(self) -> None:
        """Drains and stops: no request that was read stays unanswered. Idempotent."""
        if not self._running:
            return
        for listener in self._running.values():
            listener.drain()
        await asyncio.sleep(self._linger_s)
        await self._close()

    async def _close(self) -> None:
        running, self._running = self._running, {}
        await asyncio.gather(*(listener.stop() for listener in running.values()), return_exceptions=True)

    def port(self, name: str) -> int:
        """The bound TCP port of a listener."""
        port: int = self._running[name].sock.getsockname()[1]
        return port

    async def reload(self) -> list[str]:
        """Looks at all TLS material now; the names of the listeners whose material was swapped."""
        return [name for name, listener in self._running.items() if listener.refresh()]

    async def serve_until(
        self, stop: asyncio.Event, *, before_drain: Callable[[], None] | None = None
    ) -> None:
        """Runs until `stop` is set, polling TLS material; `before_drain` makes the process unready first."""
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await stop.wait()
            await self.reload()
        if before_drain is not None:
            before_drain()
        await self.stop()


def settle_heap() -> None:
    """Call once when all is loaded and serving: the collector leaves start-up objects alone from then on.

    A decision makes hundreds of small containers and no cycles; with the default thresholds the collector
    walks the whole program for them (about a tenth of the webhook's time).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def allow_connections() -> None:
    """Let this process have as many descriptors as its listeners may take, and files beside them.

    Many shells start programs with 1,024; at that number a crowd of silent peers would keep the spool from
    opening its next file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMITS.open_files if hard == resource.RLIM_INFINITY else min(LIMITS.open_files, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT set `stop`. Call in the main thread, inside the loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _bind(host: str, port: int) -> socket.socket:
    # Bound here, because uvicorn ends the whole process when an address is taken. The protocol is named,
    # because asyncio turns Nagle's algorithm off only then: 40 ms for an answer of two writes otherwise.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
