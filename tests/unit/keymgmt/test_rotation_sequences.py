"""Named sequences: what happens to a rotation when one thing goes wrong at one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from modelled_ends import SECOND, A, B, make_link
from world import World

from keymgmt.rotation import Rotation


@dataclass(frozen=True)
class Story:
    """From a keyed link: at `step`, do `fault`; then heal and run on.

    `lost` names the ends that may lose frames; all others must lose none.
    """

    fault: Callable[[World], object]
    step: str
    end: str
    why: str = ""
    lost: str = ""
    passes: tuple[str, ...] = ()
    parks: bool = False


def wrong_check(world: World) -> None:
    world.ends[A].wrong_check = True


def wrong_key(world: World) -> None:
    world.ends[A].wrong_key = True


def lying_install(world: World) -> None:
    world.ends[B].lies.add("install")


def a_away(world: World) -> None:
    world.ends[A].up = False


def b_away(world: World) -> None:
    world.ends[B].up = False


def kms_away(world: World) -> None:
    world.kms.up = False


STORIES = {
    "nothing goes wrong": Story(lambda w: None, "survey", "complete"),
    "check values differ: abandoned before any transmit": Story(
        wrong_check, "survey", "rolled back", "check values differ", passes=("discard", "abandon", "readback")
    ),
    "right value reported, another key in hardware: found by counters, one direction only": Story(
        wrong_key,
        "survey",
        "rolled back",
        "the receiver counted errors",
        lost=B,
        passes=("revert", "abandon"),
    ),
    "an end says done and installs nothing: found by read-back": Story(
        lying_install, "survey", "rolled back", "read-back shows no new key"
    ),
    "agent away before anything: not started, no key minted": Story(a_away, "survey", "not started"),
    "agent away in prepare: not started": Story(b_away, "prepare", "not started"),
    "key store away before minting: not started, links stay up": Story(kms_away, "prepare", "not started"),
    "key store away after minting: rolled back, nothing installed": Story(kms_away, "wrap", "rolled back"),
    "key store away while installing": Story(kms_away, "install", "rolled back", "custody_unavailable"),
    "key store away at destruction: rolled back, destruction is owed until done": Story(
        kms_away, "destroy", "rolled back", passes=("settle",)
    ),
    "agent restarts between prepare and install: its nonce is gone": Story(
        lambda w: w.ends[A].restart_agent(), "mint", "rolled back", "nonce_unknown"
    ),
    "a stale conductor mints in between: the version is checked": Story(
        lambda w: w.kms.mint(), "wrap", "rolled back", "another version"
    ),
    "agent lost while installing: parked until it is back": Story(
        b_away, "install", "rolled back", parks=True
    ),
    "agent lost when its transmit key is unknown: parked, both keys stay": Story(
        a_away, "select a", "rolled back", parks=True
    ),
    "agent lost before it confirmed: parked": Story(b_away, "confirm", "rolled back", parks=True),
    "agent lost after the commit: forward only": Story(b_away, "drain", "complete", parks=True),
    "agent lost in the middle of retiring": Story(a_away, "retire rx", "complete", parks=True),
    "SecY dies before the switch": Story(lambda w: w.ends[A].die(), "destroy", "rekeyed", lost="ab"),
    "SecY dies after the first switch": Story(lambda w: w.ends[B].die(), "verify b", "rekeyed", lost="ab"),
    "SecY dies in the overlap window": Story(lambda w: w.ends[A].die(), "overlap", "rekeyed", lost="ab"),
    "SecY dies while retiring": Story(lambda w: w.ends[B].die(), "retire rx", "rekeyed", lost="ab"),
    "the revert timer fires before the confirm": Story(lambda w: w.ends[A].fire(), "select b", "rolled back"),
    "the acknowledgement of a switch is lost: it is repeated": Story(
        lambda w: w.lose_ack(), "select a", "complete"
    ),
}


def reach(world: World, step: str) -> None:
    """Stop right after `step` was journalled, before any of its operations is delivered."""
    for _ in range(400):
        state = world.state()
        if state is not None and state.step == step:
            return
        world.conduct()
        state = world.state()
        if state is not None and state.step == step:
            return
        world.turn()
    raise AssertionError(f"step {step} was not reached")


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    story = STORIES[name]
    world = World().keyed()
    lost_before = dict(world.lost)
    world.start()
    reach(world, story.step)
    story.fault(world)
    parked = run_until_quiet(world)
    end = world.finish()
    assert story.end == end.end, end.why
    assert story.why in end.why
    assert story.parks == parked
    assert set(story.passes) <= {p.step for p in end.trail}
    for side in (A, B):
        if side not in story.lost:
            assert lost_before[side] == world.lost[side]
    assert_settled(world, end)


def run_until_quiet(world: World) -> bool:
    """A minute and a half with the fault in place; True when the rotation was parked meanwhile."""
    parked = False
    for turn in range(360):
        world.turn()
        if turn == 150:
            for end in world.ends.values():
                end.fire()
        state = world.state()
        parked = parked or (state is not None and state.parked)
    return parked


def assert_settled(world: World, end: Rotation) -> None:
    """What must hold after every lawful end that had a working pair: one key pair, no remains, no wrap open."""
    minted = end.memo.get("version")
    if minted is not None:
        assert minted in world.kms.destroyed
    assert "ciphertext" not in end.memo
    if end.end == "rekeyed":
        world.start("rekey")
        again = world.finish()
        assert again.end == "complete", again.why
    for side in (A, B):
        assert world.ends[side].encoding in world.ends[side].tx
        assert 1 == len(world.ends[side].tx) == len(world.ends[side].rx)
        assert world.ends[side].revert is None
    before = dict(world.lost)
    world.traffic(5)
    assert before == world.lost


def test_first_keying_that_fails_stays_closed_and_the_next_one_completes() -> None:
    world = World()
    world.ends[A].wrong_check = True
    world.start("first keying")
    end = world.finish()
    assert "rolled back" == end.end
    assert [None, None] == [world.ends[side].encoding for side in (A, B)]
    world.ends[A].wrong_check = False
    world.keyed()


def test_first_keying_whose_second_direction_fails_waits_for_the_revert_timer() -> None:
    world = World()
    world.start("first keying")
    reach(world, "probe b")
    world.ends[B].wrong_key = True
    end = world.finish()
    assert "rolled back" == end.end
    world.ends[B].wrong_key = False
    world.keyed()
    assert 1 == len(world.ends[A].rx) == len(world.ends[B].rx)


def test_two_association_numbers_are_enough() -> None:
    world = World(make_link(max_sa_per_sc=2)).keyed()
    for _ in range(5):
        world.start()
        assert "complete" == world.finish().end
    assert {A: 0, B: 0} == world.lost


def test_no_rotation_without_packet_numbers_to_roll_back_to() -> None:
    world = World().keyed()
    sa = next(iter(world.ends[A].tx.values()))
    sa.pn = world.link.profile.pn_limit
    world.start()
    end = world.finish()
    assert ("not started", 1) == (end.end, len(world.ends[A].tx))
    assert "no packet numbers" in end.why


def test_remains_of_a_dead_secy_are_removed_before_the_next_key() -> None:
    world = World(make_link(max_sa_per_sc=2)).keyed()
    world.ends[B].die()
    world.died = True
    world.start("rekey")
    end = world.finish()
    assert "complete" == end.end
    assert "tidy rx" in {p.step for p in end.trail}


def test_drain_waits_for_silence_when_frames_were_lost_on_the_way() -> None:
    world = World().keyed()
    world.traffic(10)
    next(iter(world.ends[B].rx.values())).ok -= 7  # seven frames never arrived
    world.start()
    end = world.finish()
    drain = next(p for p in end.trail if p.step == "drain")
    assert "complete" == end.end
    assert drain.left_ns - drain.entered_ns >= 3 * SECOND


def test_a_rotation_beyond_its_total_time_turns_back() -> None:
    world = World(make_link(total_deadline_ns=40 * SECOND, step_deadline_ns=35 * SECOND)).keyed()
    world.start()
    reach(world, "probe a")
    world.ends[A].up = False
    for _ in range(200):
        world.turn()
    state = world.state()
    assert state is not None
    assert "revert" in {p.to for p in state.trail}
    assert world.finish().end == "rolled back"


def test_an_end_that_is_confirmed_and_has_no_older_key_is_followed_by_the_other() -> None:
    """First keying: B is confirmed, A's timer fired before its confirm. There is no way back, so: forward."""
    world = World(make_link(max_sa_per_sc=2))
    world.start("first keying")
    reach(world, "confirm")
    world.deliver(B)
    world.acknowledge()
    world.ends[A].fire()
    end = world.finish()
    assert "complete" == end.end, end.why
    assert 2 == sum(p.step == "select a" for p in end.trail)
    assert_settled(world, end)
