"""The API: FastAPI with OpenAPI, bearer tokens, no anonymous write, nothing outside the caller's reach.

This module decides who may call what; what an operation does is decided by `Services`, which composition
fills. Each method that reads takes a `Reach` and filters by it in the store layer. Health, readiness, metrics
and the API's own description are the only anonymous routes, and all of them are reads.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel, Field

from policy_engine.api_caller import AUDIT, NAME, OPERATE, READ, Backend, Caller, Name, Strict
from policy_engine.api_decide import DecideIn, request_of
from policy_engine.api_edge import Edge, StrictRoute, install_error_handlers
from policy_engine.api_people import people
from policy_engine.api_problems import COMMON, WITH_BODY, Responses, describe_problems, problems
from policy_engine.api_services import Services
from policy_engine.api_shapes import DecisionOut, LinkOut, LinksOut, ReadinessOut, StatusOut
from policy_engine.bodies import BodyReader
from policy_engine.errors import NotFound, UsageError
from policy_engine.limits import LIMITS

Json = Mapping[str, Any]


class PackageIn(Strict):
    """A package to export: one tenant's window, nanoseconds as decimal strings."""

    tenant: str = Field(pattern=NAME, max_length=253)
    start_ns: str = Field(pattern=r"^[0-9]{1,19}$")
    end_ns: str = Field(pattern=r"^[0-9]{1,19}$")


def _shows(model: type[BaseModel]) -> Responses:
    """The form of an answer for the description; the answer itself goes out as it is."""
    return {200: {"model": model}}


v1 = APIRouter(prefix="/v1", route_class=StrictRoute, responses=COMMON)


@v1.get("/whoami", tags=["people"])
async def whoami(caller: Caller) -> Json:
    """Who the token stands for and what was granted."""
    granted = [{"role": grant.role, "tenant": grant.tenant} for grant in caller.grants]
    return {"issuer": caller.issuer, "sub": caller.sub, "grants": granted}


@v1.get("/status", tags=["estate"], response_model=None, responses=_shows(StatusOut))
async def status(services: Backend, caller: Caller) -> Json:
    """State of every part."""
    return services.status(caller.reach(*READ))


@v1.get("/links", tags=["links"], response_model=None, responses=_shows(LinksOut))
async def links(services: Backend, caller: Caller) -> Json:
    """Links with posture, gate and age of the key."""
    return {"links": await services.links(caller.reach(*READ))}


@v1.get("/links/{name}", tags=["links"], response_model=None, responses={**_shows(LinkOut), **problems(404)})
async def link(name: Name, services: Backend, caller: Caller) -> Json:
    """One link: its reasons and its last rotations."""
    return await services.link(name, caller.reach(*READ))


@v1.post("/links/{name}/rotate", status_code=202, tags=["links"], responses=problems(400, 404))
async def rotate(name: Name, services: Backend, caller: Caller) -> Json:
    """Ask for a rotation of the link's key. Links are shared, so this needs a role over every tenant."""
    caller.require_estate(*OPERATE)
    return await services.rotate(name, caller)


@v1.post(
    "/decide",
    tags=["decide"],
    response_model=None,
    responses={**_shows(DecisionOut), **WITH_BODY, **problems(404)},
)
async def decide(body: DecideIn, services: Backend, caller: Caller) -> Json:
    """What the webhook would answer. Nothing is recorded."""
    reach = caller.reach(*READ)
    return await services.decide(body.cluster, request_of(body), reach)


@v1.get("/records", tags=["evidence"], responses=problems(404, 409))
async def records(  # noqa: PLR0917 - FastAPI reads parameters by name
    services: Backend,
    caller: Caller,
    scope: Annotated[str | None, Query(pattern=NAME, max_length=253)] = None,
    kind: Annotated[str | None, Query(pattern=r"^[a-z_]{1,40}$")] = None,
    after: Annotated[int, Query(ge=-1, lt=2**53)] = -1,
    limit: Annotated[int, Query(ge=1, le=LIMITS.page_rows)] = 100,
) -> Json:
    """Records of a scope in reach, after a sequence number. Sensitive parts need the role auditor over it."""
    reach = caller.reach(*READ)
    sensitive = any(grant.role in AUDIT for grant in caller.grants)
    if sensitive:
        audited = caller.reach(*AUDIT)
        sensitive = scope is None or audited.covers_scope(scope)
        reach = audited if sensitive else reach
    return await services.records(
        reach, sensitive=sensitive, scope=scope, kind=kind, after=after, limit=limit
    )


@v1.get("/scopes", tags=["evidence"], responses=problems(409))
async def scopes(services: Backend, caller: Caller) -> Json:
    """Scopes in reach with the head of their tree."""
    return {"scopes": await services.scopes(caller.reach(*READ))}


@v1.get("/packages", tags=["evidence"])
async def packages(services: Backend, caller: Caller) -> Json:
    """Exported packages."""
    return {"packages": await services.packages(caller.reach(*AUDIT))}


@v1.post("/packages", status_code=201, tags=["evidence"], responses={**WITH_BODY, **problems(404, 409)})
async def export_package(body: PackageIn, services: Backend, caller: Caller) -> Json:
    """Export a package of one tenant's window."""
    if not caller.reach(*AUDIT).covers(body.tenant):
        raise NotFound("no such tenant")
    start_ns, end_ns = int(body.start_ns), int(body.end_ns)
    if start_ns >= end_ns:
        raise UsageError("the window is empty", fix="start_ns must be before end_ns")
    return await services.export_package(body.tenant, start_ns, end_ns, caller)


probes = APIRouter(route_class=StrictRoute, responses=problems(500))


@probes.get("/healthz", tags=["health"])
async def healthz() -> Json:
    """Alive: the loop answers. Never passes through Rego."""
    return {"status": "ok"}


@probes.get(
    "/readyz",
    tags=["health"],
    response_model=None,
    responses={**_shows(ReadinessOut), 503: {"model": ReadinessOut, "description": "Something is missing"}},
)
async def readyz(services: Backend, response: Response) -> Json:
    """Ready: a floor, not a ceiling.

    The bundle is the accepted one, declared state is there, postures are at most 5 s old, the spool takes
    records, and it is not stopping.
    """
    missing = dict(services.ready())
    response.status_code = 503 if missing else 200
    return {"status": "not ready" if missing else "ok", "missing": missing}


@probes.get("/metrics", tags=["health"], response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus text. Labels are bounded and name no tenant, user or object."""
    registry: CollectorRegistry = request.app.state.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def create_api(
    services: Services,
    *,
    clock: Callable[[], int],
    admission: Any | None = None,
    registry: CollectorRegistry | None = None,
    version: str = "0",
) -> FastAPI:
    """The application of the API listener.

    Args:
        services: What the operations do.
        clock: Present time in nanoseconds.
        admission: An `AdmissionApp` to mount at `/admit`; the admission listener may also serve it alone.
        registry: Metrics to show at `/metrics`; an empty one by default.
        version: Shown in the OpenAPI document.
    """
    # The page at /docs carries its own script: it works where nothing outside can be reached.
    app = FastAPIOffline(
        title="Sluicegate", version=version, redoc_url=None, summary="Decide, rotate, witness, gate"
    )
    app.state.services = services
    app.state.clock = clock
    app.state.bodies = BodyReader(LIMITS.api_body_bytes, LIMITS.api_body_s, LIMITS.api_bytes_in_flight)
    app.state.registry = registry if registry is not None else CollectorRegistry()
    install_error_handlers(app)
    describe_problems(app)
    app.include_router(v1)
    app.include_router(people)
    app.include_router(probes)
    if admission is not None:
        app.mount("/admit", admission)
    app.add_middleware(Edge)
    return app
