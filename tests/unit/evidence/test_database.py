"""The database port: one writer, answers after the commit, errors that keep to themselves."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from evidence.database import Database
from evidence.errors import StoreUnavailable


@pytest.fixture
def plain(tmp_path: Path):
    database = Database(tmp_path / "plain.db")
    database.start()
    database.write_sync(lambda conn: conn.exec_driver_sql("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)"))
    yield database
    database.stop()


def insert(value: int, text: str = ""):
    return lambda conn: conn.exec_driver_sql("INSERT INTO t VALUES (?, ?)", (value, text)).rowcount


def values(database: Database) -> list[int]:
    return database.read_sync(
        lambda conn: [row[0] for row in conn.exec_driver_sql("SELECT a FROM t ORDER BY a")]
    )


def test_runs_with_the_settings_that_make_commits_durable(plain: Database):
    def pragmas(conn):
        names = ["journal_mode", "synchronous", "foreign_keys", "page_size", "busy_timeout"]
        return [conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert ["wal", 2, 1, 16384, 10_000] == plain.write_sync(pragmas)
    assert ["wal", 2, 1, 16384, 10_000] == plain.read_sync(pragmas)


async def test_writes_of_many_tasks_arrive_once_each(plain: Database):
    assert [1] * 200 == await asyncio.gather(*[plain.write(insert(number)) for number in range(200)])
    assert list(range(200)) == values(plain)


async def test_a_write_that_raises_undoes_only_itself(plain: Database):
    def half(conn):
        insert(100)(conn)
        raise KeyError("mine")

    results = await asyncio.gather(
        plain.write(insert(1)),
        plain.write(half),
        plain.write(insert(1)),
        plain.write(insert(2)),
        return_exceptions=True,
    )
    assert [1, KeyError, IntegrityError, 1] == [one if isinstance(one, int) else type(one) for one in results]
    assert [1, 2] == values(plain)


def test_the_answer_comes_after_the_commit(plain: Database):
    plain.write_sync(insert(1))
    other = sqlite3.connect(plain.url.removeprefix("sqlite:///"))
    assert [(1,)] == other.execute("SELECT a FROM t").fetchall()
    other.close()


def test_all_writes_run_on_one_thread_in_an_immediate_transaction(plain: Database):
    threads = {plain.write_sync(lambda conn: threading.get_ident()) for _ in range(3)}
    assert 1 == len(threads)
    assert threading.get_ident() not in threads
    other = sqlite3.connect(plain.url.removeprefix("sqlite:///"), timeout=0, check_same_thread=False)

    def locked_out(conn):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")

    plain.write_sync(locked_out)
    other.close()


def test_a_read_sees_one_snapshot(plain: Database):
    plain.write_sync(insert(1))

    def twice(conn):
        before = conn.exec_driver_sql("SELECT count(*) FROM t").scalar()
        plain.write_sync(insert(2))
        return before, conn.exec_driver_sql("SELECT count(*) FROM t").scalar()

    assert (1, 1) == plain.read_sync(twice)
    assert [1, 2] == values(plain)


def test_failures_of_the_database_are_could_not_tell_and_quote_no_values(plain: Database):
    for run in (plain.write_sync, plain.read_sync):
        with pytest.raises(StoreUnavailable) as caught:
            run(lambda conn: conn.exec_driver_sql("INSERT INTO nowhere VALUES (?)", ("CANARY",)))
        assert "CANARY" not in f"{caught.value}{caught.value.__cause__}"
        assert caught.value.fix


def test_a_full_disk_fails_the_write_and_the_next_one_works(plain: Database):
    def fill(conn):
        conn.exec_driver_sql("INSERT INTO t VALUES (?, ?)", (1, "x" * 1_000_000))

    pages = plain.write_sync(lambda conn: conn.exec_driver_sql("PRAGMA page_count").scalar())
    plain.write_sync(lambda conn: conn.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar())
    with pytest.raises(StoreUnavailable, match="full"):
        plain.write_sync(fill)
    plain.write_sync(lambda conn: conn.exec_driver_sql("PRAGMA max_page_count=1000000").scalar())
    plain.write_sync(fill)
    assert [1] == values(plain)


def test_a_write_inside_a_write_is_a_bug_not_a_deadlock(plain: Database):
    with pytest.raises(RuntimeError, match="wait for itself"):
        plain.write_sync(lambda conn: plain.write_sync(insert(1)))


async def test_a_cancelled_waiter_does_not_stop_the_writer(plain: Database):
    release = threading.Event()
    blocker = asyncio.create_task(plain.write(lambda conn: release.wait(5)))
    await asyncio.sleep(0.05)
    waiter = asyncio.create_task(plain.write(insert(1)))
    await asyncio.sleep(0.01)
    waiter.cancel()
    release.set()
    await blocker
    assert 1 == await plain.write(insert(2))
    assert 2 in values(plain)


def test_a_database_that_cannot_be_opened_says_so(tmp_path: Path):
    with pytest.raises(StoreUnavailable):
        Database(tmp_path / "no" / "such" / "folder.db").start()
    with pytest.raises(RuntimeError):
        Database(tmp_path / "x.db").read_sync(lambda conn: None)


def test_stop_finishes_what_is_queued_and_start_works_again(plain: Database):
    futures = [plain._submit(insert(number)) for number in range(50)]
    plain.stop()
    assert all(one.result() == 1 for one in futures)
    plain.start()
    assert list(range(50)) == values(plain)


def test_a_write_that_meets_the_stop_is_answered_or_refused_and_never_left_waiting(plain: Database):
    release, futures = threading.Event(), []
    futures.append(plain._submit(lambda conn: release.wait(5)))
    stopping = threading.Thread(target=plain.stop)
    stopping.start()
    while plain._thread is not None:
        time.sleep(0.001)
    with pytest.raises(RuntimeError, match="not started"):
        plain.write_sync(insert(1))  # the writer is still at work, and its end is queued
    release.set()
    stopping.join(5)
    assert futures[0].result(5)
    plain.start()
    assert [] == values(plain)
