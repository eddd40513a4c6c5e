"""The sequencer: exactly once through crashes, ticks that complete, and when it refuses to append."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import structlog
from ledger_world import ORIGIN, accepted_keys, frame_of, note

from evidence import merkle, scopemap
from evidence.checkpoint import Checkpoint, LocalSigner, open_checkpoint, sign_checkpoint, verifier_of
from evidence.database import Database
from evidence.errors import (
    FrameInvalid,
    LedgerBehind,
    LedgerForked,
    MirrorUnavailable,
    NotInLedger,
    SignerChanged,
    SpoolCorrupt,
    StoreUnavailable,
)
from evidence.ledger import Ledger
from evidence.outbox import put
from evidence.scope import ESTATE
from evidence.sequencer import Sequencer
from evidence.spool import Spool


class KeptMirror:
    """A mirror in memory; says when it is away. Leaves out: storage, authentication."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []
        self.away = False

    def read(self) -> bytes | None:
        if self.away:
            raise MirrorUnavailable("away")
        return self.notes[-1] if self.notes else None

    def publish(self, note: bytes) -> None:
        if self.away:
            raise MirrorUnavailable("away")
        self.notes.append(note)


@pytest.fixture
def spool(tmp_path: Path):
    made = Spool(tmp_path / "spool", "webhook-0")
    made.start()
    yield made
    made.stop()


def burst(spool: Spool, ledger: Ledger, count: int, scope: str = "acme") -> None:
    scope_id = ledger.ensure_scopes()[scope]
    for _ in range(count):
        spool.append_sync(spool.next_seq, frame_of(scope_id, spool.next_seq, f"n{spool.next_seq}"))


def texts(ledger: Ledger, scope: str = "acme") -> list[str]:
    scope_id = ledger.ensure_scopes()[scope]
    return [one.parts.public_fields()["text"] for one in ledger.records(scope_id)]


def test_frames_arrive_once_in_order_and_octet_by_octet(db, ledger, spool):
    burst(spool, ledger, 30)
    frames = spool.read_from(0)
    sequencer = Sequencer(db, ledger, [spool])
    assert 30 == sequencer.drain_sync()
    assert 0 == sequencer.step_sync()
    scope_id = ledger.ensure_scopes()["acme"]
    stored = db.read_sync(
        lambda conn: [
            bytes(r[0]) for r in conn.exec_driver_sql("SELECT frame FROM ledger_record ORDER BY id")
        ]
    )
    assert [frame for _, frame in frames] == stored
    assert merkle.root(ledger.leaves(scope_id, 0, 30)) == ledger.head(scope_id).root


def test_a_restart_repeats_nothing(db, ledger, spool):
    burst(spool, ledger, 5)
    Sequencer(db, ledger, [spool]).drain_sync()
    burst(spool, ledger, 5)
    Sequencer(db, ledger, [spool]).drain_sync()
    Sequencer(db, ledger, [spool]).drain_sync()
    assert [f"n{number}" for number in range(10)] == texts(ledger)


def test_a_crash_after_the_commit_and_before_the_release_repeats_nothing(db, ledger, spool):
    burst(spool, ledger, 5)
    sequencer = Sequencer(db, ledger, [spool])
    sequencer.drain_sync()
    sequencer._high["webhook-0"] = 1  # as if the commit had not been noticed
    burst(spool, ledger, 1)
    sequencer.drain_sync()
    assert [f"n{number}" for number in range(6)] == texts(ledger)


def test_a_failed_transaction_appends_nothing_and_the_next_step_does(db, ledger, spool, monkeypatch):
    burst(spool, ledger, 3)
    db.write_sync(lambda conn: put(conn, note(text="out")))
    sequencer = Sequencer(db, ledger, [spool])
    real = db.write_sync

    def fails(run):
        def then_fail(conn):
            run(conn)
            raise StoreUnavailable("gone")

        return real(then_fail)

    monkeypatch.setattr(db, "write_sync", fails)
    with pytest.raises(StoreUnavailable):
        sequencer.step_sync()
    monkeypatch.undo()
    assert [] == ledger.records(ledger.ensure_scopes()["acme"])
    assert 4 == sequencer.drain_sync()
    assert ["n0", "n1", "n2"] == [
        one.parts.header_fields() and f"n{one.parts.header_fields()['source_seq']}"
        for one in ledger.records(ledger.ensure_scopes()["acme"])
    ][:3]


def test_the_database_itself_refuses_a_second_copy(db, ledger, spool):
    burst(spool, ledger, 1)
    Sequencer(db, ledger, [spool]).drain_sync()
    with pytest.raises(Exception, match="UNIQUE constraint failed: ledger_record.spool_no"):
        db.write_sync(
            lambda conn: conn.exec_driver_sql(
                "INSERT INTO ledger_record SELECT id + 1, spool_no, spool_seq, kind, event_time, received_time, frame"
                " FROM ledger_record"
            )
        )


def test_frames_lost_between_ledger_and_spool_stop_it(db, ledger, spool, tmp_path):
    burst(spool, ledger, 3)
    Sequencer(db, ledger, [spool]).drain_sync()
    spool.ensure_next(7)
    burst(spool, ledger, 1)
    with pytest.raises(SpoolCorrupt):
        Sequencer(db, ledger, [spool]).step_sync()


def test_a_new_folder_under_an_old_name_goes_on_behind_the_high_water(db, ledger, spool, tmp_path):
    burst(spool, ledger, 3)
    Sequencer(db, ledger, [spool]).drain_sync()
    fresh = Spool(tmp_path / "other", "webhook-0")
    fresh.start()
    sequencer = Sequencer(db, ledger, [fresh])
    burst(fresh, ledger, 1)
    sequencer.drain_sync()
    assert ["n0", "n1", "n2", "n3"] == texts(ledger)
    fresh.stop()


def test_frames_that_are_no_records_stop_it_and_are_kept(db, ledger, spool):
    scope_id = ledger.ensure_scopes()["acme"]
    for frame, error in (
        (b"garbage", FrameInvalid),
        (frame_of(scope_id, 99), FrameInvalid),
        (frame_of("f" * 32, 0), NotInLedger),
    ):
        other = Spool(spool.folder.parent, f"s{error.__name__}{len(frame)}")
        other.start()
        other.append_sync(0, frame)
        with pytest.raises(error):
            Sequencer(db, ledger, [other]).step_sync()
        assert [(0, frame)] == other.read_from(0)
        other.stop()


def test_a_tick_proves_every_scope_and_a_quiet_tick_is_skipped(db, ledger, spool, signer):
    burst(spool, ledger, 3, "acme")
    sequencer = Sequencer(db, ledger, [spool], signer=signer)
    first = sequencer.tick_sync(1_000)
    assert sequencer.tick_sync(2_000) is None
    burst(spool, ledger, 300, "globex")
    second = sequencer.tick_sync(3_000)
    assert (0, 1_000, 1, 3_000) == (first.tick, first.time_ns, second.tick, second.time_ns)
    for tick in ledger.ticks():
        checkpoint = open_checkpoint(ledger.checkpoint(tick.tick), [verifier_of(signer)], ORIGIN)
        leaf = scopemap.tick_leaf(tick.map_root, tick.tick)
        merkle.verify_inclusion(
            leaf, tick.tick, checkpoint.size, ledger.tick_proof(tick.tick, checkpoint.size), checkpoint.root
        )
        for scope_id in [*ledger.ensure_scopes().values(), "f" * 32]:
            proof = ledger.map_proof(tick.tick, scope_id)
            scopemap.verify_map(scope_id, proof.head, proof.siblings, tick.map_root)
    merkle.verify_consistency(1, 2, first.root, second.root, ledger.tick_consistency(1, 2))
    sizes = [ledger.map_proof(tick, ledger.ensure_scopes()["globex"]).head.size for tick in (0, 1)]
    assert [0, 300] == sizes


def test_ticks_after_a_restart_equal_those_without_one(db, ledger, spool, signer):
    for number in range(4):
        burst(spool, ledger, 2, "acme" if number % 2 else "globex")
        tick = Sequencer(db, ledger, [spool], signer=signer).tick_sync(number)
        heads = db.read_sync(
            lambda conn, tick=tick: __import__("evidence.view").view.LedgerView(conn).heads_at(tick.tick)
        )
        assert scopemap.map_root(heads) == tick.map_root


class Sealed(LocalSigner):
    """A signer whose custody can be away."""

    away = False

    def sign(self, message: bytes) -> bytes:
        if self.away:
            raise ConnectionError("sealed")
        return super().sign(message)


def test_a_tick_left_unsigned_is_signed_before_another_begins(db, ledger, spool):
    signer, mirror = Sealed("s"), KeptMirror()
    sequencer = Sequencer(db, ledger, [spool], signer=signer, mirror=mirror)
    sequencer.tick_sync(1)
    burst(spool, ledger, 1)
    signer.away = True
    for _ in range(3):
        with pytest.raises(ConnectionError):
            sequencer.tick_sync(2)
    burst(spool, ledger, 1)
    assert 1 == sequencer.drain_sync(), "records are taken while custody is away"
    with pytest.raises(NotInLedger, match="not signed"):
        ledger.checkpoint(1)
    signer.away = False
    tick = Sequencer(db, ledger, [spool], signer=signer, mirror=mirror).tick_sync(3)
    assert 2 == tick.tick
    assert [1, 2, 3] == [open_checkpoint(one, [verifier_of(signer)]).size for one in mirror.notes]
    assert mirror.notes[1] == ledger.checkpoint(1)


def test_the_first_key_is_recorded_and_another_one_needs_an_announcement(db, ledger, signer):
    sequencer, other = Sequencer(db, ledger), LocalSigner("next")
    sequencer.tick_sync(1, signer)
    with pytest.raises(SignerChanged, match="announced"):
        sequencer.tick_sync(2, other)
    with pytest.raises(SignerChanged):
        ledger.announce_key(other, other, 3)
    with pytest.raises(SignerChanged):
        ledger.announce_key(None, other, 3)
    ledger.announce_key(signer, other, 3)
    with pytest.raises(SignerChanged):
        sequencer.tick_sync(4, signer)
    tick = sequencer.tick_sync(4, other)
    open_checkpoint(tick.note, [verifier_of(other)], ORIGIN)
    records = ledger.records(ledger.ensure_scopes()[ESTATE], kind="signing_key")
    history = [one.parts.public_fields() for one in records]
    assert [verifier_of(signer), verifier_of(other)] == accepted_keys(verifier_of(signer), history, ORIGIN)


def test_a_checkpoint_that_could_not_be_published_is_published_later(db, ledger, spool, signer):
    mirror = KeptMirror()
    sequencer = Sequencer(db, ledger, [spool], signer=signer, mirror=mirror)
    sequencer.tick_sync(1)
    publish, mirror.publish = mirror.publish, fail_to_publish
    burst(spool, ledger, 1)
    with pytest.raises(MirrorUnavailable):
        sequencer.tick_sync(2)
    mirror.publish = publish
    assert sequencer.tick_sync(3) is None, "no head changed"
    assert ledger.checkpoint(1) == mirror.notes[-1]
    mirror.notes.pop()
    Sequencer(db, ledger, [spool], signer=signer, mirror=mirror).tick_sync(4)
    assert ledger.checkpoint(1) == mirror.notes[-1]


def fail_to_publish(note: bytes) -> None:
    raise MirrorUnavailable("away")


def published(size: int, origin: str = ORIGIN, root: bytes = bytes(32)) -> KeptMirror:
    mirror = KeptMirror()
    mirror.notes.append(sign_checkpoint(Checkpoint(origin, size, root), LocalSigner("any")))
    return mirror


@pytest.mark.parametrize(
    ("mirror", "error"),
    [(published(9), LedgerBehind), (published(1), LedgerForked), (published(0, "other"), LedgerForked)],
    ids=["ahead", "another root", "another log"],
)
def test_it_refuses_to_append_when_a_published_checkpoint_says_otherwise(
    db, ledger, spool, signer, mirror, error
):
    burst(spool, ledger, 2)
    Sequencer(db, ledger, [spool], signer=signer).tick_sync(1)
    burst(spool, ledger, 2)
    sequencer = Sequencer(db, ledger, [spool], signer=signer, mirror=mirror)
    for run in (sequencer.step_sync, sequencer.tick_sync):
        with pytest.raises(error) as caught:
            run()
    assert caught.value.fix.endswith("put the newest copy back")
    assert 2 == len(texts(ledger))
    assert 2 == len(spool.read_from(2))


def test_it_does_not_append_while_it_cannot_tell(db, ledger, spool):
    mirror = KeptMirror()
    mirror.away = True
    burst(spool, ledger, 1)
    sequencer = Sequencer(db, ledger, [spool], mirror=mirror)
    with pytest.raises(MirrorUnavailable):
        sequencer.step_sync()
    mirror.away = False
    assert 1 == sequencer.step_sync()


def test_a_database_restored_from_before_a_published_tick_refuses(db, ledger, spool, signer, tmp_path):
    mirror = KeptMirror()
    sequencer = Sequencer(db, ledger, [spool], signer=signer, mirror=mirror)
    burst(spool, ledger, 1)
    sequencer.tick_sync(1)
    backup = tmp_path / "backup.db"
    db.read_sync(lambda conn: conn.exec_driver_sql("SELECT 1").scalar())
    import sqlite3

    source, target = sqlite3.connect(tmp_path / "evidence.db"), sqlite3.connect(backup)
    source.backup(target)
    source.close()
    target.close()
    burst(spool, ledger, 1)
    sequencer.tick_sync(2)
    restored = Database(backup)
    restored.start()
    with pytest.raises(LedgerBehind):
        Sequencer(restored, Ledger.open(restored), mirror=mirror).step_sync()
    restored.stop()


async def test_it_runs_by_itself_ticks_and_finishes_what_is_there(db, ledger, spool, signer):
    stop = asyncio.Event()
    sequencer = Sequencer(db, ledger, [spool], signer=signer, tick_seconds=0.1)
    running = asyncio.create_task(sequencer.run(stop))
    scope_id = ledger.ensure_scopes()["acme"]
    for _ in range(40):
        await spool.append(spool.next_seq, frame_of(scope_id, spool.next_seq, f"n{spool.next_seq}"))
        await asyncio.sleep(0.01)
    stop.set()
    await running
    assert [f"n{number}" for number in range(40)] == texts(ledger)
    last = ledger.ticks()[-1]
    assert last.tick >= 2
    assert 40 == ledger.map_proof(last.tick, scope_id).head.size


async def test_a_failure_is_shown_and_gone_after_repair(db, ledger, spool):
    mirror, stop = KeptMirror(), asyncio.Event()
    mirror.away = True
    sequencer = Sequencer(db, ledger, [spool], mirror=mirror)
    running = asyncio.create_task(sequencer.run(stop))
    burst(spool, ledger, 2)
    await asyncio.sleep(0.2)
    assert isinstance(sequencer.failure, MirrorUnavailable)
    mirror.away = False
    await asyncio.sleep(0.3)
    assert sequencer.failure is None
    assert ["n0", "n1"] == texts(ledger)
    stop.set()
    await running


CHILD = """
    import asyncio, os, sys, time
    from evidence.database import Database
    from evidence.ledger import Ledger
    from evidence.sequencer import Sequencer
    from evidence.records import Draft, encode
    from evidence.spool import Spool

    async def main(folder, sequencing):
        db = Database(folder + "/evidence.db"); db.start()
        ledger = Ledger.open(db); ids = ledger.ensure_scopes("acme", "globex")
        spool = Spool(folder + "/spool", "webhook-0"); spool.start()
        sequencer = Sequencer(db, ledger, [spool])
        if sequencing:
            asyncio.create_task(sequencer.run())

        async def caller(number):
            for turn in range(100_000):
                text, seq = f"{os.getpid()}-{number}-{turn}", spool.next_seq
                scope = "acme" if turn % 3 else "globex"
                draft = Draft("decision", scope, "webhook-0", None, {"decision_id": text})
                frame = encode(draft, scope_id=ids[scope], source_seq=seq, boot_id="b",
                               received_time_ns=time.time_ns(), salts=os.urandom(48)).frame
                await spool.append(seq, frame)
                os.write(1, (text + "\\n").encode())  # acknowledged

        await asyncio.gather(*[caller(number) for number in range(16)])

    asyncio.run(main(sys.argv[1], sys.argv[2] == "yes"))
"""


@pytest.mark.parametrize("sequencing", ["yes", "no"])
def test_kill_9_in_a_burst_loses_nothing_acknowledged_and_repeats_nothing(db, tmp_path, sequencing):
    """A real process, killed three times at no particular moment; each start goes on from what it finds."""
    db.stop()
    acknowledged: set[str] = set()
    for round_number in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), sequencing], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        first = b"".join(child.stdout.readline() for _ in range(40 + 7 * round_number))
        assert first.endswith(b"\n"), "the child did not go on"
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read()
        child.wait()
        lines = (first + rest).decode().split("\n")
        acknowledged |= {line for line in lines[:-1] if line}
    db.start()
    ledger = Ledger.open(db)
    spool = Spool(tmp_path / "spool", "webhook-0")
    spool.start()
    Sequencer(db, ledger, [spool]).drain_sync()
    spool.stop()
    found: list[str] = []
    for scope_id in ledger.ensure_scopes().values():
        records = ledger.records(scope_id)
        assert merkle.root([one.parts.leaf_hash() for one in records]) == ledger.head(scope_id).root
        found += [one.parts.public_fields()["decision_id"] for one in records]
    assert len(acknowledged) > 100
    assert acknowledged <= set(found)
    assert len(found) == len(set(found)), "nothing twice"
    assert len(found) - len(acknowledged) <= 3 * 16 + 3, "at most what each burst had in flight"


async def test_a_step_that_goes_on_failing_is_logged_once_though_others_succeed(db, ledger, spool, signer):
    def sealed(_message: bytes) -> bytes:
        raise ConnectionError("content")

    stop = asyncio.Event()
    signer.sign = sealed
    sequencer = Sequencer(db, ledger, [spool], signer=signer, tick_seconds=0.02)
    with structlog.testing.capture_logs() as logged:
        running = asyncio.create_task(sequencer.run(stop))
        for _ in range(4):
            burst(spool, ledger, 1)
            await asyncio.sleep(0.06)
        stop.set()
        await running
    assert [("ledger_not_appending", "ConnectionError while appending or signing")] == [
        (one["event"], one["reason"]) for one in logged
    ]
    assert "content" not in str(logged)
    assert "ConnectionError while appending or signing" == str(sequencer.failure)
