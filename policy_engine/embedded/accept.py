"""Which declared state and which bundle take effect, and the record that says so.

The first resource set of a new state folder is accepted by a ``bootstrap`` record with its digest. A
later change is a ``resource_set`` record; where it widens what is allowed, embedded mode applies it and
says so with ``widened_unapproved`` (a production role would refuse it until two people approved), and with
a warning for as long as it is in force.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, insert, select

from evidence import outbox
from evidence.records import Draft
from policy_engine.resources.diff import diff
from policy_engine.resources.resource_set import ResourceSet, restore
from policy_engine.rules.bundle import Bundle
from policy_engine.store import AcceptedBundleRow, AcceptedResourcesRow

SOURCE: Final = "composition"
_LOOKED_AT: Final = 32  # newest widenings that are compared with what is in force
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
    newest = select(_RESOURCES).order_by(_RESOURCES.c.generation.desc()).limit(1)
    last = conn.execute(newest).mappings().first()
    if last is not None and last["digest"] == resources.digest:
        return int(last["generation"])
    generation = 1 if last is None else int(last["generation"]) + 1
    widened = [] if last is None else _widening(str(last["body"]), resources)
    accepted_as = "bootstrap" if last is None else ("widened" if widened else "change")
    row = {"generation": generation, "digest": resources.digest, "accepted_ns": now_ns, "folder": folder}
    conn.execute(insert(_RESOURCES).values(**row, accepted_as=accepted_as, body=_body(resources)))
    common: dict[str, Any] = {"digest": resources.digest, "generation": generation}
    total = {"counts": counts(resources)}
    if last is None:
        drafts = [("bootstrap", common | total | {"mode": "embedded", "custody": "not separated"})]
    else:
        drafts = [("resource_set", common | total)]
        if widened:
            told = {"previous_digest": last["digest"], "changes": widened[:200]}
            drafts.append(("widened_unapproved", common | told))
    for kind, public in drafts:
        outbox.put(conn, Draft(kind, "estate", SOURCE, now_ns, public), now_ns=now_ns)
    return generation


def _body(resources: ResourceSet) -> str:
    """The objects as one document that `restore` reads back."""
    return json.dumps(resources.manifests())


def _widening(body: str, resources: ResourceSet) -> list[str]:
    """What the change widens, one sentence each. Where the old set cannot be read, that is the sentence."""
    try:
        before = restore(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return ["the set before cannot be read by this release: everything counts as widened"]
    changes = diff(before, resources).widening
    return [f"{one.kind}/{one.name} {one.path}: {one.widening}"[:300] for one in changes]


def unapproved(conn: Connection, resources: ResourceSet) -> list[str]:
    """What is in force now although it was a widening that nobody approved, one sentence each.

    What was taken back since is not in force any more.

    Args:
        conn: A transaction.
        resources: What is in force.
    """
    generation = _RESOURCES.c.generation
    widened = select(generation).where(_RESOURCES.c.accepted_as == "widened")
    newest = conn.execute(widened.order_by(generation.desc()).limit(_LOOKED_AT)).scalars().all()
    before = select(_RESOURCES.c.body).where(generation.in_([one - 1 for one in newest]))
    bodies = conn.execute(before.order_by(generation)).scalars()
    return list(dict.fromkeys(said for body in bodies for said in _widening(str(body), resources)))


def warning(widened: Sequence[str]) -> list[str]:
    """A line of `sluicegate status` about `unapproved`; none where nothing is."""
    if not widened:
        return []
    many, more = len(widened), f" and {len(widened) - 1} more" if len(widened) > 1 else ""
    changes = "1 change that widens" if many == 1 else f"{many} changes that widen"
    took = f"{changes} what declared state allows took effect unapproved ({widened[0]}{more})"
    return [f"declared state: {took}: production needs approvals"]


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
