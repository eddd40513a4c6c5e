"""Which declared state and which bundle take effect, and the record that says so.

The first resource set of a new state folder is accepted by a ``bootstrap`` record with its digest. A
later change is a ``resource_set`` record; where it widens what is allowed, embedded mode applies it and
says so with ``widened_unapproved`` (a production role would refuse it until two people approved).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sqlalchemy import Connection, insert, select

from evidence import outbox
from evidence.records import Draft
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.bundle import Bundle
from policy_engine.store import AcceptedBundleRow, AcceptedResourcesRow

SOURCE: Final = "composition"
_RESOURCES = AcceptedResourcesRow.__table__  # type: ignore[attr-defined]
_BUNDLES = AcceptedBundleRow.__table__  # type: ignore[attr-defined]


def counts(resources: ResourceSet) -> dict[str, int]:
    """Kind -> number of objects."""
    return dict(Counter(resource.KIND for resource in resources.objects))


def accept_resources(conn: Connection, resources: ResourceSet, folder: str, now_ns: int) -> int:
    """Let a resource set take effect and return its generation; the same set again changes nothing.

    Args:
        conn: A write transaction.
        resources: Loaded and checked.
        folder: Where it was read from, for the row only.
        now_ns: Wall clock.
    """
    last = (
        conn.execute(select(_RESOURCES).order_by(_RESOURCES.c.generation.desc()).limit(1)).mappings().first()
    )
    if last is not None and last["digest"] == resources.digest:
        return int(last["generation"])
    generation = 1 if last is None else int(last["generation"]) + 1
    # Without the earlier objects at hand a change cannot be shown to be narrowing: it counts as widening.
    accepted_as = "bootstrap" if last is None else "widened"
    row = {"generation": generation, "digest": resources.digest, "accepted_ns": now_ns}
    conn.execute(insert(_RESOURCES).values(**row, accepted_as=accepted_as, folder=folder))
    for draft in _drafts(resources, generation, last["digest"] if last is not None else None, now_ns):
        outbox.put(conn, draft, now_ns=now_ns)
    return generation


def _drafts(resources: ResourceSet, generation: int, previous: str | None, now_ns: int) -> list[Draft]:
    common: dict[str, Any] = {"digest": resources.digest, "generation": generation}
    if previous is None:
        public = common | {"counts": counts(resources), "mode": "embedded", "custody": "not separated"}
        return [Draft("bootstrap", "estate", SOURCE, now_ns, public)]
    return [
        Draft("resource_set", "estate", SOURCE, now_ns, common | {"counts": counts(resources)}),
        Draft("widened_unapproved", "estate", SOURCE, now_ns, common | {"previous_digest": previous}),
    ]


def accept_bundle(conn: Connection, bundle: Bundle, trusted_by: str, now_ns: int) -> None:
    """Record the bundle that now decides; the same bundle again changes nothing."""
    last = conn.execute(select(_BUNDLES).order_by(_BUNDLES.c.sequence.desc()).limit(1)).mappings().first()
    if last is not None and last["bundle_digest"] == bundle.bundle_digest:
        return
    conn.execute(
        insert(_BUNDLES).values(
            sequence=1 if last is None else int(last["sequence"]) + 1,
            bundle_digest=bundle.bundle_digest,
            policy_digest=bundle.policy_digest,
            version=bundle.version,
            accepted_ns=now_ns,
            trusted_by=trusted_by,
        )
    )
    public = {
        "bundle_digest": bundle.bundle_digest,
        "policy_digest": bundle.policy_digest,
        "version": bundle.version,
        "previous_version": int(last["version"]) if last is not None else None,
        "trusted_by": trusted_by,
    }
    outbox.put(conn, Draft("bundle", "estate", SOURCE, now_ns, public), now_ns=now_ns)
