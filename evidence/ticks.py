"""Ticks: committing the heads of all scopes, signing and publishing the checkpoint of the tick log.

A tick is committed first and signed outside the transaction: a sealed KMS holds up checkpoints, never
records. It is completed before another one begins, so at most one is unsigned. A published checkpoint that is
ahead of this database, or differs from it, forbids appending (ledger.md section 3): the database was
restored, or two of them run under one origin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import text
from sqlalchemy.engine import Connection

from evidence.append import append_tick
from evidence.checkpoint import (
    Checkpoint,
    Signer,
    parse_checkpoint,
    parse_note,
    sign_checkpoint,
    verifier_of,
)
from evidence.database import Database
from evidence.errors import LedgerBehind, LedgerForked, SignerChanged
from evidence.scopemap import ScopeMap
from evidence.view import LedgerView, Tick

if TYPE_CHECKING:
    from evidence.ledger import Ledger


class Mirror(Protocol):
    """Where checkpoints are published outside this database (OpenBao KV in production)."""

    def read(self) -> bytes | None:
        """Return the last published note; None when there never was one.

        Raises:
            MirrorUnavailable: Could not tell.
        """

    def publish(self, note: bytes) -> None:
        """Keep a note as the last published one.

        Raises:
            MirrorUnavailable: It may not have been kept.
        """


class TickLog:
    """The writing side of the tick log; one thread at a time.

    Args:
        db: Started database that holds a ledger.
        ledger: Its read side.
        mirror: Where checkpoints are published; None publishes nowhere.
    """

    def __init__(self, db: Database, ledger: Ledger, mirror: Mirror | None) -> None:
        self._db = db
        self._ledger = ledger
        self._mirror = mirror
        self._map: ScopeMap | None = None  # as of the last tick
        self._published: bytes | None = None  # the note that the mirror is known to hold

    def check_signer(self, signer: Signer, now_ns: int) -> None:
        """Announce the first signer of a ledger; refuse any that was not announced.

        Raises:
            SignerChanged: Another key was announced.
        """
        announced = self._ledger.signing_key()
        if announced is None:
            self._ledger.announce_key(None, signer, now_ns)
        elif verifier_of(signer) != announced:
            raise SignerChanged(
                "this signing key is not the one that the ledger announced",
                fix="announce the change, signed by the old and the new key (Ledger.announce_key)",
            )

    def commit(self, now_ns: int, signer: Signer) -> Tick | None:
        """Commit the heads that changed, then sign, keep and publish; None when no head changed.

        Raises:
            LedgerRefused: The mirror forbids it; the tick stays unsigned.
            Unavailable: Database, mirror or custody did not answer; `complete` goes on from there.
        """
        if self._map is None:
            self._map = self._ledger.read(_map_of_last_tick)
        scope_map, self._map = self._map, None  # lost when the transaction fails: rebuilt from the database
        tick = self._db.write_sync(lambda conn: append_tick(conn, scope_map, now_ns))
        self._map = scope_map
        return None if tick is None else self._sign(tick, signer)

    def complete(self, signer: Signer) -> None:
        """Sign or publish the last tick where a crash, a sealed KMS or an absent mirror left it."""
        last = self._ledger.read(lambda view: view.ticks(view.tick_count() - 1))
        if last and last[0].note is None:
            self._sign(last[0], signer)
        elif last and self._mirror is not None and last[0].note != self._published:
            self.compare_mirror()
            self._publish(last[0].note)

    def compare_mirror(self) -> None:
        """Refuse when the published checkpoint is not a prefix of this database.

        Its signature is not asked: a forged one could only stop us, and whoever writes there can do that.

        Raises:
            LedgerBehind: It is ahead.
            LedgerForked: It is of another log or another history.
            CheckpointInvalid: It is no checkpoint.
            MirrorUnavailable: Could not tell.
        """
        note = self._published = None if self._mirror is None else self._mirror.read()
        if note is None:
            return
        published = parse_checkpoint(parse_note(note)[0])
        origin, size = self._ledger.read(lambda view: (view.origin(), view.tick_count()))
        if published.origin != origin:
            raise LedgerForked("the published checkpoint is of another log", fix=_FIX_RESTORE)
        if published.size > size:
            raise LedgerBehind(
                f"tick {published.size - 1} was published, this database ends at {size - 1}", fix=_FIX_RESTORE
            )
        if self._ledger.read(lambda view: view.tick_root(published.size)) != published.root:
            raise LedgerForked(
                f"the published checkpoint of size {published.size} has another root", fix=_FIX_RESTORE
            )

    def _sign(self, tick: Tick, signer: Signer) -> Tick:
        self.compare_mirror()
        note = sign_checkpoint(Checkpoint(self._ledger.origin(), tick.tick + 1, tick.root), signer)
        self._db.write_sync(lambda conn: _keep_note(conn, tick.tick, note))
        self._publish(note)
        return replace(tick, note=note)

    def _publish(self, note: bytes | None) -> None:
        if self._mirror is not None and note is not None and note != self._published:
            self._mirror.publish(note)
            self._published = note


def _map_of_last_tick(view: LedgerView) -> ScopeMap:
    scope_map = ScopeMap()
    scope_map.update(view.heads_at(view.tick_count() - 1))
    return scope_map


def _keep_note(conn: Connection, tick: int, note: bytes) -> None:
    conn.execute(_KEEP_NOTE, {"note": note, "tick": tick})


_FIX_RESTORE = "the database is older than what was published, or another one runs: put the newest copy back"
_KEEP_NOTE = text("UPDATE ledger_tick SET note = :note WHERE tick = :tick")
