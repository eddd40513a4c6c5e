"""The edge of the API: what surrounds every request, and what every error looks like.

Errors are problem details (RFC 9457) without tracebacks and without the values that were sent. A body is read
when its caller is known, within bounds of size and time, and decoded strictly: no lone surrogates, no NaN, no
nesting without end.
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
from policy_engine.api_caller import principal_of
from policy_engine.bodies import BodyReader
from policy_engine.errors import (
    BadBody,
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
_CLOSE: Final = {"connection": "close"}  # the rest of the body is not read
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
    """ASGI middleware: safe headers, and no exception leaves as a traceback."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

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
            await self._app(scope, receive, safe_send)
        except Exception as exc:
            # Type only: the text of a foreign exception may hold what must not be logged.
            log.error("request_failed", method=scope["method"], error=type(exc).__name__)  # noqa: TRY400
            if started:
                raise RuntimeError("the answer was cut off") from None
            await problem(500, "an internal error; the log names it")(scope, receive, safe_send)


class StrictRequest(Request):
    """A request whose body is read within bounds and decoded strictly."""

    async def body(self) -> bytes:
        """The octets of the body.

        Raises:
            HTTPException: 413 too large, 408 too slow, 429 one too many, 400 cut off. (FastAPI turns whatever
                else is raised while it reads a body into a 400.)
        """
        if not hasattr(self, "_body"):
            bodies: BodyReader = self.app.state.bodies
            try:
                bodies.check_declared(self.scope["headers"])
                self._body = bytes(await bodies.read(self.receive))
            except BadBody as exc:
                raise HTTPException(exc.code, str(exc), headers=_CLOSE) from None
        return self._body

    async def json(self) -> Any:
        """The body as JSON.

        Raises:
            HTTPException: As `body`; 400, without quoting the body.
        """
        body = await self.body()
        try:
            return _decode(body)
        except RecursionError:
            raise HTTPException(400, "the body is nested too deeply") from None
        except msgspec.ValidationError:  # all that a decoder without a type can object to in good JSON
            raise HTTPException(400, "the body holds a number that is out of range") from None
        except (msgspec.MsgspecError, ValueError):
            raise HTTPException(400, "the body is not JSON in UTF-8") from None


class StrictRoute(APIRoute):
    """A route that reads its body with `StrictRequest`, and none for an unknown caller."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, given a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            asked = StrictRequest(request.scope, request.receive)
            if self.body_field is not None:
                await principal_of(asked)
            return await handler(asked)

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
    answer = problem(exc.status_code, str(exc.detail))
    answer.headers.update(exc.headers or {})
    return answer
