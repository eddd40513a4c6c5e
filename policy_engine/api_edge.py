"""The edge of the API: what surrounds every request, and what every error looks like.

Errors are problem details (RFC 9457) without tracebacks and without the values that were sent. Bodies are
bounded and decoded strictly: no lone surrogates, no NaN, no nesting without end.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

from evidence.errors import EvidenceError, Unavailable
from evidence.logs import get_logger
from policy_engine.errors import (
    CouldNotTell,
    Forbidden,
    NotFound,
    PolicyEngineError,
    Unauthenticated,
)

log = get_logger("policy_engine.api")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_decode: Final = msgspec.json.Decoder().decode


def problem(
    status: int, detail: str, *, fix: str = "", errors: list[dict[str, Any]] | None = None
) -> Response:
    """A problem details answer (`application/problem+json`)."""
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body["detail"] = detail
    if fix:
        body["fix"] = fix
    if errors:
        body["errors"] = errors
    headers = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return Response(json.dumps(body), status, headers, media_type="application/problem+json")


class Edge:
    """ASGI middleware: a bound on bodies, safe headers, and no exception leaves as a traceback."""

    def __init__(self, app: Callable[..., Awaitable[None]], *, body_bytes: int) -> None:
        self._app = app
        self._body_bytes = body_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def safe_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            _refuse_declared_length(scope, self._body_bytes)
            await self._app(scope, _bounded(receive, self._body_bytes), safe_send)
        except _TooLargeError:
            if not started:
                await problem(413, f"a body is limited to {self._body_bytes} octets")(
                    scope, receive, safe_send
                )
        except Exception as exc:
            # Type only: the text of a foreign exception may hold what must not be logged.
            log.error("request_failed", method=scope["method"], error=type(exc).__name__)  # noqa: TRY400
            if started:
                raise RuntimeError("the answer was cut off") from None
            await problem(500, "an internal error; the log names it")(scope, receive, safe_send)


class _TooLargeError(StarletteHTTPException):
    # An HTTPException, because FastAPI turns whatever else is raised while it reads a body into a 400.
    def __init__(self, limit: int) -> None:
        super().__init__(413, f"a body is limited to {limit} octets")


def _refuse_declared_length(scope: Message, limit: int) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or int(value) > limit):
            raise _TooLargeError(limit)


def _bounded(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLargeError(limit)
        return message

    return bounded


class StrictRequest(Request):
    """A request whose JSON is decoded strictly."""

    async def json(self) -> Any:
        """The body as JSON.

        Raises:
            HTTPException: 400, without quoting the body.
        """
        body = await self.body()
        try:
            return _decode(body)
        except RecursionError:
            raise HTTPException(400, "the body is nested too deeply") from None
        except (msgspec.MsgspecError, ValueError):
            raise HTTPException(400, "the body is not JSON in UTF-8") from None


class StrictRoute(APIRoute):
    """A route that reads its body with `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, given a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def install_error_handlers(app: FastAPI) -> None:
    """Every error that is raised on purpose becomes a problem with the right status."""
    app.add_exception_handler(PolicyEngineError, _on_own)  # type: ignore[arg-type]
    app.add_exception_handler(EvidenceError, _on_evidence)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _on_invalid)  # type: ignore[arg-type]
    app.add_exception_handler(StarletteHTTPException, _on_http)  # type: ignore[arg-type]


def _on_own(_request: Request, exc: PolicyEngineError) -> Response:
    status = 400
    if isinstance(exc, CouldNotTell):
        status = 503
    elif isinstance(exc, Unauthenticated):
        status = 401
    elif isinstance(exc, Forbidden):
        status = 403
    elif isinstance(exc, NotFound):
        status = 404
    return problem(status, str(exc), fix=exc.fix)


def _on_evidence(_request: Request, exc: EvidenceError) -> Response:
    return problem(503 if isinstance(exc, Unavailable) else 409, str(exc), fix=exc.fix)


def _on_invalid(_request: Request, exc: RequestValidationError) -> Response:
    # `input` and `ctx` quote what was sent; a token pasted into the wrong field must not come back.
    errors = [
        {"at": ".".join(str(part) for part in error["loc"]), "message": error["msg"]}
        for error in exc.errors()
    ]
    return problem(422, "the request does not have the declared form", errors=errors[:50])


def _on_http(_request: Request, exc: StarletteHTTPException) -> Response:
    return problem(exc.status_code, str(exc.detail))
