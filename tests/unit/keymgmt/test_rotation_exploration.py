"""Small exploration of the rotation machine: every fault at every point, random faults together, and mutants.

Bounds: one link, two rotations, channel capacity as many as a step orders; faults one per run at every point
(exhaustive) and any number at random (hypothesis); time as non-deterministic deadlines and timers. Safety
(rotation.md section 7) is asserted by the model at the event itself, liveness at the end of each run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from modelled_ends import SECOND, A, B, End, KeyStore, Refusal, Sa, Unsafe, make_link
from world import World

from keymgmt import rotation_sak
from keymgmt.rotation import Move, Step

LAWFUL = {"complete", "rolled back", "rekeyed", "not started"}


def die(world: World, side: str) -> None:
    world.died = True
    world.ends[side].die()


def away(world: World, side: str) -> None:
    world.ends[side].up = False


FAULTS: dict[str, Callable[[World], object]] = {
    "agent a restarts": lambda w: w.ends[A].restart_agent(),
    "agent b restarts": lambda w: w.ends[B].restart_agent(),
    "agent a away": lambda w: away(w, A),
    "agent b away": lambda w: away(w, B),
    "SecY a dies": lambda w: die(w, A),
    "SecY b dies": lambda w: die(w, B),
    "timer a fires": lambda w: w.ends[A].fire(),
    "timer b fires": lambda w: w.ends[B].fire(),
    "an answer is lost": lambda w: w.lose_ack(),
    "key store away": lambda w: setattr(w.kms, "up", False),
    "a stale conductor mints": lambda w: w.kms.mint(),
    "a stale conductor lowers minima": lambda w: w.kms.lower_minima(),
    "check value of a differs": lambda w: setattr(w.ends[A], "wrong_check", True),
    "hardware of b holds another key": lambda w: setattr(w.ends[B], "wrong_key", True),
    "a long time passes": lambda w: w.pass_time(200 * SECOND),
}


def micro_steps(world: World) -> list[Callable[[], object]]:
    """One turn, taken apart: between any two of these a fault may strike."""
    return [
        world.conduct,
        lambda: world.deliver(A),
        world.acknowledge,
        lambda: world.deliver(B),
        world.acknowledge,
        world.traffic,
        lambda: world.pass_time(SECOND // 2),
    ]


def run(world: World, point: int | None, fault: Callable[[World], object]) -> list[int]:
    """One rotation with `fault` before micro-step `point`; returns the micro-steps before which all differs.

    Between two micro-steps that changed nothing a fault strikes the same world: such points are left out.
    """
    world.start()
    points, count, last = [], 0, None
    for _ in range(60):
        for step in micro_steps(world):
            if count == point:
                fault(world)
            if world.journal is None:
                return points
            if point is None:
                pending = sum(op["status"] == "pending" for op in world.ops.values())
                now = (world.journal, len(world.applied), pending)
                if now != last:
                    points.append(count)
                last = now
            step()
            count += 1
    world.finish()
    return points


def settle(world: World) -> None:
    """After a run: heal, end, and prove that the link can be keyed and carries traffic again."""
    if world.journal is not None:
        world.finish()
    for end in world.ends.values():
        end.wrong_check = end.wrong_key = False
        end.up = True
        end.fire()
    world.kms.up = True
    assert {end.end for end in world.ended} <= LAWFUL
    world.start("after")
    last = world.finish()
    assert last.end == "complete", (last.end, last.why)
    for side, end in world.ends.items():
        sa = end.tx[end.encoding if end.encoding is not None else -1]
        heard = world.ends["b" if side == "a" else "a"].rx[end.encoding or 0]
        assert sa.key == heard.key
        assert 1 == len(end.tx) == len(end.rx)


@pytest.mark.parametrize("keyed", [True, False], ids=["rotation", "first keying"])
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_at_every_point_ends_lawfully(name: str, keyed: bool) -> None:
    base = World()
    points = run(base.keyed() if keyed else base, None, lambda w: None)
    for point in points[:: 1 if keyed else 3]:
        world = World().keyed() if keyed else World()
        try:
            run(world, point, FAULTS[name])
            settle(world)
        except AssertionError as error:
            raise type(error)(f"{name} before micro-step {point}: {error}; {world.history}") from error


class Faults(RuleBasedStateMachine):
    """Any interleaving of progress and faults over two kinds of ASIC."""

    @initialize(most=st.sampled_from([2, 4]), keyed=st.booleans())
    def begin(self, most: int, keyed: bool) -> None:
        self.world = World(make_link(max_sa_per_sc=most))
        if keyed:
            self.world.keyed()
        self.world.start()

    @rule()
    def conduct(self) -> None:
        self.world.conduct()

    @rule(side=st.sampled_from([A, B]))
    def deliver(self, side: str) -> None:
        self.world.deliver(side)

    @rule()
    def acknowledge(self) -> None:
        self.world.acknowledge()

    @rule(turns=st.integers(1, 12))
    def progress(self, turns: int) -> None:
        for _ in range(turns):
            self.world.turn()

    @rule(count=st.integers(1, 3))
    def traffic(self, count: int) -> None:
        self.world.traffic(count)

    @rule(name=st.sampled_from(sorted(FAULTS)))
    def fault(self, name: str) -> None:
        FAULTS[name](self.world)

    @rule(seconds=st.sampled_from([1, 5, 20, 200]))
    def time(self, seconds: int) -> None:
        self.world.pass_time(seconds * SECOND)

    @rule(side=st.sampled_from([A, B]))
    def heal(self, side: str) -> None:
        self.world.ends[side].up = True
        self.world.kms.up = True

    @precondition(lambda self: hasattr(self, "world") and self.world.journal is None)
    @rule()
    def rotate_again(self) -> None:
        self.world.start("again")

    def teardown(self) -> None:
        if hasattr(self, "world"):
            settle(self.world)


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=80, stateful_step_count=40)


# --- mutants: each is a small patch, and each must be caught ---------------------------------------------------


def with_step(name: str, **changes: Any) -> dict[str, Step]:
    return {**rotation_sak.TABLE, name: replace(rotation_sak.TABLE[name], **changes)}


def explore(make: Callable[[], World], likely: str = "") -> None:
    """The exhaustive exploration, as the mutants meet it; the fault that should find one goes first."""
    settle_after(make(), None, lambda w: None)
    points = run(make(), None, lambda w: None)
    for name in sorted(FAULTS, key=lambda name: name != likely):
        for point in points:
            settle_after(make(), point, FAULTS[name])


def settle_after(world: World, point: int | None, fault: Callable[[World], object]) -> None:
    run(world, point, fault)
    settle(world)


def keyed_then(table: dict[str, Step]) -> Callable[[], World]:
    def make() -> World:
        world = World().keyed()
        world.table = table
        return world

    return make


def test_mutant_retire_on_a_timer_is_caught() -> None:
    """Old keys are removed when a time is over, without the confirms of both ends."""
    table = with_step(
        "confirm",
        commands=lambda state, link: (),
        judge=lambda state, link, now: Move("proof") if now > state.entered_ns + 2 * SECOND else None,
    )
    with pytest.raises(Unsafe, match="revert timer"):
        explore(keyed_then(table))


def test_mutant_transmit_before_receive_is_caught() -> None:
    """The switch at A does not wait for the install at B."""
    only_a = rotation_sak.TABLE["install"].commands
    table = with_step(
        "install",
        commands=lambda state, link: only_a(state, link)[:1],
        judge=lambda state, link, now: Move(
            "select a", memo={"key_ids": {A: state.result(A)["key_ids"], B: state.result(A)["key_ids"]}}
        ),
    )
    with pytest.raises(Unsafe, match="before the peer receives"):
        explore(keyed_then(table))


def test_mutant_restart_with_the_same_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SecY that began anew gets its last keys back, with packet numbers from 1."""

    def die_and_restore(self: End) -> None:
        keys = {an: sa.key for an, sa in self.tx.items()}
        encoding = self.encoding
        original(self)
        for an, key in keys.items():
            self.install("tx", an, key)
        self.encoding = encoding

    original = End.die
    monkeypatch.setattr(End, "die", die_and_restore)
    with pytest.raises(Unsafe, match=r"installed twice|used twice"):
        explore(lambda: World().keyed(), "SecY a dies")


def test_mutant_rollback_by_re_adding_a_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of selecting the old AN again, the old key is deleted and added."""

    def re_add(self: End, rotation: str, params: Any) -> dict[str, Any]:
        if params["an"] not in self.tx:
            raise Refusal("no_such_sa")
        self.tx[params["an"]] = Sa(params["key_id"])
        self.encoding, self.revert = params["an"], None
        return {"encoding_an": self.encoding}

    monkeypatch.setattr(End, "do_revert_tx", re_add)
    with pytest.raises(Unsafe, match="used twice"):
        explore(lambda: World().keyed(), "hardware of b holds another key")


def test_mutant_raised_minimum_taken_for_destruction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """`min_decryption_version` alone can be lowered again by whoever has the conductor's rights."""

    def raise_only(self: KeyStore, version: int) -> None:
        self.latest = max(self.latest, version + 1)
        self.minimum = max(self.minimum, version + 1)
        self.destroyed |= {version}

    monkeypatch.setattr(KeyStore, "destroy", raise_only)
    with pytest.raises(Unsafe, match="still decrypts"):
        explore(World)
