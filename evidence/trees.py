"""Trees in the database: appending leaves, and hashes of perfect subtrees for proofs.

Every eighth level of each tree is kept; what lies below is computed from at most 128 leaves, and leaves from
the stored records, each time they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.engine import Connection

from evidence import merkle
from evidence.errors import NotInLedger
from evidence.records import decode_frame
from evidence.scopemap import tick_leaf
from evidence.store import SEQ_BITS, driver_sql

TICK_LOG = 0  # scope number under which nodes of the tick log are kept
KEPT = frozenset(range(8, SEQ_BITS, 8))


def pack_frontier(frontier: merkle.Frontier) -> bytes:
    """Return the nodes of a frontier as one value; its size is stored beside it."""
    return b"".join(frontier.nodes)


def unpack_frontier(size: int, packed: bytes) -> merkle.Frontier:
    """Return the frontier that `pack_frontier` stored."""
    return merkle.Frontier(size, tuple(packed[at : at + 32] for at in range(0, len(packed), 32)))


def grow(
    conn: Connection, scope_no: int, frontier: merkle.Frontier, leaves: Iterable[bytes]
) -> merkle.Frontier:
    """Append leaf hashes to a tree, keep its completed nodes, and return the new frontier."""
    grown, kept = merkle.append(frontier, leaves, KEPT)
    if kept:
        conn.exec_driver_sql(
            driver_sql(conn, "INSERT INTO ledger_node (scope_no, level, position, hash) VALUES (?, ?, ?, ?)"),
            [(scope_no, level, position, node) for level, position, node in kept],
        )
    return grown


def record_id(scope_no: int, seq: int) -> int:
    """Return the id of a record: scopes one after the other, each in the order of its leaves."""
    return scope_no << SEQ_BITS | seq


class StoredTree:
    """The perfect subtrees of one stored tree: a `merkle.Subtree`.

    Args:
        conn: A reader connection; everything is read from its snapshot.
        scope_no: Number of the scope, or `TICK_LOG`.
    """

    def __init__(self, conn: Connection, scope_no: int) -> None:
        self._conn = conn
        self._scope_no = scope_no

    def __call__(self, low: int, high: int) -> bytes:
        """Return the root of leaves [low, high), a perfect and aligned range."""
        level = (high - low).bit_length() - 1
        kept = level // 8 * 8
        hashes = self._nodes(kept, low >> kept, high >> kept) if kept else self.leaves(low, high)
        if len(hashes) != (high - low) >> kept:
            raise NotInLedger(f"leaves {low} to {high} are not all in this ledger")
        return merkle.root(hashes)

    def leaves(self, low: int, high: int) -> list[bytes]:
        """Return leaf hashes, computed from what is stored."""
        if self._scope_no == TICK_LOG:
            rows = self._conn.exec_driver_sql(driver_sql(self._conn, _TICKS), (low, high))
            return [tick_leaf(bytes(map_root), tick) for tick, map_root in rows]
        span = (record_id(self._scope_no, low), record_id(self._scope_no, high))
        rows = self._conn.exec_driver_sql(driver_sql(self._conn, _FRAMES), span)
        return [decode_frame(bytes(frame)).leaf_hash() for (frame,) in rows]

    def _nodes(self, level: int, low: int, high: int) -> list[bytes]:
        rows = self._conn.exec_driver_sql(driver_sql(self._conn, _NODES), (self._scope_no, level, low, high))
        return [bytes(node) for (node,) in rows]


_TICKS = "SELECT tick, map_root FROM ledger_tick WHERE tick >= ? AND tick < ? ORDER BY tick"
_FRAMES = "SELECT frame FROM ledger_record WHERE id >= ? AND id < ? ORDER BY id"
_NODES = (
    "SELECT hash FROM ledger_node WHERE scope_no = ? AND level = ? AND position >= ? AND position < ?"
    " ORDER BY position"
)
