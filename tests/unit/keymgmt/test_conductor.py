"""The conductor over a real journal: it resumes anywhere, changes nothing when stale, leaves no secret behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from control_rig import Rig
from modelled_ends import SECOND, A, B

from keymgmt.errors import RotationRefused, StaleLease
from keymgmt.rotation import Rotation


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path, step_deadline_ns=15 * SECOND)
    yield made
    made.stop()


async def test_first_keying_then_rotation_on_demand(rig: Rig) -> None:
    first = await rig.keyed()
    assert ("complete", "first keying") == (first.end, first.reason)
    asked = await rig.conductor.rotate("l1", "operator anna")
    second = await rig.until_end()
    assert (asked, "complete", "asked for by operator anna") == (second.rotation, second.end, second.reason)
    status = await rig.conductor.status("l1")
    assert status.live is not None
    assert asked == status.live["rotation"]
    assert "ok" == status.why.check
    assert {A: 0, B: 0} == rig.world.lost


async def test_a_second_request_while_one_is_open_is_refused_with_the_next_command(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    with pytest.raises(RotationRefused) as refused:
        await rig.conductor.rotate("l1", "ben")
    assert "sluicegate links --why l1" == refused.value.fix
    with pytest.raises(RotationRefused):
        await rig.conductor.rotate("nowhere", "ben")


async def test_every_step_and_the_destruction_are_recorded_without_secrets(rig: Rig) -> None:
    await rig.keyed()
    records = rig.records()
    kinds = [kind for kind, _public in records]
    assert "lease" == kinds[0]
    assert "rotation_end" == kinds[-1]
    destroyed = next(public for kind, public in records if kind == "key_destroyed")
    assert (2, 1) == (destroyed["key_version"], destroyed["epoch"])
    steps = [public["step"] for kind, public in records if kind == "rotation_step"]
    assert (
        steps.index("destroy") < steps.index("select a") < steps.index("confirm") < steps.index("retire tx")
    )
    wrap = next(public for kind, public in records if kind == "rotation_step" and public["step"] == "wrap")
    assert 64 == len(wrap["ciphertext_digest"])
    assert "vault:v" not in repr(records)


async def test_the_journal_holds_no_ciphertext_once_the_version_is_destroyed(rig: Rig) -> None:
    await rig.keyed()
    tables = ("rotation", "operation", "keyed_link", "rotate_request")
    assert "vault:v" not in repr([rig.rows(f"SELECT * FROM {table}") for table in tables])  # noqa: S608


async def test_purged_ciphertexts_leave_the_database_file_too(rig: Rig) -> None:
    """A wrap and a snapshot of the key store together would open it: freed pages count."""
    await rig.keyed()
    assert rig.world.kms.wraps
    rig.database.stop()
    rig.database.start()
    octets = await asyncio.to_thread(Path(rig.database.url.removeprefix("sqlite:///")).read_bytes)
    assert b"vault:v2:" not in octets


async def test_a_look_reads_the_present_steps_operations_only_however_long_the_rotation(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    most = 0
    for _ in range(200):
        await rig.turn()
        loaded = await rig.conductor.journal.load("l1")
        if loaded.open is None:
            break
        most = max(most, len(loaded.operations))
        present = loaded.open.command_id("")
        assert all(op_id.startswith(present) for op_id in loaded.operations)
        pending = rig.rows("SELECT op_id FROM operation WHERE status = 'pending'")
        assert all(op_id.startswith(present) for (op_id,) in pending), "what was left is not owed any more"
    ((written,),) = rig.rows("SELECT count(*) FROM operation WHERE kind <> 'read'")
    assert most <= 2 < written


async def test_an_agent_away_keeps_a_rotation_from_starting_and_why_says_so(rig: Rig) -> None:
    await rig.keyed()
    rig.world.ends[A].up = False
    await rig.conductor.rotate("l1", "anna")
    await rig.turn()
    why = (await rig.conductor.status("l1")).why
    assert ("agent away", "start or repair agent l1-a") == (why.check, why.next)
    assert 2 == rig.world.kms.latest - 1, "no further version was minted"


async def test_a_key_store_away_is_named_and_nothing_is_installed(rig: Rig) -> None:
    await rig.keyed()
    rig.world.kms.up = False
    await rig.conductor.rotate("l1", "anna")
    for _ in range(12):
        await rig.turn()
    why = (await rig.conductor.status("l1")).why
    assert ("key store", "unseal or restart OpenBao") == (why.check, why.next)
    end = await rig.until_end()
    assert "not started" == end.end
    assert {A: 0, B: 0} == rig.world.lost


async def test_a_key_store_that_is_away_is_asked_twice_as_often_as_a_link_is_looked_at(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    rig.world.kms.up = False
    waits = []
    for _ in range(12):
        waits.append(await rig.conductor.reconcile("l1"))
        for side in (A, B):
            await rig.serve(side)
    assert rig.conductor._key_steps.away("l1")
    assert [500, 500] == waits[-2:]


async def test_a_key_store_that_was_away_is_not_named_while_an_agent_is_what_is_waited_for(rig: Rig) -> None:
    await rig.keyed()
    rig.world.kms.up = False
    await rig.conductor.rotate("l1", "anna")
    assert "not started" == (await rig.until_end()).end
    rig.world.kms.up = True
    await rig.conductor.rotate("l1", "anna")
    await rig.conductor.reconcile("l1")
    assert rig.conductor._key_steps.away("l1"), "it was not asked since"
    why = (await rig.conductor.status("l1")).why
    assert ("rotation in step survey", "waiting for read by l1-a, read by l1-b") == (why.check, why.detail)


async def test_an_order_of_a_step_that_was_left_is_given_to_nobody(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    for _ in range(40):
        await rig.conductor.reconcile("l1")
        if [("install",)] == [tuple(r) for r in rig.rows("SELECT step FROM rotation WHERE ended IS NULL")]:
            break
        await rig.turn()
    (order,) = await rig.conductor.journal.pending("l1-b", "00" * 16, 8)
    assert "install" == order.kind
    await rig.serve(A)
    rig.world.now += 16 * SECOND  # the step is late; b was away all the time
    await rig.conductor.reconcile("l1")
    owed = await rig.conductor.journal.pending("l1-b", "00" * 16, 8)
    assert order.op_id not in {operation.op_id for operation in owed}


async def test_a_dead_secy_is_keyed_anew_without_being_asked(rig: Rig) -> None:
    await rig.keyed()
    rig.world.died = True
    rig.world.ends[B].die()
    end = await rig.until_end()
    assert ("complete", "rekey: the SecY of end b began anew") == (end.end, end.reason)


async def test_a_key_of_age_is_rotated_by_itself(rig: Rig) -> None:
    await rig.keyed()
    await rig.turn()
    assert 1 == len(await rig.ended())
    rig.world.now += rig.link.profile.rotate_every_ns
    assert "key age: due" == (await rig.until_end()).reason


async def test_a_killed_conductor_is_followed_by_another_at_any_point(tmp_path: Path) -> None:
    """The conductor dies at its n-th journal write, before or after it; its successor ends lawfully.

    Before: what it did at the key store (a version it minted) is known to nobody.
    """
    writes = await _count_writes(tmp_path)
    for number in range(0, writes, 2):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        rig = Rig(folder, overlap_ns=SECOND // 2)
        try:
            await rig.keyed()
            await rig.conductor.rotate("l1", "anna")
            await _die_at(rig, number, before=number % 4 == 0)
            rig.world.now += 60 * SECOND
            rig.conductor = rig.make_conductor("second")
            assert await rig.conductor.lead()
            end = await _the_end(rig)
            assert end.end in {"complete", "rolled back", "not started"}, end
            for side in (A, B):
                assert 1 == len(rig.world.ends[side].tx) == len(rig.world.ends[side].rx)
            assert {A: 0, B: 0} == rig.world.lost
        finally:
            rig.stop()


async def _the_end(rig: Rig) -> Rotation:
    """The end of the rotation that was open when the conductor died, or that it had just written."""
    ended = await rig.ended()
    return ended[0] if len(ended) == 2 else await rig.until_end()


class _Killed(Exception):  # noqa: N818
    pass


async def _count_writes(tmp_path: Path) -> int:
    folder = tmp_path / "count"
    folder.mkdir()
    rig = Rig(folder, overlap_ns=SECOND // 2)
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    count = 0
    save = rig.conductor.journal.save

    async def counted(*args: Any) -> None:
        nonlocal count
        count += 1
        await save(*args)

    rig.conductor.journal.save = counted  # type: ignore[method-assign]
    await rig.until_end()
    rig.stop()
    return count


async def _die_at(rig: Rig, number: int, *, before: bool) -> None:
    left = number
    save = rig.conductor.journal.save

    async def mortal(*args: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 and before:
            raise _Killed
        await save(*args)
        if left < 0:
            raise _Killed

    rig.conductor.journal.save = mortal  # type: ignore[method-assign]
    with pytest.raises(_Killed):  # noqa: PT012
        for _ in range(600):
            await rig.turn()


async def test_a_stale_conductor_changes_nothing(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    await rig.turn()
    stale = rig.conductor
    rig.world.now += 11 * SECOND
    rig.conductor = rig.make_conductor("second")
    assert await rig.conductor.lead()
    before = rig.rows("SELECT rotation, step, state FROM rotation ORDER BY rotation")
    with pytest.raises(StaleLease):  # noqa: PT012
        for _ in range(4):
            await stale.reconcile("l1")
            rig.world.now += SECOND
    assert before == rig.rows("SELECT rotation, step, state FROM rotation ORDER BY rotation")
    assert "complete" == (await rig.until_end()).end


async def test_after_a_restore_of_the_database_the_token_rises_above_what_agents_saw(rig: Rig) -> None:
    await rig.keyed()
    rig.tokens = {
        A: (7, "a conductor that the database forgot"),
        B: (7, "a conductor that the database forgot"),
    }
    rig.world.ends[A].seq = rig.world.ends[B].seq = 10_000
    await rig.conductor.rotate("l1", "anna")
    end = await rig.until_end()
    assert "complete" == end.end
    assert rig.conductor.term is not None
    assert rig.conductor.term.token > 7
