"""Parts of the embedded system that must outlive what fails around them, and end when they are told to."""

import asyncio
import contextlib
import io

import pytest

from evidence.database import Database
from evidence.errors import StoreUnavailable
from evidence.records import Draft
from keymgmt.errors import CustodyUnavailable
from policy_engine import grants
from policy_engine.embedded import callers, chores, tasks
from policy_engine.embedded.begin import example_estate
from policy_engine.embedded.chores import Verdicts, write_trust
from policy_engine.embedded.state import StateFolder
from policy_engine.embedded.tasks import Tasks
from policy_engine.embedded.up import Says, Up
from policy_engine.errors import Unauthenticated
from policy_engine.resources.load import load
from policy_engine.resources.resource_set import restore


class Store:
    """`Database.write` that can be told not to commit."""

    away = False

    async def write(self, run):
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("the database did not commit: disk full", fix="free space")
        run(None)


class Batch:
    """`VerdictBatch` with one record an interval."""

    def __init__(self):
        self.flushed = []

    def flush(self, links, end_ns):
        assert ["l"] == links
        self.flushed.append(Draft("link_verdict", "estate", "gate", end_ns, {"end": str(end_ns)}))
        return self.flushed[-1:]


async def test_verdicts_that_a_full_disk_refused_are_written_with_the_next(monkeypatch):
    put = []
    monkeypatch.setattr(chores.outbox, "put", lambda _conn, draft, **_: put.append(draft))
    store, batch, now = Store(), Batch(), iter(range(1, 9))
    verdicts = Verdicts(store, batch, lambda: next(now))
    store.away = True
    await verdicts.flush(["l"])
    await verdicts.flush(["l"])
    assert [] == put
    store.away = False
    await verdicts.flush(["l"])
    assert batch.flushed == put
    await verdicts.flush(["l"])
    assert batch.flushed == put, "none twice"


async def test_a_stop_in_the_middle_of_a_flush_loses_no_interval():
    slow, written = asyncio.Event(), asyncio.Event()

    class Slow:
        async def write(self, _run):
            await slow.wait()
            written.set()

    flush = asyncio.create_task(Verdicts(Slow(), Batch(), lambda: 1).flush(["l"]))
    await asyncio.sleep(0.01)
    flush.cancel()
    await asyncio.gather(flush, return_exceptions=True)
    slow.set()
    await asyncio.wait_for(written.wait(), 5)


async def test_the_trust_file_waits_for_a_key_store_that_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(chores, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(chores, "TRUST_CHECK_SECONDS", 0.01)
    asked = []

    class Ledger:
        def signing_key(self):
            asked.append("ledger")
            if len(asked) == 1:
                raise StoreUnavailable("the database did not read")
            return None if len(asked) == 2 else object()

        def origin(self):
            return "origin"

    class WrittenError(Exception):
        """The end of the test."""

    def verifier(_key):
        asked.append("key")
        if asked.count("key") == 1:
            raise CustodyUnavailable("sealed")
        raise WrittenError

    monkeypatch.setattr(chores, "verifier_of", verifier)
    with pytest.raises(WrittenError):
        await asyncio.wait_for(write_trust(Ledger(), object(), {}, tmp_path / "trust.json"), 5)
    assert ["ledger", "ledger", "ledger", "key", "ledger", "key"] == asked


async def test_a_part_that_ends_by_an_exception_is_told_by_name():
    async def broken():
        raise KeyError("x")

    parts = Tasks()
    parts.spawn("gate", broken())
    assert "gate: KeyError" == await asyncio.wait_for(parts.failed, 5)


async def test_a_part_that_swallows_its_cancellation_holds_up_no_stop(monkeypatch):
    monkeypatch.setattr(tasks, "END_SECONDS", 0.05)
    kept, ended = asyncio.Event(), []

    async def deaf():
        while not kept.is_set():
            try:
                await kept.wait()
            except asyncio.CancelledError:
                continue

    async def good():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("good")

    parts = Tasks()
    parts.spawn("deaf", deaf())
    parts.spawn("good", good())
    parts.spawn("last", kept.wait())
    await asyncio.sleep(0)
    await asyncio.wait_for(parts.cancel(but="last"), 5)
    assert ["good"] == ended
    assert not parts.failed.done(), "what was cancelled has not failed"
    kept.set()
    await asyncio.wait_for(parts.join("last", 5), 5)


def test_a_start_that_fails_after_the_loop_began_ends_the_loop_too(tmp_path):
    """Its thread is not a daemon: left running, the process would never end."""
    order = []

    class Ends:
        def __init__(self, name):
            self.name = name

        def stop(self):
            order.append(self.name)

    up = Up(None, StateFolder.prepare(tmp_path / "s"), Says(io.StringIO()), allow_faults=False)
    up.loop, up.processes, up.bao, up.database = (
        Ends(name) for name in ("loop", "processes", "openbao", "database")
    )
    up.end()
    assert ["loop", "processes", "openbao", "database"] == order


@contextlib.contextmanager
def empty_database(folder):
    database = Database(folder / "t.db")
    database.start()
    database.create_all()
    try:
        yield database
    finally:
        database.stop()


def test_a_cluster_that_turned_path_tokens_off_accepts_none_of_the_old_ones(tmp_path):
    manifests = load(example_estate()).manifests()

    def how(conn, token, path_token):
        for manifest in manifests:
            if ("Cluster", "train-us") == (manifest["kind"], manifest["name"]):
                manifest["spec"]["identity"]["pathToken"] = path_token
        table = callers.identities(conn, restore(manifests), {}, 1_000)
        return table.authenticate("train-us", token, None, 1_000).how

    with empty_database(tmp_path) as database:
        token = database.write_sync(
            lambda conn: grants.issue_path_token(conn, "train-us", by="t", now_ns=1_000, days=1)
        ).token
        assert "path_token" == database.read_sync(lambda conn: how(conn, token, True))
        with pytest.raises(Unauthenticated):
            database.read_sync(lambda conn: how(conn, token, False))


async def test_a_committed_change_of_callers_is_in_force_at_the_next_look(tmp_path, monkeypatch):
    resources = load(example_estate())
    with empty_database(tmp_path) as database:
        held = callers.Callers(database, resources, {}, lambda: 1_000)
        token = database.write_sync(
            lambda conn: grants.issue_path_token(conn, "train-us", by="t", now_ns=1_000, days=1)
        ).token
        away = Store()
        away.away = True
        with monkeypatch.context() as patched:
            patched.setattr(database, "read", away.write)
            await held.refresh()
        with pytest.raises(Unauthenticated):
            held.table.authenticate("train-us", token, None, 1_000)
        await held.refresh()
        assert "path_token" == held.table.authenticate("train-us", token, None, 1_000).how


def test_a_first_token_stands_in_the_database_before_it_stands_in_a_file(tmp_path):
    """The other way round, a crash in between left a file that opens nothing and is never made again."""
    resources = load(example_estate())

    def issue(conn):
        return callers.first_tokens(conn, resources, tmp_path, 1_000)

    def crash(conn):
        issue(conn)
        raise KeyError("x")

    with empty_database(tmp_path) as database:
        with pytest.raises(KeyError):
            database.write_sync(crash)
        assert [] == list(tmp_path.glob("*token"))
        issued = database.write_sync(issue)
        assert tmp_path / "admin.token" in issued
        assert tmp_path / "train-us.path-token" in issued
        assert not [text for text in map(str, issued.values()) if text.strip("*")]
        assert [] == list(tmp_path.glob("*token"))
        for file in issued:
            file.touch()
        assert {} == database.write_sync(issue)
