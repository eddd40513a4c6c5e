"""The database port: one writer thread, readers on snapshots.

All writes of a process pass through one thread, each group of them in one BEGIN IMMEDIATE transaction, each
write under a savepoint of its own: one that raises undoes only itself. A caller gets its answer after the
commit, never before. SQLite runs in WAL mode with synchronous=FULL, so a commit survives power loss.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool
from sqlmodel import SQLModel

from evidence.errors import StoreUnavailable
from evidence.limits import LIMITS

T = TypeVar("T")
_FIX = "look at free disk space, permissions and health of the database; the operation is safe to repeat"


@dataclass(slots=True)
class _Job:
    run: Callable[[Connection], Any]
    future: Future[Any] = field(default_factory=Future)
    result: Any = None


class Database:
    """Reads and writes of one database.

    Args:
        url_or_path: SQLAlchemy URL, or the path of an SQLite file.
    """

    def __init__(self, url_or_path: str | Path) -> None:
        text = str(url_or_path)
        self.url = text if "://" in text else f"sqlite:///{text}"
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = threading.Lock()  # no job may be queued behind the end: nobody would answer it
        self._writer: Engine | None = None
        self._reader: Engine | None = None

    def start(self) -> None:
        """Open the database and start the writer thread.

        Raises:
            StoreUnavailable: It cannot be opened.
        """
        if self._thread is not None:
            return
        self._writer = _engine(self.url, "BEGIN IMMEDIATE", size=1)
        self._reader = _engine(self.url, "BEGIN", size=LIMITS.readers)
        self._thread = threading.Thread(target=self._serve, name="ledger-writer", daemon=True)
        self._thread.start()
        try:
            self.write_sync(lambda conn: conn.exec_driver_sql("SELECT 1").scalar())
        except StoreUnavailable:
            self.stop()
            raise

    def stop(self) -> None:
        """Finish queued writes, stop the thread, close all connections."""
        with self._open:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._jobs.put(None)
        thread.join()
        for engine in (self._writer, self._reader):
            if engine is not None:
                engine.dispose()

    def create_all(self) -> None:
        """Create every table that is imported (tests; production runs migrations)."""
        self.write_sync(SQLModel.metadata.create_all)

    async def write(self, run: Callable[[Connection], T]) -> T:
        """Run a function inside a write transaction on the writer thread; return after the commit.

        Args:
            run: Gets the connection; must neither commit nor roll back nor wait for anything.

        Returns:
            What the function returned.

        Raises:
            StoreUnavailable: The database did not commit: nothing was written.
            Exception: Whatever the function raised: nothing of it was written.
        """
        return await asyncio.wrap_future(self._submit(run))

    def write_sync(self, run: Callable[[Connection], T]) -> T:
        """Do as `write` does, blocking the calling thread."""
        return self._submit(run).result()

    async def read(self, run: Callable[[Connection], T]) -> T:
        """Run a function on a reader connection (one snapshot) in a worker thread."""
        return await asyncio.to_thread(self.read_sync, run)

    def read_sync(self, run: Callable[[Connection], T]) -> T:
        """Run a function on a reader connection: everything it reads is one snapshot.

        Raises:
            StoreUnavailable: The database did not answer.
        """
        if self._reader is None:
            raise RuntimeError("the database is not started")
        try:
            with self._reader.connect() as conn, conn.begin():
                return run(conn)
        except IntegrityError:
            raise
        except (DBAPIError, PoolTimeout) as error:
            raise StoreUnavailable(_reason("read", error), fix=_FIX) from error

    def _submit(self, run: Callable[[Connection], T]) -> Future[T]:
        job = _Job(run)
        with self._open:
            if self._thread is None:
                raise RuntimeError("the database is not started")
            if threading.current_thread() is self._thread:
                raise RuntimeError("a write inside a write would wait for itself")
            self._jobs.put(job)
        return job.future

    def _serve(self) -> None:
        """Writer thread: take a job, add what comes meanwhile, commit, answer all."""
        running = True
        while running:
            job = self._jobs.get()
            if job is None:
                return
            running = self._group(job)

    def _group(self, first: _Job) -> bool:
        """Run one group of jobs in one transaction; return False when told to stop."""
        assert self._writer is not None
        done: list[_Job] = []
        running = True
        job: _Job | None = first
        deadline = time.monotonic() + LIMITS.write_group_ms / 1000
        try:
            with self._writer.connect() as conn, conn.begin():
                while job is not None:
                    if job.future.set_running_or_notify_cancel():
                        done.append(job)
                        if not _run(conn, job):
                            done.pop()
                    if time.monotonic() > deadline:
                        break
                    job, running = self._next()
        except Exception as error:
            # Whatever it was, nothing of this group is committed, and the thread must live on.
            unavailable = StoreUnavailable(_reason("commit", error), fix=_FIX)
            unavailable.__cause__ = error
            for failed in done or [first]:
                if not failed.future.done():
                    failed.future.set_exception(unavailable)
            return running
        for finished in done:
            finished.future.set_result(finished.result)
        return running

    def _next(self) -> tuple[_Job | None, bool]:
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return None, True
        return job, job is not None


def _run(conn: Connection, job: _Job) -> bool:
    """Run one job under a savepoint; return False when it raised and was answered."""
    conn.exec_driver_sql("SAVEPOINT job")
    try:
        job.result = job.run(conn)
    except Exception as error:
        try:
            conn.exec_driver_sql("ROLLBACK TO SAVEPOINT job")
            conn.exec_driver_sql("RELEASE SAVEPOINT job")
        except DBAPIError:  # a full disk has undone the whole transaction: nothing of the group stands
            raise error from None
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
            unavailable = StoreUnavailable(_reason("write", error), fix=_FIX)
            unavailable.__cause__ = error
            job.future.set_exception(unavailable)
        else:
            job.future.set_exception(error)
        return False
    conn.exec_driver_sql("RELEASE SAVEPOINT job")
    return True


def _reason(what: str, error: Exception) -> str:
    """Say what failed without statement or parameters."""
    cause = getattr(error, "orig", None) or error
    return f"the database did not {what}: {type(cause).__name__}: {str(cause)[:120]}"


def _engine(url: str, begin: str, *, size: int) -> Engine:
    """Return an engine whose transactions begin as told, on SQLite with our pragmas."""
    engine = sqlalchemy.create_engine(
        url, poolclass=QueuePool, pool_size=size, max_overflow=0, hide_parameters=True
    )
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", lambda conn: conn.exec_driver_sql(begin))
    return engine


def _prepare(connection: Any, _record: object) -> None:
    """Set SQLite's pragmas; page size first, it holds only before the file exists."""
    connection.isolation_level = None  # the driver must not begin transactions by itself
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={LIMITS.busy_timeout_ms}",
        "page_size=16384",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "cache_size=-16384",
        "temp_store=MEMORY",
        "secure_delete=ON",  # what is purged leaves the file; most builds do so anyway
        "journal_size_limit=67108864",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
