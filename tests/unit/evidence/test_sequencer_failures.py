"""The sequencer when one of its steps fails, when rows are missing, and how much one transaction takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from ledger_world import frame_of, note

from evidence import append
from evidence import sequencer as sequencing
from evidence.checkpoint import LocalSigner, verifier_of
from evidence.database import Database
from evidence.errors import EvidenceError, MirrorUnavailable, SignerChanged, SpoolCorrupt
from evidence.ledger import Ledger
from evidence.limits import LIMITS
from evidence.outbox import put
from evidence.sequencer import Sequencer


def put_notes(db: Database, count: int, source: str = "s", text: str = "x") -> None:
    db.write_sync(lambda conn: [put(conn, note(text=text, source=source)) for _ in range(count)])


def size(ledger: Ledger) -> int:
    return ledger.head(ledger.ensure_scopes()["acme"]).size


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.005)


class OddMirror:
    """Holds what it is given; answers something else once it is told to. Leaves out: storage."""

    def __init__(self) -> None:
        self.note: bytes | None = None
        self.odd = False

    def read(self) -> bytes | None:
        return b"no checkpoint" if self.odd else self.note

    def publish(self, note: bytes) -> None:
        self.note = note


async def test_ticks_that_fail_are_told_all_the_while_though_records_are_appended(
    db: Database, ledger: Ledger, signer: LocalSigner
) -> None:
    mirror, stop = OddMirror(), asyncio.Event()
    sequencer = Sequencer(db, ledger, mirror=mirror, signer=signer, tick_seconds=0.05)
    running = asyncio.create_task(sequencer.run(stop))
    await until(lambda: mirror.note is not None)
    assert None is sequencer.failure
    mirror.odd = True
    put_notes(db, 1)
    await until(lambda: sequencer.failure is not None)
    told = set()
    for _ in range(40):
        put_notes(db, 1)
        await asyncio.sleep(0.005)
        told.add(type(sequencer.failure).__name__)
    assert ({"CheckpointInvalid"}, True) == (told, size(ledger) > 1)
    mirror.odd = False
    await until(lambda: sequencer.failure is None)
    stop.set()
    await running


async def test_two_steps_that_fail_are_both_told(db: Database, ledger: Ledger) -> None:
    sequencer = Sequencer(db, ledger)

    def step() -> None:
        raise MirrorUnavailable("the mirror is away", fix="start it")

    def tick() -> None:
        raise ConnectionError("content")

    def same() -> None:
        raise MirrorUnavailable("the mirror is away", fix="start it")

    await sequencer._guarded(step)
    assert (MirrorUnavailable, "start it") == (type(sequencer.failure), sequencer.failure.fix)
    await sequencer._guarded(same)
    assert "the mirror is away" == str(sequencer.failure)
    await sequencer._guarded(tick)
    failure = sequencer.failure
    assert isinstance(failure, EvidenceError)
    assert ("the mirror is away; ConnectionError while appending or signing", "start it") == (
        str(failure),
        failure.fix,
    )


def test_a_row_missing_from_the_outbox_stops_it_and_what_is_behind_the_gap_is_kept(
    db: Database, ledger: Ledger
) -> None:
    put_notes(db, 3)
    db.write_sync(lambda conn: conn.exec_driver_sql("DELETE FROM outbox_entry WHERE source_seq = 1"))
    with pytest.raises(SpoolCorrupt, match="ends at -1|goes on at"):
        Sequencer(db, ledger).drain_sync()
    kept = db.read_sync(lambda conn: conn.exec_driver_sql("SELECT count(*) FROM outbox_entry").scalar())
    assert (0, 2) == (size(ledger), kept)


@pytest.mark.parametrize("missing", [[0], [1], [0, 1], [3]])
def test_frames_with_a_gap_are_not_appended(db: Database, ledger: Ledger, missing: list[int]) -> None:
    scope_id = ledger.ensure_scopes()["acme"]
    db.write_sync(lambda conn: append.append_frames(conn, "w", [(0, frame_of(scope_id, 0))]))
    frames = [(seq, frame_of(scope_id, seq)) for seq in range(1, 6) if seq - 1 not in missing]
    with pytest.raises(SpoolCorrupt, match="the ledger ends at 0"):
        db.write_sync(lambda conn: append.append_frames(conn, "w", frames))
    assert 1 == size(ledger)


def test_one_transaction_takes_a_bounded_number_of_octets_and_one_record_at_least(
    db: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(LIMITS, sequencer_octets=2_000)
    monkeypatch.setattr(sequencing, "LIMITS", limits)
    for octets in (900, 900, 900, 5_000, 5_000, 10):
        put_notes(db, 1, text="x" * octets)
    sequencer = Sequencer(db, ledger)
    assert [2, 2, 1, 1, 0] == [sequencer.step_sync() for _ in range(5)]
    found = ledger.records(ledger.ensure_scopes()["acme"])
    assert [900, 900, 900, 5_000, 5_000, 10] == [len(one.parts.public_fields()["text"]) for one in found]


def test_a_key_is_announced_at_the_size_that_it_names(
    db: Database, ledger: Ledger, signer: LocalSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick that comes between the statement and its record would make it tell another size."""
    sequencer, other = Sequencer(db, ledger), LocalSigner("next")
    sequencer.tick_sync(1, signer)
    put_notes(db, 1)
    real = db.write_sync

    def late(run):
        monkeypatch.undo()
        sequencer.tick_sync(2, signer)
        return real(run)

    monkeypatch.setattr(db, "write_sync", late)
    with pytest.raises(SignerChanged, match="meanwhile"):
        ledger.announce_key(signer, other, 3)
    assert verifier_of(signer) == ledger.signing_key()
    ledger.announce_key(signer, other, 4)
    assert verifier_of(other) == ledger.signing_key()
