"""Two real conductors on one database: the one that was paused past its lease changes nothing when it resumes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from control_rig import Rig
from modelled_ends import SECOND, A, B

from keymgmt import conductor_rules as rules
from keymgmt.agents.fence import Fence, Fenced, Polls
from keymgmt.agents.state import StateFolder
from keymgmt.conductor import Conductor
from keymgmt.errors import RotationRefused, StaleLease
from keymgmt.journal_rows import OpEntry, Save
from keymgmt.lease import Lease, Term
from keymgmt.operations import Ack, AckStatus, Operation, OpKind
from keymgmt.rotation import begin

TABLES = ("rotation", "operation", "keyed_link", "rotate_request", "outbox_entry", "conductor_lease")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path, overlap_ns=SECOND // 2, total_deadline_ns=60 * SECOND)
    yield made
    made.stop()


def everything(rig: Rig) -> list[Any]:
    return [rig.rows(f"SELECT * FROM {table}") for table in TABLES]  # noqa: S608


class Pause:
    """Stops a conductor before its n-th call of one kind, as SIGSTOP would, until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()

    def journal(self, conductor: Conductor, number: int) -> None:
        save, left = conductor.journal.save, [number]

        async def paused(*args: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                self.reached.set()
                await asyncio.to_thread(self.go.wait)
            await save(*args)

        conductor.journal.save = paused  # type: ignore[method-assign]

    def custody(self, conductor: Conductor, kind: str) -> None:
        call = conductor._key_steps.call

        def paused(link: str, command: Any) -> dict[str, Any]:
            if command.kind == kind and not self.reached.is_set():
                self.reached.set()
                self.go.wait()
            return call(link, command)

        conductor._key_steps.call = paused  # type: ignore[method-assign]


async def pause_and_succeed(rig: Rig, pause: Pause, stale: Conductor) -> None:
    """The first conductor stops somewhere; the second one takes over and ends; then the first resumes."""

    async def conduct() -> None:
        for _ in range(4000):
            await stale.reconcile("l1")
            await asyncio.sleep(0.003)

    first = asyncio.create_task(conduct())
    for _ in range(400):
        if pause.reached.is_set():
            break
        for side in (A, B):
            await rig.serve(side)
        rig.world.now += SECOND // 4
        await asyncio.sleep(0.005)
    assert pause.reached.is_set()
    rig.world.now += 11 * SECOND
    rig.conductor = rig.make_conductor("second")
    assert await rig.conductor.lead()
    await rig.until_end()
    before, dead = everything(rig), set(rig.world.kms.destroyed)
    pause.go.set()
    with pytest.raises(StaleLease):
        await asyncio.wait_for(first, 10)
    assert before == everything(rig)
    assert dead <= rig.world.kms.destroyed


@pytest.mark.parametrize("point", ["save 2", "save 6", "save 12", "save 16", "mint", "wrap", "destroy"])
async def test_paused_anywhere_and_resumed_it_changes_nothing(rig: Rig, point: str) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    pause, stale = Pause(), rig.conductor
    kind, _, number = point.partition(" ")
    if kind == "save":
        pause.journal(stale, int(number))
    else:
        pause.custody(stale, kind)
    await pause_and_succeed(rig, pause, stale)
    await rig.conductor.rotate("l1", "ben")
    assert "complete" == (await rig.until_end()).end, "what it did at the key store aborted nothing live"
    assert {A: 0, B: 0} == rig.world.lost


async def test_a_mint_of_a_stale_conductor_between_mint_and_wrap_aborts_at_worst(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    wrapped = rig.keys.wrapped

    def after_a_stale_mint(link: str, associated_data: bytes) -> Any:
        rig.world.kms.mint()
        return wrapped(link, associated_data)

    rig.keys.wrapped = after_a_stale_mint  # type: ignore[method-assign]
    end = await rig.until_end()
    assert ("rolled back", True) == (end.end, "another version" in end.why)
    rig.keys.wrapped = wrapped  # type: ignore[method-assign]
    await rig.conductor.rotate("l1", "anna")
    assert "complete" == (await rig.until_end()).end
    assert {A: 0, B: 0} == rig.world.lost


# --- what the hub hands out ---------------------------------------------------------------------------------


async def test_operations_of_a_superseded_token_are_not_handed_out_before_they_are_adopted(rig: Rig) -> None:
    await rig.conductor.lead()
    await rig.conductor.reconcile("l1")
    assert 1 == len(await rig.conductor.journal.pending("l1-a", "00" * 16, 8))
    rig.world.now += 11 * SECOND
    lease = Lease(rig.database, holder="second", ttl_ns=SECOND, clock=lambda: rig.world.now)
    term = await lease.take()
    assert term is not None
    assert [] == await rig.conductor.journal.pending("l1-a", "00" * 16, 8)
    await rig.conductor.journal.adopt(term)
    (operation,) = await rig.conductor.journal.pending("l1-a", "00" * 16, 8)
    assert (term.token, term.holder) == (operation.token, operation.holder)


async def test_an_adoption_that_failed_is_made_up_for(rig: Rig) -> None:
    """The lease was taken, then the database was away: the operations must not stay behind."""
    await rig.conductor.lead()
    await rig.conductor.reconcile("l1")
    rig.world.now += 11 * SECOND
    second = rig.make_conductor("second")
    adopt = second.journal.adopt

    async def away(_term: Term) -> int:
        raise RotationRefused("the database did not answer")

    second.journal.adopt = away  # type: ignore[method-assign]
    with pytest.raises(RotationRefused):
        await second._lead_once()
    second.journal.adopt = adopt  # type: ignore[method-assign]
    await second._lead_once()
    await second._stop()
    (operation,) = await second.journal.pending("l1-a", "00" * 16, 8)
    assert 2 == operation.token


# --- refusals by an agent's fence ---------------------------------------------------------------------------


def op(**changes: Any) -> Operation:
    fields: dict[str, Any] = {
        "op_id": "o1",
        "link": "l1",
        "kind": OpKind.READ,
        "token": 5,
        "holder": "h",
        "op_seq": 7,
        "poll_nonce": "00" * 16,
        "time_to_act_ms": 1000,
    }
    return Operation(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ({"token": 4}, 5),
        ({"holder": "x"}, 5),
        ({"op_seq": 7}, 7),
        ({"op_seq": 9, "poll_nonce": "11" * 16}, 7),
    ],
)
def test_what_the_agents_own_fence_refuses_the_conductor_understands(
    tmp_path: Path, changes: dict[str, Any], last: int
) -> None:
    polls, fence = Polls(), Fence(StateFolder(tmp_path / "state"), "l1")
    polls.sent("00" * 16, 0)
    fence.admit(op(), polls, 0, "boot")
    with pytest.raises(Fenced) as refused:
        fence.admit(op(op_id="o2", **changes), polls, 0, "boot")
    why = f"{refused.value.code}: {refused.value}"
    entry = OpEntry("o2", "l1", "l1-a", "a", "read", {}, "refused", refused.value.known, why)
    assert rules.fenced_off(entry, Term("conductor", 5, "h", 0))
    assert last == rules.known(entry)


async def test_an_expired_operation_is_given_again_and_fails_nothing(rig: Rig) -> None:
    await rig.keyed()
    run = rig.world.ends[A].run
    expired: set[str] = set()

    def slow(doc: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        if doc["op_id"] not in expired:
            expired.add(doc["op_id"])
            return "refused", {"last": rig.world.ends[A].seq}, "expired"
        return run(doc)

    rig.world.ends[A].run = slow  # type: ignore[method-assign]
    await rig.conductor.rotate("l1", "anna")
    assert "complete" == (await rig.until_end()).end


async def test_an_order_that_is_given_again_wakes_its_agent(rig: Rig) -> None:
    await rig.conductor.lead()
    await rig.conductor.reconcile("l1")
    (operation,) = await rig.conductor.journal.pending("l1-a", "00" * 16, 8)
    expired = {"code": "expired", "detail": "its time to act has passed"}
    ack = Ack(operation.op_id, operation.op_seq, operation.token, AckStatus.REFUSED, "boot", {}, expired)
    await rig.conductor.journal.acknowledge("l1-a", [ack], rig.world.now)
    for agent in ("agent:l1-a", "agent:l1-b"):
        rig.bell.clear(agent)
    await rig.conductor.reconcile("l1")
    (again,) = await rig.conductor.journal.pending("l1-a", "00" * 16, 8)
    assert (operation.op_id, True) == (again.op_id, again.op_seq > operation.op_seq)
    assert [True, False] == [await rig.bell.wait(agent, 0.01) for agent in ("agent:l1-a", "agent:l1-b")]


async def test_a_refusal_by_a_lower_token_than_ours_raises_nothing(rig: Rig) -> None:
    """The fence was raised on another link meanwhile: what this agent reported is below us already."""
    await rig.keyed()
    run, refusals = rig.world.ends[A].run, iter([True])
    rig.world.ends[A].run = lambda doc: (  # type: ignore[method-assign]
        ("refused", {"last": 0}, "stale_token") if next(refusals, False) else run(doc)
    )
    await rig.conductor.rotate("l1", "anna")
    assert "complete" == (await rig.until_end()).end
    assert rig.conductor.term is not None
    assert 1 == rig.conductor.term.token


async def test_an_order_of_a_step_that_was_left_is_never_given_again(rig: Rig) -> None:
    await rig.keyed()
    for end in rig.world.ends.values():
        run = end.run
        end.run = lambda doc, run=run, end=end: (  # type: ignore[method-assign,misc]
            ("refused", {"last": end.seq}, "expired") if doc["kind"] == "select_tx" else run(doc)
        )
    await rig.conductor.rotate("l1", "anna")
    reopened: list[str] = []
    reopen = rig.conductor.journal.reopen

    async def noted(term: Term, op_ids: list[str]) -> None:
        for op_id in op_ids:
            (kind,) = rig.rows(f"SELECT kind FROM operation WHERE op_id = '{op_id}'")[0]  # noqa: S608
            ((step,),) = rig.rows("SELECT step FROM rotation WHERE open_link IS NOT NULL")
            reopened.append(f"{kind} in {step}")
        await reopen(term, op_ids)

    rig.conductor.journal.reopen = noted  # type: ignore[method-assign,assignment]
    assert "rolled back" == (await rig.until_end()).end
    assert {"select_tx in select a"} == set(reopened)


async def test_an_agent_cannot_use_up_the_tokens_of_all(rig: Rig) -> None:
    await rig.keyed()
    rig.tokens = {A: (2**53 - 1, "liar"), B: (2**53 - 1, "liar")}
    await rig.conductor.rotate("l1", "anna")
    await rig.until_end()
    assert rig.conductor.term is not None
    assert rig.conductor.term.token < 2**32


# --- pairs, growth, alarms ----------------------------------------------------------------------------------


async def test_a_rotation_that_begins_while_the_partner_began_is_refused_in_the_same_transaction(
    rig: Rig,
) -> None:
    await rig.conductor.lead()
    term = rig.conductor.term
    assert term is not None
    partner = replace(rig.link, name="l2")
    fields: dict[str, Any] = {"kind": "sak", "first": "survey", "reason": "t", "now_ns": 1}
    await rig.conductor.journal.save(term, Save(begin(partner, rotation="1" * 32, **fields)), 1)
    save = Save(begin(rig.link, rotation="2" * 32, **fields), apart=frozenset({"l2"}))
    with pytest.raises(RotationRefused):
        await rig.conductor.journal.save(term, save, 1)
    assert [("l2",)] == [tuple(row) for row in rig.rows("SELECT link FROM rotation")]


async def test_a_partner_that_begins_between_look_and_write_keeps_this_link_from_starting(rig: Rig) -> None:
    await rig.conductor.lead()
    term, load = rig.conductor.term, rig.conductor.journal.load
    assert term is not None
    partner = replace(rig.link, name="l2", diverse_partner="l1")
    rig.conductor._links = lambda: {"l1": rig.link, "l2": partner}
    fields: dict[str, Any] = {"kind": "sak", "first": "survey", "reason": "t", "now_ns": 1}

    async def looked(link: str) -> Any:
        found = await load(link)
        await rig.conductor.journal.save(term, Save(begin(partner, rotation="1" * 32, **fields)), 1)
        return found

    rig.conductor.journal.load = looked  # type: ignore[method-assign]
    await rig.conductor.reconcile("l1")
    assert [("l2",)] == [tuple(row) for row in rig.rows("SELECT link FROM rotation")]


async def test_a_partner_that_only_the_other_link_names_counts(rig: Rig) -> None:
    await rig.keyed()
    naming = replace(rig.link, name="l2", diverse_partner="l1")
    links = {"l1": rig.link, "l2": naming}
    rig.conductor._links = lambda: links
    term = rig.conductor.term
    assert term is not None
    fields: dict[str, Any] = {"kind": "sak", "first": "survey", "reason": "t", "now_ns": 1}
    await rig.conductor.journal.save(term, Save(begin(naming, rotation="1" * 32, **fields)), 1)
    await rig.conductor.rotate("l1", "anna")
    await rig.conductor.reconcile("l1")
    status = await rig.conductor.status("l1")
    assert ("partner", "sluicegate links --why l2") == (status.why.check, status.why.next)
    assert status.rotation is None


async def test_a_link_that_is_read_for_days_does_not_fill_the_journal(rig: Rig) -> None:
    await rig.keyed()
    for end in rig.world.ends.values():
        do_select = end.do_select_tx

        def stay(rotation: str, params: Any, do_select: Any = do_select) -> Any:
            return do_select(rotation, params)

        end.do_select_tx = stay  # type: ignore[method-assign]
        end.revert = (end.encoding,)  # a timer that does not fire: assessed again and again
    await rig.conductor.rotate("l1", "anna")
    for _ in range(120):
        await rig.turn()
    ((reads,),) = rig.rows("SELECT count(*) FROM operation WHERE kind = 'read'")
    assert reads <= 8


async def test_a_rotation_beyond_its_total_time_says_so_with_the_next_command(rig: Rig) -> None:
    await rig.keyed()
    await rig.conductor.rotate("l1", "anna")
    for _ in range(400):
        await rig.turn()
        ((step,),) = rig.rows("SELECT step FROM rotation ORDER BY started_ns DESC LIMIT 1")
        if step == "overlap":
            break
    rig.world.ends[B].up = False
    for _ in range(320):
        await rig.turn()
    why = (await rig.conductor.status("l1")).why
    assert ("rotation in step parked", "start or repair agent l1-b") == (why.check, why.next)
    assert "both keys stay installed" in why.detail
    rig.world.ends[B].up = True
    assert "complete" == (await rig.until_end()).end


async def test_a_restarted_owner_takes_over_at_once_under_another_holder(rig: Rig) -> None:
    assert await rig.conductor.lead()
    again = rig.make_conductor("first")
    assert await again.lead()
    assert again.holder != rig.conductor.holder
    assert not await rig.make_conductor("firs").lead()
    assert not await rig.make_conductor("").lead()
    with pytest.raises(StaleLease):
        await rig.conductor.journal.adopt(rig.conductor.term or Term("", 0, "", 0))
