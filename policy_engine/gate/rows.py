"""The gate's rows: posture and standing order per link, the order counter per end.

All functions take the connection of the caller's transaction: a permit is issued in the transaction
that locks its link's posture row.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, insert, select, update

from keymgmt.permit import PermitKind
from policy_engine.gate.judged import Judged
from policy_engine.gate.orders import Standing
from policy_engine.gate.posture import LinkPosture
from policy_engine.store import PermitOrderRow, PostureRow

_POSTURE = PostureRow.__table__  # type: ignore[attr-defined]
_ORDER = PermitOrderRow.__table__  # type: ignore[attr-defined]
# An agent that names more above our count lies: sequences end at 2**53, and it would soon be without orders.
# A database that lost half a year of one order a second is still followed.
_JUMP: Final = 2**24


def read(conn: Connection, link: str) -> Judged | None:
    """The stored row of one keyed link (only those have rows)."""
    row = conn.execute(select(_POSTURE).where(_POSTURE.c.link == link)).mappings().first()
    if row is None:
        return None
    posture = LinkPosture(
        "required",
        row["state"],
        row["posture"],
        row["reason"],
        row["since_ns"],
        row["fresh_until_ns"],
        row["generation"],
    )
    standing = Standing(
        row["standing"] == "closed",
        row["standing_reason"],
        row["standing_since_ns"],
        row["last_encrypted_ns"],
    )
    return Judged(posture, standing)


def write(conn: Connection, link: str, judged: Judged, now_ns: int, *, exists: bool) -> None:
    """Store one judgement."""
    posture, standing = judged.posture, judged.standing
    values = {
        "generation": posture.generation,
        "state": posture.state,
        "posture": posture.posture,
        "reason": posture.reason,
        "message": judged.message,
        "since_ns": posture.since_ns,
        "fresh_until_ns": posture.fresh_until_ns,
        "judged_ns": now_ns,
        "last_encrypted_ns": standing.last_encrypted_ns,
        "standing": "closed" if standing.closed else "open",
        "standing_reason": standing.reason,
        "standing_since_ns": standing.since_ns,
    }
    if exists:
        conn.execute(update(_POSTURE).where(_POSTURE.c.link == link).values(values))
    else:
        conn.execute(insert(_POSTURE).values(link=link, **values))


def next_order(
    conn: Connection, link: str, endpoint: str, kind: PermitKind, *, epoch: int, seen: tuple[int, int]
) -> tuple[int, PermitKind | None]:
    """Count one order up and return (its sequence, the kind before it).

    Args:
        conn: The transaction.
        link: Link.
        endpoint: Its end.
        kind: What is ordered now.
        epoch: Present epoch.
        seen: The highest (epoch, seq) that the agent names; the new order is above it where it can be true.
    """
    where = (_ORDER.c.link == link) & (_ORDER.c.endpoint == endpoint)
    row = conn.execute(select(_ORDER).where(where)).mappings().first()
    stored = row["seq"] if row is not None and row["epoch"] == epoch else 0
    named = seen[1] if seen[0] == epoch and seen[1] - stored <= _JUMP else 0
    seq = max(stored, named) + 1
    if row is None:
        conn.execute(
            insert(_ORDER).values(link=link, endpoint=endpoint, kind=str(kind), epoch=epoch, seq=seq)
        )
        return seq, None
    conn.execute(update(_ORDER).where(where).values(kind=str(kind), epoch=epoch, seq=seq))
    return seq, PermitKind(row["kind"])
