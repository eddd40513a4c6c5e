"""The read side of the ledger on one snapshot: heads, leaves, proofs, ticks, checkpoints.

Everything that a package carries comes from one `LedgerView`, so that records, proofs and checkpoints belong
together however much is appended meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Connection

from evidence import merkle
from evidence.checkpoint import VerifierKey
from evidence.errors import NotInLedger
from evidence.records import RecordParts, decode_frame
from evidence.scope import EMPTY_HEAD, Head
from evidence.scopemap import ScopeMap
from evidence.store import driver_sql, find_scope, scopes
from evidence.trees import TICK_LOG, StoredTree, record_id, unpack_frontier


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record at its place: scope id, leaf index, stored octets."""

    scope_id: str
    seq: int
    kind: str
    parts: RecordParts


@dataclass(frozen=True, slots=True)
class Tick:
    """A leaf of the tick log. `root` is that of the log with this tick as its last leaf."""

    tick: int
    time_ns: int
    map_root: bytes
    root: bytes
    note: bytes | None  # signed checkpoint of size tick + 1; None until signed


@dataclass(frozen=True, slots=True)
class MapProof:
    """A scope's head at a tick, and its 256 siblings in the map."""

    tick: int
    head: Head
    siblings: tuple[bytes, ...]


class LedgerView:
    """Reads one snapshot.

    Args:
        conn: A reader connection inside a transaction (`Database.read`).
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def scopes(self) -> dict[str, str]:
        """Return all scopes, name -> id."""
        return scopes(self._conn)

    def find_scope(self, name: str) -> str:
        """Return the id of a scope by name.

        Raises:
            NotInLedger: No such scope.
        """
        return find_scope(self._conn, name)

    def origin(self) -> str:
        """Return the origin of the tick log."""
        return str(self._one("SELECT origin FROM ledger_log").origin)

    def signing_key(self) -> VerifierKey | None:
        """Return the announced signing key; None before the first."""
        row = self._one("SELECT key_name, key_public FROM ledger_log")
        return None if row.key_name is None else VerifierKey(row.key_name, bytes(row.key_public))

    def size(self, scope_id: str) -> int:
        """Return the number of records in a scope."""
        return int(self._scope(scope_id).size)

    def head(self, scope_id: str, size: int | None = None) -> Head:
        """Return the head of a scope's tree at a size; None is now.

        Raises:
            NotInLedger: No such scope or size.
        """
        row = self._scope(scope_id)
        if size is None or size == row.size:
            return Head(row.size, unpack_frontier(row.size, bytes(row.frontier)).root())
        return Head(size, self.frontier(scope_id, size).root())

    def frontier(self, scope_id: str, size: int) -> merkle.Frontier:
        """Return the frontier of a scope's tree at a size."""
        return merkle.frontier_at(size, self._tree(scope_id, size))

    def leaves(self, scope_id: str, low: int, high: int) -> list[bytes]:
        """Return the leaf hashes [low, high), computed from the stored records."""
        return self._tree(scope_id, high).leaves(low, high)

    def records(
        self, scope_id: str, low: int = 0, high: int | None = None, *, kind: str | None = None
    ) -> Iterator[StoredRecord]:
        """Yield records [low, high) of a scope in order, of one kind where asked."""
        row = self._scope(scope_id)
        span = record_id(row.no, low), record_id(row.no, row.size if high is None else min(high, row.size))
        statement, values = (_RECORDS, span) if kind is None else (_RECORDS_OF_KIND, (*span, kind))
        rows = self._conn.exec_driver_sql(driver_sql(self._conn, statement), values)
        for identity, found, frame in rows:
            yield StoredRecord(scope_id, identity - record_id(row.no, 0), found, decode_frame(bytes(frame)))

    def inclusion(self, scope_id: str, index: int, size: int) -> list[bytes]:
        """Return the RFC 6962 audit path of a record."""
        return merkle.inclusion_proof(index, size, self._tree(scope_id, size))

    def consistency(self, scope_id: str, old: int, new: int) -> list[bytes]:
        """Return the RFC 6962 consistency proof between two sizes of a scope."""
        return merkle.consistency_proof(old, new, self._tree(scope_id, new))

    def ticks(self, low: int = 0, high: int | None = None) -> list[Tick]:
        """Return ticks [low, high) in order."""
        limit = self.tick_count() if high is None else high
        rows = self._conn.exec_driver_sql(driver_sql(self._conn, _TICKS), (low, limit))
        return [_tick(row) for row in rows]

    def tick(self, tick: int) -> Tick:
        """Return one tick.

        Raises:
            NotInLedger: No such tick.
        """
        found = self.ticks(tick, tick + 1)
        if not found:
            raise NotInLedger(f"no tick {tick} in this ledger")
        return found[0]

    def tick_count(self) -> int:
        """Return the size of the tick log."""
        return int(self._one("SELECT size FROM ledger_log").size)

    def checkpoint(self, tick: int) -> bytes:
        """Return the signed note of the checkpoint whose last leaf is this tick.

        Raises:
            NotInLedger: No such tick, or it is not signed yet.
        """
        note = self.tick(tick).note
        if note is None:
            raise NotInLedger(f"tick {tick} is not signed yet", fix="wait for the signing key's custody")
        return note

    def heads_at(self, tick: int) -> dict[str, Head]:
        """Return the heads of all scopes with records, by scope id, as of a tick."""
        rows = self._conn.exec_driver_sql(driver_sql(self._conn, _HEADS), (tick,))
        return {str(identity): Head(size, bytes(root)) for identity, size, root in rows}

    def map_proof(self, tick: int, scope_id: str) -> MapProof:
        """Return the head of a scope at a tick with its proof; a scope without records has `EMPTY_HEAD`."""
        self.tick(tick)
        heads = self.heads_at(tick)
        scope_map = ScopeMap()
        scope_map.update(heads)
        return MapProof(tick, heads.get(scope_id, EMPTY_HEAD), tuple(scope_map.proof(scope_id)))

    def tick_proof(self, tick: int, size: int) -> list[bytes]:
        """Return the audit path of a tick in the tick log of a size."""
        return merkle.inclusion_proof(tick, size, self._tick_tree(size))

    def tick_consistency(self, old: int, new: int) -> list[bytes]:
        """Return the consistency proof between two sizes of the tick log."""
        return merkle.consistency_proof(old, new, self._tick_tree(new))

    def tick_root(self, size: int) -> bytes:
        """Return the root of the tick log at a size."""
        return merkle.frontier_at(size, self._tick_tree(size)).root()

    def _tick_tree(self, size: int) -> StoredTree:
        if not 0 <= size <= self.tick_count():
            raise NotInLedger(f"the tick log has {self.tick_count()} ticks, {size} were asked for")
        return StoredTree(self._conn, TICK_LOG)

    def _tree(self, scope_id: str, size: int) -> StoredTree:
        row = self._scope(scope_id)
        if not 0 <= size <= row.size:
            raise NotInLedger(f"the scope has {row.size} records, {size} were asked for")
        return StoredTree(self._conn, row.no)

    def _scope(self, scope_id: str) -> Any:
        statement = driver_sql(self._conn, "SELECT no, size, frontier FROM ledger_scope WHERE id = ?")
        row = self._conn.exec_driver_sql(statement, (scope_id,)).first()
        if row is None:
            raise NotInLedger("no such scope in this ledger")
        return row

    def _one(self, statement: str) -> Any:
        row = self._conn.exec_driver_sql(statement).first()
        if row is None:
            raise NotInLedger("this database holds no ledger yet", fix="open it once with Ledger.open")
        return row


def _tick(row: Any) -> Tick:
    note = None if row.note is None else bytes(row.note)
    return Tick(row.tick, row.time_ns, bytes(row.map_root), bytes(row.root), note)


_RECORDS = "SELECT id, kind, frame FROM ledger_record WHERE id >= ? AND id < ? ORDER BY id"
_RECORDS_OF_KIND = (
    "SELECT id, kind, frame FROM ledger_record WHERE id >= ? AND id < ? AND kind = ? ORDER BY id"
)
_TICKS = (
    "SELECT tick, time_ns, map_root, root, note FROM ledger_tick WHERE tick >= ? AND tick < ? ORDER BY tick"
)
_HEADS = (
    "SELECT s.id, h.size, h.root FROM ledger_tick_head h JOIN ledger_scope s ON s.no = h.scope_no"
    " JOIN (SELECT scope_no, max(tick) AS tick FROM ledger_tick_head WHERE tick <= ? GROUP BY scope_no) l"
    " ON l.scope_no = h.scope_no AND l.tick = h.tick ORDER BY s.id"
)
