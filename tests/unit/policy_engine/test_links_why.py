"""`links --why` says ok only of a link over which admission lets data move, and names what to do else."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest
from gate_scene import LINK, S
from rules_world import estate, example_requests, postures

from keymgmt.agents.agent import Agent
from keymgmt.linkstatus import LinkStatus
from keymgmt.permit import PermitKind
from keymgmt.scheduler import Wait
from policy_engine.api_shapes import LinkOut
from policy_engine.context import context
from policy_engine.embedded.services import EmbeddedServices
from policy_engine.facts import NoLookup, facts
from policy_engine.gate.gather import MARGIN_NS, KeyState, fresh_for_ns
from policy_engine.gate.loop import Gate
from policy_engine.gate.orders import Standing
from policy_engine.gate.posture import Finding, LinkPosture, as_of
from policy_engine.gate.why import first
from policy_engine.grants import Reach
from policy_engine.rules.bundle import shipped
from policy_engine.rules.decision import decide
from policy_engine.rules.wasm import WasmEngine

YOUNG = Wait("ok", "key in use for 642 s", "sluicegate rotate l")
REPAIR = "start or repair agent l-a or its data plane"
AWAY = Wait("agent away", "agent l-a was last seen 76 s ago", "start or repair agent l-a")
RUNS = Wait("rotation in step select", "waiting for select by l-a")
STALE = Finding("stale_sample", "unknown", "the last sample of l-a is 12.0 s old", REPAIR)
ONCE = Finding("violation_unconfirmed", "unknown", "l-a: encryption off in one sample, not confirmed")


def posture(verdict="encrypted", state="open", reason="encrypted"):
    return LinkPosture("required", state, verdict, reason, 1, 2**62, 3)


GOOD, BAD = posture(), posture("unknown", "closed", "stale_sample")
CLOSED = Standing(True, "stale_sample", 5, 4)
FIRST = {
    "all good": ((YOUNG, GOOD, None, Standing(), ()), "ok", "sluicegate rotate l"),
    "silent for the scheduler too": ((AWAY, BAD, STALE, CLOSED, ()), "agent away", AWAY.next),
    "silent for the gate": ((YOUNG, BAD, STALE, Standing(), ()), "stale sample", STALE.fix),
    "closed by order": ((YOUNG, BAD, STALE, CLOSED, ()), "stale sample", STALE.fix),
    "in one sample": ((YOUNG, posture("unknown"), ONCE, Standing(), ()), "violation unconfirmed", ""),
    "a rotation that runs": ((RUNS, GOOD, None, Standing(), ()), RUNS.check, ""),
    "a rotation that runs over a silent end": ((RUNS, BAD, STALE, Standing(), ()), "stale sample", STALE.fix),
    "proved, not yet opened": (
        (YOUNG, posture(state="closed"), None, Standing(), ("l-b",)),
        "gate closed",
        "if it stays so, read the log of agent l-b",
    ),
    "proved, the order still stands": (
        (YOUNG, posture(state="closed"), None, CLOSED, ("l-a",)),
        "gate closed",
        "",
    ),
    "never judged": ((YOUNG, None, None, Standing(), ()), "not judged", ""),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_of_scheduler_posture_and_gate_that_is_not_good_is_named(name):
    given, check, step = FIRST[name]
    why = first(*given)
    assert (check, step) == (why.check, why.next)
    assert why.detail


class Conductor:
    """`keymgmt.conductor.Conductor.status` of a link with a young key."""

    async def status(self, name):
        await asyncio.sleep(0)
        return LinkStatus(name, "required", True, None, None, (), YOUNG, None, None)


def services(scene):
    declared = SimpleNamespace(
        links={"l": SimpleNamespace(encryption="required", profile="p")}, profiles={"p": LINK.profile}
    )
    return EmbeddedServices(
        database=scene.database,
        ledger=None,
        conductor=Conductor(),
        gate=scene.gate,
        admission=SimpleNamespace(resources=lambda: declared),
        tenants_of=dict,
        bare=dict,
        describe=dict,
        not_ready=dict,
        key_store_away=str,
        reload_identities=None,
        state=None,
    )


async def told(scene):
    link = await services(scene).link("l", Reach(every=True, tenants=frozenset()))
    LinkOut.model_validate(link)
    return link


async def test_a_silent_agent_is_named_with_what_to_do_and_no_rotation_is_advised(scene):
    scene.now += 20 * S
    await scene.both()
    assert "ok" == (await told(scene))["why"]["check"]
    for after in (5, 12):
        scene.now += after * S
        scene.gate.on_sample(scene.sample("b"))
        await scene.gate.step()
        link = await told(scene)
        assert ("stale sample", REPAIR) == (link["why"]["check"], link["why"]["next"])
        assert "l-a" in link["why"]["detail"]
        assert ("closed", "unknown") == (link["posture"]["state"], link["posture"]["posture"])
    assert "closed" == link["gate"]["order"]


async def test_evidence_that_ended_is_shown_as_unknown_before_the_gate_looks_again(scene):
    await scene.both()
    scene.now += fresh_for_ns(LINK)
    link = await told(scene)
    assert ("closed", "unknown", "stale_sample") == tuple(
        link["posture"][name] for name in ("state", "posture", "reason")
    )
    assert REPAIR == link["why"]["next"]


async def test_a_violation_names_the_end_to_repair(scene):
    await scene.both()
    await scene.both(encrypt=False)
    why = (await told(scene))["why"]
    assert ("encryption off", True) == (why["check"], "turn encryption on at the end of l-a" in why["next"])


async def test_a_link_whose_ends_have_not_opened_yet_is_not_ok(scene):
    await scene.both()
    await scene.both(path="closed")
    why = (await told(scene))["why"]
    assert ("gate closed", "no open path at the end of l-a") == (why["check"], why["detail"])


async def test_after_a_restart_a_link_is_not_ok_before_both_ends_spoke(scene):
    await scene.both()
    scene.gate = Gate(scene.gate.ports)
    assert "not judged" == (await told(scene))["why"]["check"]
    await scene.gate.load()
    await scene.gate.step()
    why = (await told(scene))["why"]
    assert ("no sample", REPAIR) == (why["check"], why["next"])


async def test_a_first_keying_that_has_not_begun_is_not_ok(scene):
    scene.keyed = KeyState()
    await scene.both()
    assert "never keyed" == (await told(scene))["why"]["check"]


async def test_the_webhook_and_the_api_say_the_same_of_a_link_at_every_moment(scene):
    """An agent is killed; both are asked each 100 ms, and at the very end of the evidence."""
    request = next(request for name, request in example_requests() if name == "compliant")
    found, engine, bundle = facts(request, NoLookup(), cluster="train-us"), WasmEngine(shipped()), shipped()

    def admits():
        given = dict.fromkeys(postures(), scene.gate.postures()["l"])
        slice_ = context(found, estate(), given)
        return decide(engine, bundle, found, slice_, None, scene.now).allowed

    await scene.both()
    began, said = scene.now, []
    moments = {began + step * S // 10 for step in range(70)} | {
        began + fresh_for_ns(LINK) + n for n in (-1, 0)
    }
    try:
        for number, scene.now in enumerate(sorted(moments)):
            if number % 3 == 0:
                await scene.gate.step()
            link = await told(scene)
            shown = link["posture"]
            said.append((scene.now, admits()))
            assert said[-1][1] == ((shown["state"], shown["posture"]) == ("open", "encrypted"))
            assert said[-1][1] == (link["why"]["check"] == "ok")
    finally:
        engine.close()
    last = max(at for at, admitted in said if admitted)
    assert began + fresh_for_ns(LINK) - 1 == last
    assert {True, False} == {admitted for _, admitted in said}


def test_a_sample_is_relied_on_until_the_next_is_due_and_then_for_arm():
    """The interval is the agent's own: it pulls, with a sample, at a third of its permit's ttl."""
    for ttl in (3 * S, 4 * S, 120 * S):
        profile = dataclasses.replace(LINK.profile, ttl_ns=ttl)
        waited = []
        agent = SimpleNamespace(
            config=SimpleNamespace(timers=SimpleNamespace(permit_retry_ms=1_000)),
            pull=lambda: PermitKind.PERMIT,
            keeper=SimpleNamespace(standing=SimpleNamespace(permit=SimpleNamespace(ttl_ms=ttl // 1_000_000))),
            _pull_now=SimpleNamespace(clear=bool, wait=waited.append),
        )
        Agent._permit_pass(agent)
        bound = fresh_for_ns(dataclasses.replace(LINK, profile=profile))
        assert pytest.approx(waited[0] + (profile.arm_ns + MARGIN_NS) / S, abs=0.001) == bound / S


def test_what_is_declared_or_measured_does_not_turn_into_silence():
    off = dataclasses.replace(posture("violation", "open", "encryption_off"), fresh_until_ns=5)
    assert ("violation", "encryption_off", "closed") == (
        as_of(off, 5).posture,
        as_of(off, 5).reason,
        as_of(off, 5).state,
    )
    assert off is as_of(off, 4)
