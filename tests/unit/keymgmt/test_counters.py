from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from keymgmt.counters import (
    CLEAR_RECEIVED,
    CLEAR_SENT,
    WRONG_PEER,
    Interval,
    Violation,
    evaluate,
    local_violation,
)
from keymgmt.errors import MessageRefused, SampleRefused
from keymgmt.samples import Sample, sign_sample, verify_sample


class Key:
    def __init__(self) -> None:
        self.key = generate_private_key(SECP256R1())

    def sign(self, octets: bytes) -> bytes:
        return self.key.sign(octets, ECDSA(SHA256()))


def sample(seq: int = 1, **changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "link": "cw-gcp-1",
        "endpoint": "a",
        "agent": "cw-gcp-1-a",
        "boot_id": "boot",
        "secy_id": "secy",
        "seq": seq,
        "mono_ns": seq * 10**9,
        "wall_ns": 2**60 + seq,
        "protect": True,
        "encrypt": True,
        "validate": "strict",
        "encoding_an": 0,
        "tx_key_id": "ab" * 16,
        "path": "open",
        "faults": (),
        "violation_generation": 0,
        "counters": {},
    }
    return Sample(**(fields | changes))


def busy(seq: int, **more: int) -> Sample:
    """A sample of a healthy end that has carried `seq * 100` frames each way."""
    counters = {
        "txsc.OutPktsEncrypted": seq * 100,
        "rxsc.InPktsOK": seq * 100,
        "rxsc.InOctetsDecrypted": seq * 10_000,
    }
    return sample(seq, counters=counters | {name.replace("__", "."): value for name, value in more.items()})


def test_a_sample_survives_its_coding_and_its_signature_covers_everything() -> None:
    key = Key()
    signed = sign_sample(busy(3), key)
    back = Sample.from_json(signed.to_json())
    assert signed == back
    verify_sample(back, key.key.public_key())
    for change in (
        {"seq": 4},
        {"path": "closed"},
        {"counters": {}},
        {"secy_id": "x"},
        {"faults": ("allowed",)},
    ):
        with pytest.raises(SampleRefused):
            verify_sample(replace(back, **change), key.key.public_key())  # type: ignore[arg-type]
    with pytest.raises(SampleRefused):
        verify_sample(back, Key().key.public_key())
    with pytest.raises(SampleRefused):
        verify_sample(replace(back, signature=""), key.key.public_key())


def test_a_sample_with_64_bit_counters_has_a_digest() -> None:
    one = sample(counters={"txsc.OutOctetsEncrypted": 2**64 - 1})
    assert 64 == len(one.digest())
    assert one.digest() != sample(counters={"txsc.OutOctetsEncrypted": 2**64 - 2}).digest()


@pytest.mark.parametrize(
    "change", [{"seq": "1"}, {"path": "ajar"}, {"mono_ns": 1}, {"counters": {"x": 1}}, {"extra": 1}, {"v": 2}]
)
def test_a_malformed_sample_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MessageRefused):
        Sample.from_json(sample().to_json() | change)


@pytest.mark.parametrize(
    ("name", "code"),
    [(n, "clear_sent") for n in CLEAR_SENT]
    + [(n, "clear_received") for n in CLEAR_RECEIVED]
    + [(n, "wrong_peer") for n in WRONG_PEER],
)
def test_each_hard_counter_is_a_violation(name: str, code: str) -> None:
    found = local_violation(sample(1, counters={name: 4}), sample(2, counters={name: 5}))
    assert found is not None
    assert (code, {name: 1}) == (found.code, dict(found.counters))
    assert local_violation(sample(1, counters={name: 4}), sample(2, counters={name: 4})) is None
    assert found == Violation.from_json(found.to_json())


def test_a_new_secy_lifetime_is_judged_from_zero() -> None:
    before = sample(1, counters={"secy.OutPktsUntagged": 9})
    after = sample(2, secy_id="other", counters={"secy.OutPktsUntagged": 2})
    found = local_violation(before, after)
    assert found is not None
    assert {"secy.OutPktsUntagged": 2} == found.counters


@pytest.mark.parametrize("change", [{"protect": False}, {"encrypt": False}, {"validate": "check"}])
def test_a_configuration_that_allows_clear_frames_is_a_violation(change: dict[str, Any]) -> None:
    found = local_violation(sample(1), sample(2, **change))
    assert found is not None
    assert "config" == found.code


def judge(a: tuple[Sample, Sample], b: tuple[Sample, Sample]) -> tuple[str, str]:
    verdict = evaluate(Interval(*a), Interval(*b), rate_fps=500, skew_ns=10**8, in_flight=10)
    return verdict.encrypted, verdict.why[0]


GOOD = (busy(1), busy(2))


def test_traffic_that_was_decrypted_at_both_ends_is_encrypted() -> None:
    assert "yes" == judge(GOOD, GOOD)[0]


def test_ok_frames_alone_prove_nothing_when_octets_were_only_validated() -> None:
    """The peer with `encrypt off`: InPktsOK rises without loss, only octets move elsewhere."""
    peer = replace(busy(2), counters=busy(1).counters | {"rxsc.InPktsOK": 200, "rxsc.InOctetsValidated": 9})
    assert "no" == judge(GOOD, (busy(1), peer))[0]


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (sample(2, counters=busy(1).counters), "nothing was sent"),
        (sample(2, secy_id="new", counters=busy(2).counters), "began anew"),
        (sample(2, boot_id="new", counters=busy(2).counters), "began anew"),
        (replace(busy(2), seq=1), "not in order"),
        (
            sample(
                2, counters={"txsc.OutPktsEncrypted": 200, "rxsc.InPktsOK": 100, "rxsc.InOctetsDecrypted": 1}
            ),
            "nothing was decrypted",
        ),
    ],
)
def test_what_proves_nothing_is_unknown(last: Sample, why: str) -> None:
    encrypted, text = judge((busy(1), last), GOOD)
    assert "unknown" == encrypted
    assert why in text


def test_an_imbalance_beyond_skew_and_flight_is_unknown_and_says_which_way() -> None:
    inside = replace(busy(2), counters=busy(2).counters | {"txsc.OutPktsEncrypted": 250})
    outside = replace(busy(2), counters=busy(2).counters | {"txsc.OutPktsEncrypted": 270})
    assert "yes" == judge((busy(1), inside), GOOD)[0]
    encrypted, text = judge((busy(1), outside), GOOD)
    assert ("unknown", True) == (encrypted, text.startswith("a>b: 70"))


@pytest.mark.parametrize(
    ("more", "encrypted"),
    [
        ({}, "yes"),
        ({"secy.InPktsBadTag": 3, "port.RxFrames": 3}, "yes"),
        ({"port.TxFrames": 1}, "unknown"),
        ({"port.RxFrames": 1}, "unknown"),
        ({"port.TxFrames": -1}, "unknown"),
    ],
    ids=["all counted", "bad tags are counted too", "one left past the SecY", "one came past it", "one lost"],
)
def test_port_identity_frames_past_the_secy_prove_nothing(more: dict[str, int], encrypted: str) -> None:
    """SecY counters say nothing of frames that bypass the SecY; the port's own do."""
    first, last = busy(1), busy(2)
    base = {"port.TxFrames": 0, "port.RxFrames": 0}
    moved = {
        "port.TxFrames": last.counters["txsc.OutPktsEncrypted"] - first.counters["txsc.OutPktsEncrypted"],
        "port.RxFrames": last.counters["rxsc.InPktsOK"] - first.counters["rxsc.InPktsOK"],
    }
    a = Interval(
        replace(first, counters={**first.counters, **base}),
        replace(
            last,
            counters={
                name: {**last.counters, **moved}.get(name, 0) + more.get(name, 0)
                for name in {*last.counters, *moved, *more}
            },
        ),
    )
    verdict = evaluate(a, Interval(first, last), rate_fps=500, skew_ns=10**8, in_flight=10)
    assert encrypted == verdict.encrypted, verdict.why
