"""The port behind the API: what composition fills so that the routes have something to call."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from evidence.database import Database
from policy_engine.grants import Principal, Reach

Json = Mapping[str, Any]


class Services(Protocol):
    """The operations behind the API. JSON-able mappings in and out; errors from `policy_engine.errors`.

    A thing outside `reach` does not exist: raise `NotFound`, with the same text as for an absent one.
    """

    database: Database

    def status(self, reach: Reach) -> Json:
        """State of every part, custody label, generation, faults; no secrets."""
        ...

    def ready(self) -> Mapping[str, str]:
        """What is not ready: check name to reason. Empty means ready (bundle trusted, context fresh)."""
        ...

    async def links(self, reach: Reach) -> Sequence[Json]:
        """Links that carry the data of these tenants (all for `*`), with posture and gate."""
        ...

    async def link(self, name: str, reach: Reach) -> Json:
        """One link with its reasons and last rotations."""
        ...

    async def rotate(self, name: str, by: Principal) -> Json:
        """Asks the conductor for a rotation: {"rotation": id, "link": name}."""
        ...

    async def decide(self, cluster: str, request: dict[str, Any], reach: Reach) -> Json:
        """Judges an AdmissionRequest as the webhook would, without a record: the decision as JSON.

        A namespace that is bound to no tenant in reach is `NotFound`.
        """
        ...

    async def records(
        self, reach: Reach, *, sensitive: bool, scope: str | None, kind: str | None, after: int, limit: int
    ) -> Json:
        """{"records": [...], "next": seq|null} of a scope (default: the first in reach)."""
        ...

    async def scopes(self, reach: Reach) -> Sequence[Json]:
        """Scopes in reach: {"name", "id", "size", "root"}."""
        ...

    async def packages(self, reach: Reach) -> Sequence[Json]:
        """Exported packages of the tenants in reach."""
        ...

    async def export_package(self, tenant: str, start_ns: int, end_ns: int, by: Principal) -> Json:
        """Exports a package of one tenant's window [start_ns, end_ns)."""
        ...

    def tenants(self) -> Collection[str]:
        """Names of the declared tenants: nothing is granted over another."""
        ...

    def clusters(self) -> Collection[str]:
        """Names of the declared clusters: no other gets a path token."""
        ...

    async def identities_changed(self) -> None:
        """Called after a path token was issued or revoked: reload the webhook's callers."""
        ...
