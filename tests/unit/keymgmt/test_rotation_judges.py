"""Each judge of the SAK table alone: what it demands of both ends before the walk may go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from modelled_ends import SECOND, A, B, Sa, make_link
from world import World

from keymgmt import rotation_sak_back as turn
from keymgmt import rotation_sak_forward as ahead
from keymgmt import rotation_sak_orders as orders
from keymgmt.endstate import EndpointState
from keymgmt.model import LinkSpec
from keymgmt.rotation import Move, Outcome, Rotation, begin, tick
from keymgmt.rotation_readback import drained, read_ends
from keymgmt.rotation_sak import TABLE

NOW = 5_000 * SECOND
IDS = {A: {"tx": "a" * 32, "rx": "b" * 32}, B: {"tx": "b" * 32, "rx": "a" * 32}}


def state(results: dict[str, dict[str, Any]], **memo: Any) -> Rotation:
    """A rotation whose present step has these results."""
    made = begin(make_link(), kind="sak", first="survey", rotation="1" * 32, reason="test", now_ns=NOW)
    outcomes = {slot: Outcome("done", result) for slot, result in results.items()}
    return replace(made, outcomes=outcomes, memo=memo)


def reads(world: World, **of_a: Any) -> dict[str, dict[str, Any]]:
    """What both ends of a modelled link show; end a with changes."""
    found = {side: EndpointState.from_json(end.do_read("", {})["state"]) for side, end in world.ends.items()}
    found[A] = replace(found[A], **of_a)
    return {side: {"state": shown.to_json()} for side, shown in found.items()}


def survey(world: World, **of_a: Any) -> Move:
    return ahead.survey(state(reads(world, **of_a)), world.link, NOW)


# --- survey -------------------------------------------------------------------------------------------------

UNSAFE: dict[str, tuple[dict[str, Any], str]] = {
    "protection is off": ({"protect": False}, "encryption is off"),
    "encryption is off: integrity only": ({"encrypt": False}, "encryption is off"),
    "validation is not strict": ({"validate": "check"}, "validation is not strict"),
    "it sends under another SCI": ({"tx_sci": "02ff000000000001"}, "SCIs differ"),
    "it listens to another peer": ({"rx_sci": "02ff000000000001"}, "SCIs differ"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_a_rotation_is_not_started_when_an_end_is_not_as_planned(name: str) -> None:
    changes, why = UNSAFE[name]
    world = World().keyed()
    assert "prepare" == survey(world).step
    move = survey(world, **changes)
    assert ("not started", True) == (move.end, why in move.why)


def test_a_running_revert_timer_is_waited_for() -> None:
    move = survey(World().keyed(), revert_pending=True)
    assert (True, "a revert timer is still running") == (bool(move.again_ns), move.why)


@pytest.mark.parametrize(("below", "expected"), [(1, None), (0, "not started")])
def test_the_old_sa_needs_packet_numbers_for_a_whole_rollback(below: int, expected: str | None) -> None:
    world = World().keyed()
    (sa,) = world.ends[B].tx.values()
    sa.pn = world.link.profile.pn_limit - below
    assert expected == survey(world).end


def test_without_an_association_number_empty_at_both_ends_it_is_not_started() -> None:
    world = World(make_link(max_sa_per_sc=2)).keyed()
    (old,) = world.ends[B].tx.values()
    world.ends[B].tx, world.ends[B].encoding, world.ends[A].rx = {1: old}, 1, {1: Sa(old.key)}
    move = survey(world)
    assert ("not started", "no association number is empty at both ends") == (move.end, move.why)


def test_a_first_keying_is_called_one() -> None:
    assert "first keying: no live key pair" == survey(World()).why
    assert "" == survey(World().keyed()).why


# --- prepare, install ---------------------------------------------------------------------------------------


def test_one_nonce_of_both_ends_binds_nothing() -> None:
    move = ahead.prepared(state({A: {"nonce": "0" * 32}, B: {"nonce": "0" * 32}}), make_link(), NOW)
    assert ("not started", "both ends gave one nonce") == (move.end, move.why)


@pytest.mark.parametrize("side", [A, B])
@pytest.mark.parametrize("what", ["key_ids", "checks"])
def test_values_of_either_direction_that_differ_abandon_before_any_transmit(side: str, what: str) -> None:
    agreed = {"key_ids": IDS, "checks": IDS}
    assert "destroy" == ahead.compared(state({}, **agreed), make_link(), NOW).step
    other = {**IDS, side: {**IDS[side], "tx": "c" * 32}}
    move = ahead.compared(state({}, **(agreed | {what: other})), make_link(), NOW)
    assert ("discard", True) == (move.step, "before any transmit" in move.why)


# --- switch -------------------------------------------------------------------------------------------------


def test_another_secy_lifetime_before_the_switch_is_keyed_anew() -> None:
    world = World().keyed()
    found = state(reads(world, secy_id="a2"), secy={A: "a1", B: "b1"}, an=0, key_ids=_ids(world))
    assert {"after": "rekeyed"} == ahead.baseline(found, world.link, NOW).memo


@pytest.mark.parametrize("which", ["tx", "rx"])
def test_a_switch_needs_both_new_keys_of_each_end_read_back(which: str) -> None:
    world = World().keyed()
    known = {"secy": {A: "a1", B: "b1"}, "an": 0, "key_ids": _ids(world)}
    assert "select a" == ahead.baseline(state(reads(world), **known), world.link, NOW).step
    move = ahead.baseline(state(reads(world, **{which: ()}), **known), world.link, NOW)
    assert ("assess", "end a: read-back shows no new key under AN 0") == (move.step, move.why)


@pytest.mark.parametrize("an", [0, 2, None])
def test_a_switch_that_does_not_show_the_new_an_is_assessed(an: int | None) -> None:
    move = ahead.selected(A)(state({A: {"encoding_an": an, "was": 0}}, an=1), make_link(), NOW)
    assert "assess" == move.step


@pytest.mark.parametrize("side", [A, B])
def test_the_commit_needs_both_timers_disarmed(side: str) -> None:
    disarmed = {A: {"revert_pending": False}, B: {"revert_pending": False}}
    assert "overlap" == ahead.confirmed(state(disarmed), make_link(), NOW).step
    move = ahead.confirmed(state({**disarmed, side: {"revert_pending": True}}), make_link(), NOW)
    assert ("assess", {}) == (move.step, move.memo)


def test_a_direction_whose_probes_are_not_all_counted_yet_is_looked_at_again() -> None:
    found = state(
        {B: {"nonces": [], "counters": {}, "seen": 0}}, an=1, probes=["0" * 16], before={B: {}}, old={A: None}
    )
    move = ahead.verified(B)(found, make_link(), NOW)
    assert (True, "") == (move.again_ns is not None, move.step), move


# --- after the commit ---------------------------------------------------------------------------------------


def test_old_keys_stay_for_the_whole_overlap() -> None:
    link, at = make_link(), replace(state({}), entered_ns=NOW)
    assert ahead.overlap(at, link, NOW + link.profile.overlap_ns - 1) is None
    assert Move("drain") == ahead.overlap(at, link, NOW + link.profile.overlap_ns)


@pytest.mark.parametrize(("sent", "arrived", "expected"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_a_direction_is_drained_when_neither_sender_nor_receiver_has_moved(
    sent: int, arrived: int, expected: bool
) -> None:
    world = World().keyed()
    (sa,) = world.ends[A].tx.values()
    memo = {"old": {A: {"an": 0, "key_id": sa.key}, B: None}, "paired": {A: True, B: False}}

    def look(pn: int, ok: int, memo: dict[str, Any], now: int) -> tuple[bool, Any]:
        ends = read_ends(state(reads(world)))
        ends[A] = replace(ends[A], tx=(replace(ends[A].tx[0], pn=pn),))
        ends[B] = replace(ends[B], counters={"rxsa.0.InPktsOK": ok})
        return drained(memo, ends, 3 * SECOND, now)

    done, seen = look(10, 5, memo, NOW)
    assert not done
    done, _seen = look(10 + sent, 5 + arrived, memo | {"seen": seen}, NOW + 4 * SECOND)
    assert expected == done


def test_a_secy_that_died_while_its_key_was_abandoned_is_keyed_anew() -> None:
    world = World().keyed()
    found = reads(world, secy_id="a2", tx=(), rx=(), encoding_an=None)
    gone = state(found, secy={A: "a1", B: "b1"}, key_ids=IDS, old={A: None, B: None}, looks=0)
    move = turn.readback(gone, world.link, NOW)
    assert ("settle", "rekeyed") == (move.step, move.memo.get("after"))


@pytest.mark.parametrize("judge", [ahead.drain, ahead.proof], ids=["drain", "proof"])
def test_after_the_commit_an_end_that_is_not_as_committed_leaves_the_step(judge: Any) -> None:
    world = World().keyed()
    known = {"secy": {A: "a1", B: "b1"}, "key_ids": _ids(world), "old": {A: None, B: None}, "paired": {}}
    stays = judge(state(reads(world), **known), world.link, NOW)
    assert stays == Move("retire tx", memo={"seen": None, "remove": []}) or "complete" == stays.end
    died = judge(state(reads(world, secy_id="a2"), **known), world.link, NOW)
    assert ("settle", "rekeyed") == (died.step, died.memo["after"])
    back = judge(state(reads(world, encoding_an=None), **known), world.link, NOW)
    assert ("assess", "an end no longer transmits under the new key") == (back.step, back.why)


def test_a_rotation_is_not_complete_while_an_old_key_is_read_back() -> None:
    world = World().keyed()
    known = {"secy": {A: "a1", B: "b1"}, "key_ids": _ids(world)}
    assert "complete" == ahead.proof(state(reads(world), **known), world.link, NOW).end
    world.ends[B].rx[3] = Sa("d" * 32)
    move = ahead.proof(state(reads(world), **known), world.link, NOW)
    assert (None, "retire tx", [[B, "rx", 3, "d" * 32]]) == (move.end, move.step, move.memo["remove"])


@pytest.mark.parametrize(
    ("step", "age", "expected"),
    [
        ("survey", -1, ("survey", None)),
        ("survey", 0, ("survey", "not started")),
        ("drain", 0, ("drain", None)),
    ],
)
def test_the_total_time_ends_a_step_before_the_commit_however_young_the_step_is(
    step: str, age: int, expected: tuple[str, str | None]
) -> None:
    link = make_link()
    started = NOW - link.profile.total_deadline_ns - age
    found = tick(replace(state({}), step=step, started_ns=started), link, TABLE, NOW)
    assert expected == (found.step, found.end)


# --- orders -------------------------------------------------------------------------------------------------


def test_a_version_is_destroyed_once_and_only_when_one_was_minted() -> None:
    link: LinkSpec = make_link()
    assert () == orders.destroy(state({}), link)
    assert () == orders.destroy(state({}, version=7, destroyed=True), link)
    (command,) = orders.destroy(state({}, version=7), link)
    assert ("kms", None, {"version": 7}) == (command.slot, command.side, command.params)


def test_only_ends_that_moved_and_have_an_old_key_are_reverted() -> None:
    old = {A: {"an": 0, "key_id": "a" * 32}, B: None}
    assert [A] == [c.side for c in orders.revert(state({}, old=old, revert=[A, B]), make_link())]
    assert () == orders.revert(state({}, old=old, revert=[B]), make_link())


def test_the_receiver_is_read_again_only_where_an_old_key_was_not_received() -> None:
    assert () == orders.look(B)(state({}, paired={A: True, B: False}), make_link())
    (command,) = orders.look(B)(state({}, paired={A: False, B: True}), make_link())
    assert ("read", B) == (command.kind, command.side)


def _ids(world: World) -> dict[str, dict[str, str]]:
    return {
        side: {"tx": next(iter(end.tx.values())).key, "rx": next(iter(end.rx.values())).key}
        for side, end in world.ends.items()
    }
