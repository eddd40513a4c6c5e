"""Appending inside one write transaction: records to scope trees, heads to the tick log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import text
from sqlalchemy.engine import Connection

from evidence.errors import FrameInvalid, NotInLedger, SpoolCorrupt
from evidence.records import decode_frame
from evidence.scope import Head
from evidence.scopemap import ScopeMap, tick_leaf
from evidence.store import driver_sql
from evidence.trees import TICK_LOG, grow, pack_frontier, record_id, unpack_frontier
from evidence.view import Tick


def high_water(conn: Connection, spool_id: str) -> int:
    """Return the last sequence number of a spool that is in the ledger, -1 for none."""
    found = conn.execute(_HIGH_WATER, {"spool": spool_id}).first()
    return -1 if found is None else int(found.high_water)


def append_frames(conn: Connection, spool_id: str, frames: Sequence[tuple[int, bytes]]) -> int:
    """Append the frames of one spool that are not in the ledger yet, and advance its high water.

    Args:
        conn: Connection in a write transaction.
        spool_id: Which spool or outbox source.
        frames: (sequence number, frame), ascending without gaps.

    Returns:
        The new high water.

    Raises:
        SpoolCorrupt: A number is missing between the ledger and these frames.
        FrameInvalid: A frame does not decode, or belongs to another number.
        NotInLedger: A frame names a scope that does not exist.
    """
    spool_no, high = _spool(conn, spool_id)
    fresh = [frame for frame in frames if frame[0] > high]
    if not fresh:
        return high
    if [seq for seq, _ in fresh] != list(range(high + 1, high + 1 + len(fresh))):
        raise SpoolCorrupt(
            f"spool {spool_id}: the ledger ends at {high}, the spool goes on at {fresh[0][0]}",
            fix="put the missing segment of the spool back from a copy of the state folder",
        )
    by_scope: dict[str, list[tuple[bytes, tuple[Any, ...]]]] = {}
    for seq, frame in fresh:
        scope_id, leaf, row = _take_apart(spool_no, seq, frame)
        by_scope.setdefault(scope_id, []).append((leaf, row))
    rows: list[tuple[Any, ...]] = []
    for scope_id in sorted(by_scope):
        rows += _append_scope(conn, scope_id, by_scope[scope_id])
    conn.exec_driver_sql(driver_sql(conn, _INSERT_RECORD), rows)
    high = fresh[-1][0]
    conn.execute(_ADVANCE, {"no": spool_no, "high": high})
    return high


def append_tick(conn: Connection, scope_map: ScopeMap, now_ns: int) -> Tick | None:
    """Commit all heads that changed since the last tick.

    Args:
        conn: Connection in a write transaction.
        scope_map: The map as of the last tick; it is changed, so throw it away when the transaction fails.
        now_ns: Time of the tick, nanoseconds UTC.

    Returns:
        The new, unsigned tick; None when no head changed.
    """
    changed = [
        (row.no, str(row.id), Head(row.size, unpack_frontier(row.size, bytes(row.frontier)).root()))
        for row in conn.execute(_CHANGED)
    ]
    if not changed:
        return None
    scope_map.update({scope_id: head for _, scope_id, head in changed})
    log: Any = conn.execute(_LOG).one()
    tick, map_root = int(log.size), scope_map.root()
    before = unpack_frontier(tick, bytes(log.frontier))
    after = grow(conn, TICK_LOG, before, [tick_leaf(map_root, tick)])
    conn.execute(_NEW_TICK, {"tick": tick, "now": now_ns, "map_root": map_root, "root": after.root()})
    conn.exec_driver_sql(
        driver_sql(conn, _NEW_HEAD), [(no, tick, head.size, head.root) for no, _, head in changed]
    )
    conn.execute(_GROW_LOG, {"size": after.size, "frontier": pack_frontier(after)})
    return Tick(tick, now_ns, map_root, after.root(), None)


def _take_apart(spool_no: int, seq: int, frame: bytes) -> tuple[str, bytes, tuple[Any, ...]]:
    """Return scope id, leaf hash and the row (without its id) of a frame."""
    parts = decode_frame(frame)
    try:
        header = orjson.loads(parts.header)
        if header["source_seq"] != str(seq):
            raise FrameInvalid(f"frame {seq} holds the record of another number")
        event_time = header.get("event_time")
        row = (
            spool_no,
            seq,
            header["kind"],
            None if event_time is None else int(event_time),
            int(header["received_time"]),
            frame,
        )
        return header["scope"], parts.leaf_hash(), row
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FrameInvalid(f"frame {seq} has no usable header") from None


def _append_scope(
    conn: Connection, scope_id: str, records: list[tuple[bytes, tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    """Grow the tree of one scope; return the complete rows of its records."""
    found: Any = conn.exec_driver_sql(driver_sql(conn, _SCOPE), (scope_id,)).first()
    if found is None:
        raise NotInLedger("a frame names a scope that does not exist", fix="restore the scopes first")
    before = unpack_frontier(found.size, bytes(found.frontier))
    after = grow(conn, found.no, before, [leaf for leaf, _ in records])
    conn.exec_driver_sql(driver_sql(conn, _GROW_SCOPE), (after.size, pack_frontier(after), found.no))
    first = record_id(found.no, before.size)
    return [(first + at, *row) for at, (_, row) in enumerate(records)]


def _spool(conn: Connection, spool_id: str) -> tuple[int, int]:
    found = conn.execute(_HIGH_WATER, {"spool": spool_id}).first()
    if found is None:
        conn.execute(_NEW_SPOOL, {"spool": spool_id})
        found = conn.execute(_HIGH_WATER, {"spool": spool_id}).one()
    return int(found.no), int(found.high_water)


_HIGH_WATER = text("SELECT no, high_water FROM ledger_spool WHERE spool_id = :spool")
_NEW_SPOOL = text("INSERT INTO ledger_spool (spool_id, high_water) VALUES (:spool, -1)")
_ADVANCE = text("UPDATE ledger_spool SET high_water = :high WHERE no = :no")
_SCOPE = "SELECT no, size, frontier FROM ledger_scope WHERE id = ?"
_GROW_SCOPE = "UPDATE ledger_scope SET size = ?, frontier = ? WHERE no = ?"
_INSERT_RECORD = (
    "INSERT INTO ledger_record (id, spool_no, spool_seq, kind, event_time, received_time, frame)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_CHANGED = text(
    "SELECT s.no, s.id, s.size, s.frontier FROM ledger_scope s WHERE s.size >"
    " coalesce((SELECT h.size FROM ledger_tick_head h WHERE h.scope_no = s.no"
    " ORDER BY h.tick DESC LIMIT 1), 0) ORDER BY s.no"
)
_LOG = text("SELECT size, frontier FROM ledger_log")
_NEW_TICK = text(
    "INSERT INTO ledger_tick (tick, time_ns, map_root, root) VALUES (:tick, :now, :map_root, :root)"
)
_NEW_HEAD = "INSERT INTO ledger_tick_head (scope_no, tick, size, root) VALUES (?, ?, ?, ?)"
_GROW_LOG = text("UPDATE ledger_log SET size = :size, frontier = :frontier WHERE id = 1")
