"""Routes for people and machines that may call: tokens, grants, path tokens of clusters."""

from collections.abc import Collection

from fastapi import APIRouter
from pydantic import Field

from policy_engine import grants
from policy_engine.api_caller import Backend, Caller, Id, Json, Name, Now, Strict
from policy_engine.api_edge import StrictRoute
from policy_engine.api_problems import COMMON, WITH_BODY, problems
from policy_engine.errors import NotFound
from policy_engine.grants import Principal
from policy_engine.limits import LIMITS
from policy_engine.resources.objects import one_of

people = APIRouter(prefix="/v1", route_class=StrictRoute, responses=COMMON)


class TokenIn(Strict):
    """A bearer token to issue."""

    issuer: str = Field(default="local", max_length=200)
    sub: str = Field(max_length=200)
    label: str = Field(default="", max_length=200)
    days: int = Field(default=30, ge=1, le=LIMITS.token_days)


class PathTokenIn(Strict):
    """A path token to issue for a cluster."""

    days: int = Field(default=90, ge=1, le=LIMITS.token_days)


class GrantIn(Strict):
    """A role to grant over a tenant, or over `*`."""

    issuer: str = Field(default="local", max_length=200)
    sub: str = Field(max_length=200)
    role: str = Field(max_length=60)
    tenant: str = Field(max_length=253)


@people.get("/tokens", tags=["people"])
async def list_tokens(services: Backend, caller: Caller) -> Json:
    """One's own tokens; all of them for an admin over every tenant."""
    owner = None if _administers_all(caller) else caller
    return {"tokens": await services.database.read(lambda conn: grants.list_tokens(conn, owner))}


@people.post("/tokens", status_code=201, tags=["people"], responses=WITH_BODY)
async def issue_token(body: TokenIn, services: Backend, caller: Caller, now_ns: Now) -> Json:
    """Issue a token. Its text is in this answer and nowhere else."""
    caller.require_estate("admin")
    issued = await services.database.write(
        lambda conn: grants.issue_token(
            conn, body.issuer, body.sub, label=body.label, by=caller.name, now_ns=now_ns, days=body.days
        )
    )
    return {"id": issued.id, "token": issued.token, "expires_ns": str(issued.expires_ns)}


@people.delete("/tokens/{token_id}", status_code=204, tags=["people"], responses=problems(404))
async def revoke_token(token_id: Id, services: Backend, caller: Caller, now_ns: Now) -> None:
    """Revoke one's own token, or any as an admin over every tenant."""
    owner = None if _administers_all(caller) else caller
    await services.database.write(
        lambda conn: grants.revoke_token(conn, token_id, owner=owner, now_ns=now_ns)
    )


@people.get("/grants", tags=["people"])
async def list_grants(services: Backend, caller: Caller) -> Json:
    """Grants over the tenants that one administers."""
    reach = caller.reach("admin")
    return {"grants": await services.database.read(lambda conn: grants.list_grants(conn, reach))}


@people.post("/grants", status_code=201, tags=["people"], responses={**WITH_BODY, **problems(404)})
async def add_grant(body: GrantIn, services: Backend, caller: Caller, now_ns: Now) -> Json:
    """Grant a role over a tenant that one administers."""
    reach = caller.reach("admin")
    if not reach.covers(None if body.tenant == grants.EVERY else body.tenant):
        caller.require_estate("admin")
    if body.tenant != grants.EVERY:
        known = [name for name in services.tenants() if reach.covers(name)]
        _require(body.tenant, known, "tenant")
    grant_id = await services.database.write(
        lambda conn: grants.add_grant(
            conn, body.issuer, body.sub, body.role, body.tenant, by=caller.name, now_ns=now_ns
        )
    )
    return {"id": grant_id}


@people.delete("/grants/{grant_id}", status_code=204, tags=["people"], responses=problems(404))
async def remove_grant(grant_id: Id, services: Backend, caller: Caller) -> None:
    """Take a grant away."""
    reach = caller.reach("admin")
    await services.database.write(lambda conn: grants.remove_grant(conn, grant_id, reach))


@people.get("/path-tokens", tags=["clusters"])
async def list_path_tokens(services: Backend, caller: Caller) -> Json:
    """Path tokens of all clusters, without their text."""
    caller.require_estate("admin")
    return {"path_tokens": await services.database.read(grants.list_path_tokens)}


@people.post(
    "/clusters/{name}/path-tokens",
    status_code=201,
    tags=["clusters"],
    responses={**WITH_BODY, **problems(404)},
)
async def issue_path_token(
    name: Name, body: PathTokenIn, services: Backend, caller: Caller, now_ns: Now
) -> Json:
    """Issue a path token for a cluster's API server; older ones go on until they are revoked."""
    caller.require_estate("admin")
    _require(name, services.clusters(), "cluster")
    issued = await services.database.write(
        lambda conn: grants.issue_path_token(conn, name, by=caller.name, now_ns=now_ns, days=body.days)
    )
    await services.identities_changed()
    return {"id": issued.id, "token": issued.token, "expires_ns": str(issued.expires_ns)}


@people.delete("/path-tokens/{token_id}", status_code=204, tags=["clusters"], responses=problems(404))
async def revoke_path_token(token_id: Id, services: Backend, caller: Caller, now_ns: Now) -> None:
    """Revoke a path token."""
    caller.require_estate("admin")
    try:
        await services.database.write(lambda conn: grants.revoke_path_token(conn, token_id, now_ns))
    finally:
        # Also when there is none any more: it may have been revoked and not been put in force.
        await services.identities_changed()


def _administers_all(caller: Principal) -> bool:
    return any(grant.role == "admin" and grant.tenant == grants.EVERY for grant in caller.grants)


def _require(name: str, known: Collection[str], what: str) -> None:
    """Refuse a name that nothing declares: a grant or token for it would wait for whoever takes the name."""
    if name not in known:
        raise NotFound(f"no such {what} is declared", fix=one_of(name, known))
