"""The gate: which order answers a pull, in one transaction with its record; agents accept what it signs."""

import dataclasses

import pytest
from gate_scene import LINK, S, Sealed

from keymgmt.errors import PermitRefused
from keymgmt.permit import PermitKind
from keymgmt.permit_request import PermitRequest
from policy_engine.gate import signer as signers
from policy_engine.gate.gather import KeyState
from policy_engine.gate.loop import Gate
from policy_engine.gate.permits import PermitIssuer


async def test_a_proved_link_gets_permits_that_agents_accept(scene):
    await scene.both()
    first, second = await scene.pull(), await scene.pull()
    assert (PermitKind.PERMIT, 3000, 4000, 2000) == (
        first.kind,
        first.ttl_ms,
        first.max_hold_ms,
        first.arm_ms,
    )
    assert first.order < second.order
    assert ["permit", "permit"] == await scene.kinds()
    assert "encrypted" == scene.gate.postures()["l"].posture


async def test_nothing_is_permitted_before_a_proof(scene):
    with pytest.raises(PermitRefused, match="not proved"):
        await scene.pull()
    scene.keyed = KeyState()
    await scene.both()
    with pytest.raises(PermitRefused, match="first keying"):
        await scene.pull()
    assert [] == await scene.kinds()


async def test_an_agent_gets_orders_for_its_own_end_only(scene):
    await scene.both()
    with pytest.raises(PermitRefused, match="does not keep that end"):
        await scene.pull("a", agent="l-b")


async def test_an_end_whose_own_sample_shows_no_protection_gets_no_permit(scene):
    await scene.both()
    with pytest.raises(PermitRefused, match="protection is off"):
        await scene.pull(encrypt=False)


async def test_a_violation_closes_both_ends_until_a_repair_is_measured(scene):
    await scene.both()
    await scene.pull()
    await scene.both(encrypt=False)
    posture = scene.gate.postures()["l"]
    assert ("violation", "closed", "encryption_off") == (posture.posture, posture.state, posture.reason)
    assert [PermitKind.CLOSE] * 3 == [
        (await scene.pull("a", encrypt=False)).kind,
        (await scene.pull("b")).kind,
        (await scene.pull("b")).kind,
    ]
    await scene.both(times=3)
    assert "encrypted" == scene.gate.postures()["l"].posture
    assert [PermitKind.REOPEN, PermitKind.PERMIT] == [(await scene.pull("a")).kind for _ in range(2)]
    assert ["permit", "violation", "close", "close", "violation", "reopen", "permit"] == await scene.kinds()


async def test_clear_frames_at_the_guard_are_a_violation_though_the_configuration_looks_right(scene):
    await scene.both()
    scene.counters["a"]["guard.OutDropped"] = 5
    await scene.both(times=1)
    assert ("violation", "clear_sent") == (
        scene.gate.postures()["l"].posture,
        scene.gate.postures()["l"].reason,
    )


async def test_silence_of_the_peer_is_held_for_max_hold_and_no_longer(scene):
    scene.now += 20 * S
    await scene.both()
    await scene.pull("a")
    scene.now += 6 * S
    assert (
        "encrypted" != scene.gate.postures()["l"].posture
        or scene.gate.postures()["l"].fresh_until_ns < scene.now
    )
    await scene.gate.step()
    assert PermitKind.CLOSE == (await scene.pull("a")).kind
    assert "closed" == scene.gate.postures()["l"].state


async def test_a_hold_shrinks_to_what_is_left(scene):
    scene.now += 20 * S
    long = dataclasses.replace(LINK, profile=dataclasses.replace(LINK.profile, max_hold_ns=20 * S))
    scene.gate.ports = dataclasses.replace(scene.gate.ports, links=lambda: {"l": long})
    await scene.both()
    scene.now += 6 * S
    permit = await scene.pull("a")
    assert (PermitKind.PERMIT, 14_000) == (permit.kind, permit.max_hold_ms)


async def test_a_close_survives_a_restart(scene):
    await scene.both()
    await scene.both(encrypt=False)
    scene.gate = Gate(scene.gate.ports)
    scene.issuer = PermitIssuer(scene.gate, lambda: scene.signer)
    await scene.gate.load()
    assert "closed" == scene.gate.postures()["l"].state
    assert PermitKind.CLOSE == (await scene.pull("a")).kind


async def test_a_gate_that_was_away_longer_than_the_hold_closes_nothing_before_agents_could_speak(scene):
    await scene.both()
    scene.now += 8 * S
    scene.gate = Gate(scene.gate.ports)
    scene.issuer = PermitIssuer(scene.gate, lambda: scene.signer)
    await scene.gate.load()
    await scene.gate.step()
    assert not scene.gate.standing("l").closed
    held = await scene.pull("a")
    assert (PermitKind.PERMIT, 0) == (held.kind, held.max_hold_ms)
    scene.now += 11 * S
    await scene.gate.step()
    assert scene.gate.standing("l").closed


async def test_an_old_sample_is_not_judged_again(scene):
    await scene.both()
    scene.seq["a"] = 0
    with pytest.raises(PermitRefused, match="older"):
        await scene.pull("a")


async def test_links_that_nothing_keys_have_a_posture_too(scene):
    await scene.gate.step()
    old = scene.gate.postures()["old"]
    assert ("none", "none", "unknown") == (old.encryption, old.state, old.posture)


async def test_orders_stay_above_what_the_agent_has_seen(scene):
    await scene.both()
    scene.order["a"] = (1, 500)
    assert (1, 501) == (await scene.pull("a")).order


@pytest.mark.parametrize("named", [2**53 - 1, 2**53 - 2, 2**24 + 1])
async def test_an_end_that_names_an_order_it_cannot_have_still_gets_the_next_one(scene, named):
    """Sequences end at 2**53: whoever could push the count there would leave that end without a close."""
    await scene.both()
    sample = scene.sample("a")
    request = PermitRequest("l-a", "l", "a", "ab" * 16, "boot", "secy-a", (1, named), 0, False, sample)
    await scene.issuer.answer(request)
    assert (1, 2) == (await scene.pull("a")).order


async def test_a_database_that_lost_some_orders_follows_the_agent(scene):
    await scene.both()
    scene.order["a"] = (1, 2**24)
    assert (1, 2**24 + 1) == (await scene.pull("a")).order


def test_replicas_share_one_signer_and_renew_it_at_half(tmp_path):
    custody, now = Sealed(), 1_000 * S
    first = signers.obtain(custody, 1, now, 100 * S)
    assert first.key_id == signers.obtain(custody, 1, now + 49 * S, 100 * S).key_id
    assert first.key_id != signers.obtain(custody, 1, now + 51 * S, 100 * S).key_id
    assert first.key_id != signers.obtain(custody, 2, now, 100 * S).key_id
    assert "_private" not in repr(first)
