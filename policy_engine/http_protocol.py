"""HTTP/1.1 on one connection: uvicorn's protocol with the peer's certificate, bounded headers, a drain mode.

An application may offer a *direct* way beside ASGI: a complete, ordinary POST is handed to it without scope,
task and events, which cost as much as a third of a decision. The ASGI route is the reference: whatever is not
ordinary (another method or version, a body that has not arrived with its headers, `Expect`, a pipeline, a
drain) goes there, and the application may send any request there by declining it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from policy_engine.limits import LIMITS

_CLOSE_S: Final = 0.3  # seconds that an idle connection may take to close its TLS
_JSON: Final = b"content-type: application/json\r\ncontent-length: %d\r\n"
_OPEN_END, _CLOSE_END = b"\r\n", b"connection: close\r\n\r\n"
# Headers by which a request is no ordinary one.
_SPECIAL: Final = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})

Answered = Callable[[int, bytes, bool], None]  # status, JSON body, whether to close the connection


class Exchange(Protocol):
    """One request that the application has taken directly, after its headers and before its body."""

    def run(self, body: bytes, answered: Answered) -> None:
        """Handle the whole body; call `answered` once, now or later on the same loop, or raise."""

    def decline(self) -> None:
        """The body is not there: the ASGI route takes over."""


# Request target, what the connection says of its peer (`scope["state"]`), octets of the body.
Direct = Callable[[bytes, dict[str, Any], int], Exchange | None]


class ListenerProtocol(HttpToolsProtocol):
    """See the module docstring. Each listener has a subclass with its own flags."""

    max_connections = 4096
    direct: Direct | None = None
    draining = False
    _in_headers = False
    _header_bytes = 0
    _header_timer: asyncio.TimerHandle | None = None
    _default_headers: object = None  # uvicorn's list (it holds the date), and its octets
    _head = b""
    _exchange: Exchange | None = None  # taken, and its body is still being parsed
    _body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - uvicorn's
        super().connection_made(transport)  # type: ignore[arg-type]
        tls = transport.get_extra_info("ssl_object")
        peer = tls.getpeercert(binary_form=True) if tls is not None else None
        if peer is not None:
            self.app_state = {**self.app_state, "peer_cert": peer}
        if len(self.connections) > self.max_connections:
            transport.close()
            return
        self._await_headers()

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(LIMITS.http_header_s, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:  # noqa: D102 - uvicorn's
        if self.transport.is_closing():
            return
        if self._in_headers or self._idle():
            self._header_bytes += len(data)
        super().data_received(data)
        if self._exchange is not None:
            self._decline()
        if self._in_headers and self._header_bytes > LIMITS.http_header_bytes:
            self.send_400_response("Header too large.")
        elif (
            self._header_timer is None
            and self.timeout_keep_alive_task is None
            and (self._in_headers or self._idle())
        ):
            # Also for octets that begin no request: they have ended the keep-alive's time.
            self._await_headers()

    def _idle(self) -> bool:
        """Whether no request is in progress; its headers may be on their way."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def on_message_begin(self) -> None:  # noqa: D102 - uvicorn's
        self._in_headers = True
        if self.direct is None:
            super().on_message_begin()
        else:  # the scope is made when it is known that ASGI answers
            self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:  # noqa: D102 - uvicorn's
        self._in_headers = False
        if self._header_bytes > LIMITS.http_header_bytes and self._head_octets() > LIMITS.http_header_bytes:
            raise ValueError("header too large")  # uvicorn: 400, and it closes
        self._header_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        if self.transport.is_closing():
            return  # the answer before it closes the connection: nobody waits for this one
        if self.direct is None:
            self._begin_asgi()
        else:
            self._exchange = self._taken()
            if self._exchange is None:
                self._make_scope()
                self._begin_asgi()

    def _head_octets(self) -> int:
        """Octets of a head that is complete: it may have come with its body, in one piece."""
        line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n\r\n")
        return line + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)

    def _begin_asgi(self) -> None:
        if len(self.pipeline) >= LIMITS.http_pipeline:
            # Uvicorn reads on after each answer, however many wait; it makes this a 400 and closes.
            raise ValueError("too many requests before their answers")
        super().on_headers_complete()
        if self.draining and self.cycle is not None:
            self.cycle.keep_alive = False

    def _make_scope(self) -> None:
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        headers_of_scope: Any = headers
        self.url, self.headers, self.expect_100_continue = url, headers, expect
        self.scope["headers"] = headers_of_scope

    def on_body(self, body: bytes) -> None:  # noqa: D102 - uvicorn's
        if self._exchange is None:
            super().on_body(body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:  # noqa: D102 - uvicorn's
        exchange = self._exchange
        if exchange is None:
            super().on_message_complete()
            return
        body, self._body, self._exchange = self._body, b"", None
        self.cycle = cycle = _DirectCycle(self)
        try:
            exchange.run(body, cycle.answered)
        except Exception as exc:
            # Type only: the text of a foreign exception may quote the object.
            self.logger.error("a direct exchange failed: %s", type(exc).__name__)  # noqa: TRY400
            cycle.answered(500, b'"Internal Server Error"', True)

    def drain(self) -> None:
        """From now on every answer closes its connection, also those that are being made."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _taken(self) -> Exchange | None:
        """The exchange, if the request is ordinary and the application takes it."""
        if (
            self.draining
            or self.flow.write_paused
            or not self._idle()
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
        ):
            return None
        length = b""
        for name, value in self.headers:
            if name in _SPECIAL or (name == b"content-length" and length):
                return None
            if name == b"content-length":
                length = value
        if not (length.isdigit() and len(length) < 8):
            return None
        assert self.direct is not None
        try:
            return self.direct(self.url, self.app_state, int(length))
        except Exception as exc:
            # The reference answers all the same; a defect of the short way alone must not stay unseen.
            self.logger.error("a direct exchange could not begin: %s", type(exc).__name__)  # noqa: TRY400
            return None

    def _decline(self) -> None:
        """Not all of the body has come with the headers: ASGI reads on, from what is there."""
        exchange, body = self._exchange, self._body
        self._exchange, self._body = None, b""
        assert exchange is not None
        exchange.decline()
        if self.transport.is_closing():
            return
        self._make_scope()
        self._begin_asgi()
        if body:
            super().on_body(body)

    def head(self) -> bytes:
        """Headers of every answer, the date among them; uvicorn makes a new list each second."""
        headers, kind = self.server_state.default_headers, type(self)
        if headers is not kind._default_headers:
            kind._head = b"".join(b"%b: %b\r\n" % header for header in headers)
            kind._default_headers = headers
        return kind._head

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102 - uvicorn's
        if self._header_timer is not None:
            self._header_timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:  # noqa: D102 - uvicorn's
        idle = self._idle()
        super().shutdown()
        if idle:
            # An idle peer that does not read never answers close_notify: nothing is lost by not waiting.
            self.loop.call_later(_CLOSE_S, self.transport.abort)


class _NoEvent:
    """Nobody waits for more of a message that is complete."""

    def set(self) -> None:
        """Nothing to wake."""


_NO_EVENT: Final = _NoEvent()


class _DirectCycle(RequestResponseCycle):
    """What uvicorn asks of the request in progress, for one that was taken directly."""

    def __init__(self, protocol: ListenerProtocol) -> None:
        self._protocol = protocol
        self.message_event = _NO_EVENT  # type: ignore[assignment]
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False

    def answered(self, status: int, body: bytes, close: bool) -> None:
        """Write the answer, head and body at once."""
        protocol = self._protocol
        transport = protocol.transport
        self.response_complete = True
        if self.disconnected or transport.is_closing():
            return
        keep = self.keep_alive and not close
        end = _OPEN_END if keep else _CLOSE_END
        transport.write(b"".join((STATUS_LINE[status], protocol.head(), _JSON % len(body), end, body)))
        if not keep:
            transport.close()
        protocol.on_response_complete()
