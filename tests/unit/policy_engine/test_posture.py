"""The posture chain: nothing is encrypted until both ends prove it, and the first reason is named."""

import dataclasses

import pytest

from policy_engine.gate import posture as p

S = 1_000_000_000
NOW = 1_000 * S


def end(agent="l-a", *, tx="k1", **changes):
    values = {
        "agent": agent,
        "received_ns": NOW - S,
        "protect": True,
        "encrypt": True,
        "tx_key_id": tx,
        "proved_ns": NOW - S,
        "off_samples": 0,
        "measured": None,
        "reported": None,
        "guard": True,
        "path_open": True,
    }
    return p.EndView(**(values | changes))


def view(a=None, b=None, **changes):
    values = {
        "name": "l",
        "encryption": "required",
        "cipher": "GCM-AES-XPN-256",
        "cipher_in_use": "GCM-AES-XPN-256",
        "ends": (a or end(), b or end("l-b", tx="k2")),
        "agents": ("l-a", "l-b"),
        "keyed": True,
        "parked": False,
        "key_since_ns": NOW - 60 * S,
        "hard_age_ns": 0,
        "fresh_for_ns": 15 * S,
        "prove_within_ns": 10 * S,
    }
    return p.LinkView(**(values | changes))


def test_two_proving_ends_are_encrypted_and_open():
    posture, finding = p.judge(view(), NOW)
    assert finding is None
    assert ("encrypted", "encrypted", "open") == (posture.posture, posture.reason, posture.state)
    assert NOW - S + 15 * S == posture.fresh_until_ns


CASES = {
    "no encryption declared": (view(encryption="none"), p.NOT_REQUIRED, "unknown"),
    "no agents": (view(agents=("", "l-b")), p.NO_AGENTS, "unknown"),
    "never keyed": (view(keyed=False), p.NEVER_KEYED, "unknown"),
    "off twice": (view(end(encrypt=False, off_samples=2)), p.ENCRYPTION_OFF, "violation"),
    "off once, reported by the agent": (
        view(end(protect=False, off_samples=1, reported="config")),
        p.ENCRYPTION_OFF,
        "violation",
    ),
    "off once": (view(end(encrypt=False, off_samples=1)), p.UNCONFIRMED, "unknown"),
    "reported": (view(end(reported="wrong_peer")), "wrong_peer", "violation"),
    "clear frames": (view(end(measured="clear_sent")), "clear_sent", "violation"),
    "one end silent": (view(ends=(end(), None)), p.NO_SAMPLE, "unknown"),
    "stale": (view(end(received_ns=NOW - 16 * S)), p.STALE_SAMPLE, "unknown"),
    "no guard": (view(end(guard=False)), p.GUARD_MISSING, "unknown"),
    "no key": (view(end(tx=None)), p.KEY_UNKNOWN, "unknown"),
    "other cipher": (view(cipher="GCM-AES-256"), p.CIPHER_DIFFERS, "policy"),
    "no probe": (view(end(proved_ns=NOW - 11 * S)), p.NOT_PROVED, "unknown"),
    "parked": (view(parked=True), p.PARKED, "unknown"),
    "past hard age": (view(hard_age_ns=59 * S), p.HARD_AGE, "unknown"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_failing_check_is_named(name):
    given, reason, reason_class = CASES[name]
    posture, finding = p.judge(given, NOW)
    assert (reason, reason_class) == (finding.reason, finding.reason_class)
    assert finding.message
    assert ("violation" if reason_class == "violation" else "unknown") == posture.posture


def test_a_measured_violation_beats_what_could_not_be_told():
    _, finding = p.judge(view(end(encrypt=False, off_samples=3, received_ns=NOW - 99 * S)), NOW)
    assert p.ENCRYPTION_OFF == finding.reason


def test_every_missing_field_of_evidence_is_never_encrypted():
    for one in (end(path_open=False), end("l-a", received_ns=0), end(tx=None)):
        posture, _ = p.judge(view(one), NOW)
        assert not (posture.posture == "encrypted" and posture.state == "open")


def test_an_empty_chain_proves_nothing(monkeypatch):
    monkeypatch.setattr(p, "CHAIN", ())
    posture, finding = p.judge(view(), NOW)
    assert ("unknown", p.NOT_PROVED) == (posture.posture, finding.reason)


def test_since_and_generation_move_only_with_the_verdict():
    first, _ = p.judge(view(), NOW)
    same, _ = p.judge(view(), NOW + S, first)
    assert (first.since_ns, first.generation) == (same.since_ns, same.generation)
    off, _ = p.judge(view(end(encrypt=False, off_samples=2)), NOW + 2 * S, same)
    assert (NOW + 2 * S, same.generation + 1) == (off.since_ns, off.generation)
    closed, _ = p.judge(view(end(path_open=False)), NOW + 3 * S, same)
    assert (same.since_ns, same.generation + 1) == (closed.since_ns, closed.generation)


def test_the_posture_holds_just_what_the_context_carries():
    names = [field.name for field in dataclasses.fields(p.LinkPosture)]
    assert [
        "encryption",
        "state",
        "posture",
        "reason",
        "since_ns",
        "fresh_until_ns",
        "generation",
    ] == names
