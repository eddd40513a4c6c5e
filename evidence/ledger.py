"""The ledger of one database: opening it, and its proof API.

Each method reads a snapshot of its own; whoever needs several answers that belong together (a package) takes
`ledger.read(lambda view: ...)` once. Only the `Sequencer` appends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.engine import Connection

from evidence import store
from evidence.checkpoint import Signer, VerifierKey, verifier_of
from evidence.database import Database
from evidence.errors import SignerChanged
from evidence.limits import LIMITS
from evidence.merkle import Frontier
from evidence.outbox import put
from evidence.scope import ESTATE, Head
from evidence.signing import KIND as SIGNING_KEY
from evidence.signing import key_change_draft, verify_key_change
from evidence.view import LedgerView, MapProof, StoredRecord, Tick

T = TypeVar("T")


class Ledger:
    """The ledger in a database.

    Args:
        db: Started database with tables.
    """

    def __init__(self, db: Database) -> None:
        self.db = db

    @classmethod
    def open(cls, db: Database, origin: str | None = None) -> Ledger:
        """Open the ledger, creating it (and the scope `estate`) at first use.

        Args:
            db: Started database with tables.
            origin: Origin of a new tick log; None makes a random one under `sluicegate.io/ledger/`.
        """
        ledger = cls(db)
        db.write_sync(lambda conn: _create(conn, origin))
        return ledger

    def read(self, run: Callable[[LedgerView], T]) -> T:
        """Run a function over one snapshot."""
        return self.db.read_sync(lambda conn: run(LedgerView(conn)))

    def scope_id(self, conn: Connection, name: str) -> str:
        """Return the id of a scope by name inside a write, creating it at first use."""
        return store.scope_id(conn, name)

    def ensure_scopes(self, *names: str) -> dict[str, str]:
        """Create scopes where needed and return name -> id of all (for callers that encode records)."""

        def ensure(conn: Connection) -> dict[str, str]:
            for name in names:
                store.scope_id(conn, name)
            return store.scopes(conn)

        return self.db.write_sync(ensure)

    def announce_key(self, old: Signer | None, new: Signer, now_ns: int) -> None:
        """Record a change of the signing key, signed by both keys; later checkpoints need the new one.

        Args:
            old: Signer of the announced key; None only for the first key of this ledger.
            new: Signer to use from now on.
            now_ns: Time, nanoseconds UTC.

        Raises:
            SignerChanged: `old` is not the key that this ledger announced.
        """
        current, origin, size = self.read(lambda view: (view.signing_key(), view.origin(), view.tick_count()))
        if current != (None if old is None else verifier_of(old)):
            raise SignerChanged("the old signer is not the key that this ledger announced")
        key, before = verifier_of(new), self.read(_keys_before)
        if key in before:
            raise SignerChanged("this key signed for this ledger before", fix="make a fresh signing key")
        if len(before) >= LIMITS.key_changes:
            raise SignerChanged(
                f"this ledger announced {LIMITS.key_changes} keys: no verifier takes more",
                fix="keep the key in use",
            )
        draft = key_change_draft(origin, old, new, size=size, now_ns=now_ns)

        def announce(conn: Connection) -> None:
            if LedgerView(conn).tick_count() != size:  # the statement must tell the size at which it stands
                raise SignerChanged("a tick was committed meanwhile", fix="announce the key again")
            put(conn, draft, now_ns=now_ns)
            conn.execute(_SET_KEY, {"name": key.name, "public": key.public})

        self.db.write_sync(announce)

    # -- proofs, each on a snapshot of its own ------------------------------------------------------------

    def origin(self) -> str:
        """Return the origin of the tick log."""
        return self.read(LedgerView.origin)

    def signing_key(self) -> VerifierKey | None:
        """Return the announced signing key; None before the first."""
        return self.read(LedgerView.signing_key)

    def head(self, scope_id: str, size: int | None = None) -> Head:
        """Return the head of a scope at a size; None is now."""
        return self.read(lambda view: view.head(scope_id, size))

    def leaves(self, scope_id: str, low: int, high: int) -> list[bytes]:
        """Return the leaf hashes [low, high) of a scope."""
        return self.read(lambda view: view.leaves(scope_id, low, high))

    def records(
        self, scope_id: str, low: int = 0, high: int | None = None, *, kind: str | None = None
    ) -> list[StoredRecord]:
        """Return records [low, high) of a scope, of one kind where asked."""
        return self.read(lambda view: list(view.records(scope_id, low, high, kind=kind)))

    def inclusion(self, scope_id: str, index: int, size: int) -> list[bytes]:
        """Return the audit path of a record."""
        return self.read(lambda view: view.inclusion(scope_id, index, size))

    def consistency(self, scope_id: str, old: int, new: int) -> list[bytes]:
        """Return the consistency proof between two sizes of a scope."""
        return self.read(lambda view: view.consistency(scope_id, old, new))

    def frontier(self, scope_id: str, size: int) -> Frontier:
        """Return the frontier of a scope at a size."""
        return self.read(lambda view: view.frontier(scope_id, size))

    def map_proof(self, tick: int, scope_id: str) -> MapProof:
        """Return a scope's head at a tick and its proof in the map."""
        return self.read(lambda view: view.map_proof(tick, scope_id))

    def tick_proof(self, tick: int, size: int) -> list[bytes]:
        """Return the audit path of a tick in the tick log of a size."""
        return self.read(lambda view: view.tick_proof(tick, size))

    def tick_consistency(self, old: int, new: int) -> list[bytes]:
        """Return the consistency proof between two sizes of the tick log."""
        return self.read(lambda view: view.tick_consistency(old, new))

    def ticks(self, low: int = 0, high: int | None = None) -> list[Tick]:
        """Return ticks [low, high)."""
        return self.read(lambda view: view.ticks(low, high))

    def checkpoint(self, tick: int) -> bytes:
        """Return the signed checkpoint whose last leaf is this tick."""
        return self.read(lambda view: view.checkpoint(tick))


def _create(conn: Connection, origin: str | None) -> None:
    if conn.execute(_LOG).first() is None:
        name = origin or f"sluicegate.io/ledger/{secrets.token_hex(8)}"
        conn.execute(_NEW_LOG, {"origin": name, "now": time.time_ns(), "frontier": b""})
    store.scope_id(conn, ESTATE)


def _keys_before(view: LedgerView) -> set[VerifierKey]:
    """Every key that this ledger announced: a key has one stretch of the log, never two."""
    records = view.records(view.find_scope(ESTATE), kind=SIGNING_KEY)
    return {verify_key_change(r.parts.public_fields(), view.origin()).new for r in records}


_LOG = text("SELECT id FROM ledger_log")
_NEW_LOG = text(
    "INSERT INTO ledger_log (id, origin, created_ns, size, frontier) VALUES (1, :origin, :now, 0, :frontier)"
)
_SET_KEY = text("UPDATE ledger_log SET key_name = :name, key_public = :public WHERE id = 1")
