"""The spool: frames become durable here before anything that they record is answered.

One worker thread writes whatever waits and makes it durable with one fdatasync (group commit). Sequence
numbers are dense: a frame takes `next_seq` by being appended, and gives it back when it could not be made
durable. After a failure (disk full, read-only, device error) the waiting appends fail, the file is cut back
to what is durable, and the next append tries again on a fresh segment: a segment whose fdatasync failed is
never trusted further. Frames stay until the sequencer releases them.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
import time
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

from evidence import spoolfile
from evidence.durable import make_folder
from evidence.errors import RecordRefused, SpoolCorrupt, SpoolUnwritable
from evidence.limits import LIMITS, Limits
from evidence.logs import get_logger
from evidence.waiters import Waiting, answer

_FIX = "free disk space or repair the file system; the spool goes on by itself at the next append"
_log = get_logger(__name__)
_Waiter = tuple[bytes, Waiting]


class Spool:
    """One writer's spool in one folder.

    Args:
        folder: Parent folder of all spools.
        spool_id: Name of this spool, unique in the ledger; also the record source.
        limits: Segment and total sizes.
    """

    def __init__(self, folder: str | Path, spool_id: str, limits: Limits = LIMITS) -> None:
        if (
            not spool_id
            or not all(char.isalnum() or char in "-_." for char in spool_id)
            or spool_id[0] == "."
        ):
            raise ValueError("a spool id is made of letters, digits, '-', '_' and '.'")
        self.spool_id = spool_id
        self.folder = Path(folder) / spool_id
        self._limits = limits
        self._wake = threading.Condition()
        self._waiting: list[_Waiter] = []
        self._next = 0  # next number to give out
        self._durable = 0  # frames below this number are durable
        self._octets = 0  # octets in all segments
        self._lock_file: int | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._reader = spoolfile.Reader(self.folder)
        self._writer = spoolfile.Writer(self.folder, limits.spool_segment_bytes)
        self.failure: str | None = None  # why the last append failed; None when healthy

    # -- life ---------------------------------------------------------------------------------------------

    def start(self, at_least: int = 0) -> None:
        """Take the folder, cut a torn tail, start the worker.

        Args:
            at_least: Lowest number to go on with: one above the ledger's high water.

        Raises:
            SpoolUnwritable: The folder cannot be used, or another process has it.
            SpoolCorrupt: Acknowledged frames are damaged.
        """
        if self._thread is not None:
            return
        try:
            make_folder(self.folder)
            self._lock_file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._next, self._octets = spoolfile.recover(self.folder)
        except OSError as error:
            self._unlock()
            raise self._unwritable(error) from error
        except SpoolCorrupt:
            self._unlock()
            raise
        self._durable = self._next
        self.ensure_next(at_least)
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name=f"spool-{self.spool_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Make durable what waits, stop the worker, release the folder."""
        if self._thread is None:
            return
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        self._thread = None
        self._writer.close()
        self._unlock()

    def ensure_next(self, seq: int) -> None:
        """Never give out a number below `seq`: the ledger has them already.

        Raises:
            SpoolCorrupt: Frames that the ledger lacks would be left behind a gap.
        """
        with self._wake:
            if seq <= self._next:
                return
            if self._next != self._durable:
                raise SpoolCorrupt("the spool was used before its high water was known")
            # All that is here is in the ledger already (its high water is above): begin anew there.
            for first in spoolfile.segments(self.folder):
                spoolfile.path_of(self.folder, first).unlink()
            self._writer.close()
            self._next = self._durable = seq
            self._octets = 0

    # -- writing ------------------------------------------------------------------------------------------

    @property
    def next_seq(self) -> int:
        """The number that the next append must carry (as `source_seq` inside its record too)."""
        return self._next

    @property
    def durable(self) -> int:
        """Frames below this number are durable."""
        return self._durable

    @property
    def octets(self) -> int:
        """Octets that frames occupy on disk."""
        return self._octets

    async def append(self, seq: int, frame: bytes) -> None:
        """Make a frame durable. Take `next_seq`, encode and call this without awaiting in between.

        Args:
            seq: `next_seq`.
            frame: Octets to keep.

        Raises:
            SpoolUnwritable: It is not durable; nothing that it records may be answered.
            RuntimeError: Another number was due (a programmer's bug).
        """
        await self.submit(seq, frame)

    def submit(self, seq: int, frame: bytes) -> asyncio.Future[None]:
        """Queue a frame as `append` does; the future ends when it is durable, and may be ended earlier."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submit(seq, frame, future)
        return future

    def append_sync(self, seq: int, frame: bytes) -> None:
        """Do as `append` does, blocking the calling thread."""
        future: Future[None] = Future()
        self._submit(seq, frame, future)
        future.result()

    def _submit(self, seq: int, frame: bytes, future: Waiting) -> None:
        if len(frame) > spoolfile.BODY_OCTETS:
            raise RecordRefused(f"a frame is limited to {spoolfile.BODY_OCTETS} octets")
        with self._wake:
            if self._thread is None or self._stopping:
                raise SpoolUnwritable("the spool is not running", fix="start the control plane")
            if seq > self._next:  # the worker gave numbers back between `next_seq` and now
                raise SpoolUnwritable(f"spool {self.spool_id} is not writable: {self.failure}", fix=_FIX)
            if seq < self._next:
                raise RuntimeError(f"frame {seq} appended where {self._next} was due")
            if self._octets > self._limits.spool_bytes:
                raise SpoolUnwritable(
                    f"{self._octets} octets wait for the ledger, the limit is {self._limits.spool_bytes}",
                    fix="see why the sequencer does not advance",
                )
            self._next += 1
            self._waiting.append((frame, future))
            if len(self._waiting) == 1:
                self._wake.notify()

    # -- reading ------------------------------------------------------------------------------------------

    def read_from(self, seq: int, count: int = LIMITS.sequencer_batch) -> list[tuple[int, bytes]]:
        """Return up to `count` durable frames (number, octets) beginning with number `seq`; one reader only.

        They are fewer where they hold more octets than `sequencer_octets`: ask again for the rest.

        Raises:
            SpoolCorrupt: Such a frame should exist and does not.
        """
        return self._reader.read(seq, self._durable, count, self._limits.sequencer_octets)

    def release(self, seq: int) -> None:
        """Allow frames up to and including `seq` to go: whole segments are deleted, never the last one."""
        firsts = spoolfile.segments(self.folder)
        for first, following in pairwise(firsts):
            if following > seq + 1:
                break
            path = spoolfile.path_of(self.folder, first)
            size = path.stat().st_size
            path.unlink()
            with self._wake:
                self._octets -= size

    # -- worker -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        last = 0  # frames of the commit before
        while True:
            with self._wake:
                while not self._waiting and not self._stopping:
                    self._wake.wait()
                if not self._waiting:
                    return
            if last >= self._limits.spool_gather_from and not self._stopping:
                # Under load fewer, larger commits: each costs a device request and several thread switches.
                time.sleep(self._limits.spool_gather_us / 1e6)
            with self._wake:
                batch = self._waiting[: self._limits.spool_batch_frames]
                del self._waiting[: len(batch)]
                last = len(batch)
            try:
                self._commit([frame for frame, _ in batch])
            except OSError as error:
                self._fail(batch, error)
            except Exception as error:  # a bug: the worker must live on and nobody may be left waiting
                if self.failure is None:
                    _log.error("spool_worker_failed", spool=self.spool_id, error=type(error).__name__)
                self._fail(batch, OSError(errno.EIO, "not written"))
            else:
                self.failure = None
                answer([future for _, future in batch], None)

    def _commit(self, bodies: list[bytes]) -> None:
        """Make frames durable, then known as such."""
        octets = self._writer.write(self._durable, bodies)
        with self._wake:
            self._octets += octets
            self._durable += len(bodies)

    def _fail(self, batch: list[_Waiter], error: OSError) -> None:
        """Fail the batch and all that was numbered after it; give the numbers back."""
        self.failure = os.strerror(error.errno or 0)
        self._writer.abandon()
        with self._wake:
            batch = batch + self._waiting
            self._waiting = []
            self._next = self._durable
        answer([future for _, future in batch], self._unwritable(error))

    def _unlock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _unwritable(self, error: OSError) -> SpoolUnwritable:
        reason = os.strerror(error.errno or 0)
        return SpoolUnwritable(f"spool {self.spool_id} is not writable: {reason}", fix=_FIX)
