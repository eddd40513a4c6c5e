"""The sequencer: the only one that appends. Spools and outbox in, trees out, exactly once.

Records and the high water of their spool change in one transaction, and (spool, sequence) is unique: a crash
at any point repeats nothing and loses nothing. Frames are copied, never encoded again. Ticks (`ticks.py`) go
through the sequencer as well, so that nothing is appended between a drain and the heads that it leads to.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection

from evidence.append import append_frames, high_water
from evidence.checkpoint import Signer
from evidence.database import Database
from evidence.errors import EvidenceError
from evidence.limits import LIMITS
from evidence.logs import get_logger
from evidence.outbox import PREFIX
from evidence.spool import Spool
from evidence.store import driver_sql
from evidence.ticks import Mirror, TickLog
from evidence.view import Tick

if TYPE_CHECKING:
    from evidence.ledger import Ledger


_log = get_logger(__name__)


class Sequencer:
    """Appends what stands in spools and outbox. At most one per database.

    Args:
        db: Started database that holds a ledger (`Ledger.open`).
        ledger: Its read side.
        spools: Started spools; each is told the lowest number it may give out.
        mirror: Where checkpoints are published; None publishes nowhere.
        signer: Default signer of ticks.
        tick_seconds: Interval of `run`.
        clock: Nanoseconds UTC.
    """

    def __init__(
        self,
        db: Database,
        ledger: Ledger,
        spools: Iterable[Spool] = (),
        *,
        mirror: Mirror | None = None,
        signer: Signer | None = None,
        tick_seconds: float = LIMITS.tick_seconds,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._db = db
        self.spools = list(spools)
        self._ticks = TickLog(db, ledger, mirror)
        self._signer = signer
        self._tick_seconds = tick_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._mirror_checked = False
        self._failed: dict[Callable[[], object], EvidenceError] = {}  # what each step of `run` fails by
        self._high = db.read_sync(
            lambda conn: {spool.spool_id: high_water(conn, spool.spool_id) for spool in self.spools}
        )
        for spool in self.spools:
            spool.ensure_next(self._high[spool.spool_id] + 1)

    @property
    def failure(self) -> EvidenceError | None:
        """Why steps of `run` fail, all of them; one that succeeds hides no other one."""
        failed = {str(error): error for error in self._failed.copy().values()}
        if len(failed) < 2:
            return next(iter(failed.values()), None)
        fixes = dict.fromkeys(error.fix for error in failed.values() if error.fix)
        return EvidenceError("; ".join(failed), fix="; ".join(fixes))

    async def step(self) -> int:
        """Append one batch from each spool and the outbox; return the number of records."""
        return await asyncio.to_thread(self.step_sync)

    def step_sync(self) -> int:
        """Do as `step` does, blocking.

        Raises:
            LedgerRefused: A published checkpoint forbids appending.
            SpoolCorrupt: Frames are missing.
            StoreUnavailable: Nothing was appended.
        """
        with self._lock:
            if not self._mirror_checked:
                self._ticks.compare_mirror()
                self._mirror_checked = True
            batches = [
                (spool.spool_id, frames)
                for spool in self.spools
                if (frames := spool.read_from(self._high[spool.spool_id] + 1, LIMITS.sequencer_batch))
            ]
            waiting = self._db.read_sync(_outbox)
            if not batches and not waiting:
                return 0
            self._high |= self._db.write_sync(lambda conn: _append(conn, batches, waiting))
            for spool in self.spools:
                spool.release(self._high[spool.spool_id])
            return sum(len(frames) for _, frames in batches) + len(waiting)

    def drain_sync(self) -> int:
        """Append all that is there now; return the number of records."""
        total = 0
        while count := self.step_sync():
            total += count
        return total

    async def tick(self, now_ns: int | None = None, signer: Signer | None = None) -> Tick | None:
        """Commit, sign and publish the heads as they are; None when no head changed."""
        return await asyncio.to_thread(self.tick_sync, now_ns, signer)

    def tick_sync(self, now_ns: int | None = None, signer: Signer | None = None) -> Tick | None:
        """Do as `tick` does, blocking.

        1. The signer is the one that the ledger announced (the first one is announced here).
        2. What waits in spools and outbox is appended, so that an announced change comes before its use.
        3. A tick left unsigned by a crash or a sealed KMS is signed before another one begins.
        4. The heads that changed are committed; the tick is signed outside the transaction, kept, published.

        Args:
            now_ns: Time of the tick; None asks the clock.
            signer: Signer; None takes the default one.

        Raises:
            SignerChanged: Step 1; `Ledger.announce_key` first.
            LedgerRefused: A published checkpoint forbids it.
            Unavailable: Database, mirror or custody did not answer; the tick is completed by the next call.
        """
        signer = signer or self._signer
        if signer is None:
            raise RuntimeError("a tick needs a signer")
        now_ns = self._clock() if now_ns is None else now_ns
        self._ticks.check_signer(signer, now_ns)  # 1
        self.drain_sync()  # 2
        with self._lock:
            self._ticks.complete(signer)  # 3
            return self._ticks.commit(now_ns, signer)  # 4

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Append and tick until told to stop; then append what is there and tick once more."""
        stop = stop or asyncio.Event()
        due = time.monotonic()
        while not stop.is_set():
            moved = await self._guarded(self.step_sync)
            if self._signer is not None and time.monotonic() >= due:
                due = time.monotonic() + self._tick_seconds
                await self._guarded(self.tick_sync)
            if not moved:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LIMITS.sequencer_idle_ms / 1000):
                        await stop.wait()
        await self._guarded(self.drain_sync if self._signer is None else self.tick_sync)

    async def _guarded(self, run: Callable[[], object]) -> bool:
        """Run a step; its failure is kept for status and logged once, and the next round tries again."""
        try:
            moved = bool(await asyncio.to_thread(run))
        except Exception as error:
            # Custody's errors come from outside this package and mean "could not tell": their class is told.
            why = f"{type(error).__name__} while appending or signing"
            failed = error if isinstance(error, EvidenceError) else EvidenceError(why)
            before, self._failed[run] = self._failed.get(run), failed
            if str(before) != str(failed):
                _log.error(
                    "ledger_not_appending", error=type(error).__name__, reason=str(failed), fix=failed.fix
                )
            return False
        self._failed.pop(run, None)
        return moved


def _append(
    conn: Connection, batches: list[tuple[str, list[tuple[int, bytes]]]], waiting: list[Any]
) -> dict[str, int]:
    """Append batches of spools and outbox rows in one transaction; return the new high waters."""
    highs = {spool_id: append_frames(conn, spool_id, frames) for spool_id, frames in batches}
    by_source: dict[str, list[tuple[int, bytes]]] = {}
    for _, source, seq, frame in waiting:
        by_source.setdefault(source, []).append((seq, bytes(frame)))
    for source, frames in by_source.items():
        append_frames(conn, PREFIX + source, frames)
    if waiting:
        conn.exec_driver_sql(
            driver_sql(conn, "DELETE FROM outbox_entry WHERE id = ?"), [(row[0],) for row in waiting]
        )
    return highs


def _outbox(conn: Connection) -> list[Any]:
    """The first rows of the outbox, as many as one transaction takes: at least one where there is any."""
    sizes = conn.exec_driver_sql(driver_sql(conn, _SIZES), (LIMITS.sequencer_batch,)).all()
    held, last = 0, None
    for ident, octets in sizes:
        if held >= LIMITS.sequencer_octets:
            break
        held, last = held + octets, ident
    return [] if last is None else list(conn.exec_driver_sql(driver_sql(conn, _ENTRIES), (last,)))


_SIZES = "SELECT id, length(frame) FROM outbox_entry ORDER BY id LIMIT ?"
_ENTRIES = "SELECT id, source, source_seq, frame FROM outbox_entry WHERE id <= ? ORDER BY id"
