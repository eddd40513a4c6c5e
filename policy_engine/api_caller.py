"""Who calls the API: the bearer token of a request becomes a principal; shared shapes of the routes."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict

from policy_engine import grants
from policy_engine.api_services import Services
from policy_engine.errors import Unauthenticated
from policy_engine.grants import Principal

Json = Mapping[str, Any]

READ = ("viewer", "operator", "auditor", "admin")
OPERATE = ("operator", "admin")
AUDIT = ("auditor", "admin")
NAME = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
ID = r"^[0-9a-f]{16}$"

Name = Annotated[str, Path(pattern=NAME, max_length=253)]
Id = Annotated[str, Path(pattern=ID)]


class Strict(BaseModel):
    """A body that is taken literally: no coercion, no unknown field."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


_bearer = HTTPBearer(auto_error=False, description="A token issued by an admin, `sgt_...`")


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def _now(request: Request) -> int:
    now: int = request.app.state.clock()
    return now


Backend = Annotated[Services, Depends(_services)]
Now = Annotated[int, Depends(_now)]


async def principal_of(request: Request) -> Principal:
    """Whom the bearer token of a request stands for, looked up once for each request.

    Raises:
        Unauthenticated: No token, or none that is known and valid now.
    """
    known: Principal | None = getattr(request.state, "principal", None)
    if known is not None:
        return known
    credentials: HTTPAuthorizationCredentials | None = await _bearer(request)
    if credentials is None:
        raise Unauthenticated(
            "a bearer token is needed", reason="no_credential", fix="Authorization: Bearer sgt_..."
        )
    token, now_ns = credentials.credentials, _now(request)
    principal = await _services(request).database.read(lambda conn: grants.principal_of(conn, token, now_ns))
    request.state.principal = principal
    return principal


async def _principal(
    request: Request,
    _described: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],  # for OpenAPI only
) -> Principal:
    return await principal_of(request)


Caller = Annotated[Principal, Depends(_principal)]
