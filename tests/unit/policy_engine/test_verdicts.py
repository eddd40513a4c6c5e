"""Verdict records: a silence longer than a sample may be relied on is never `encrypted: yes`."""

import pytest

from keymgmt.samples import Sample
from policy_engine.gate.verdicts import VerdictBatch

S = 1_000_000_000
BEGIN = 1_000 * S
NAMES = ("rxsc.InPktsOK", "rxsc.InOctetsDecrypted", "txsc.OutPktsEncrypted", "txsc.OutOctetsEncrypted")


def sample(end, seq, at_ns, **changes):
    fields = {
        "link": "l",
        "endpoint": end,
        "agent": f"l-{end}",
        "boot_id": "boot",
        "secy_id": f"secy-{end}",
        "seq": seq,
        "mono_ns": at_ns,
        "wall_ns": at_ns,
        "protect": True,
        "encrypt": True,
        "validate": "strict",
        "encoding_an": 0,
        "tx_key_id": ("a" if end == "a" else "b") * 32,
        "path": "open",
        "faults": (),
        "violation_generation": 0,
        "counters": dict.fromkeys(NAMES, 100 * seq),
    }
    return Sample(**(fields | changes))


def judged(times, end_s, *, silent_end=None, **changes):
    """The record of an interval in which both ends sent samples at these seconds."""
    batch = VerdictBatch(BEGIN, lambda _: (), lambda _: 5 * S)
    for seq, at in enumerate(times, 1):
        for end in "ab":
            if end != silent_end or at < 3:
                batch.add(sample(end, seq, BEGIN + int(at * S), **changes), BEGIN + int(at * S))
    return batch, batch.flush(["l"], BEGIN + int(end_s * S))[0].public


def test_samples_without_a_gap_prove_it():
    public = judged([0, 2, 4, 6, 8, 10], 12)[1]
    assert "yes" == public["encrypted"]
    assert "sent no sample" not in public["reason"]


def test_exactly_the_bound_is_no_gap():
    assert "yes" == judged([0, 5, 10], 15)[1]["encrypted"]


@pytest.mark.parametrize(
    ("times", "end_s"),
    [([0, 2, 12.5, 14], 14.2), ([7, 9, 11], 12), ([0, 2, 4], 14)],
    ids=["in the middle", "at the beginning", "at the end"],
)
def test_a_silence_makes_it_unknown_with_its_length(times, end_s):
    public = judged(times, end_s)[1]
    assert "unknown" == public["encrypted"]
    assert public["reason"].startswith("end a sent no sample for ")
    assert public["reason"].endswith("s; one is relied on for 5 s")


def test_one_silent_end_is_enough_and_is_named():
    public = judged([0, 2, 4, 6, 8], 9, silent_end="b")[1]
    assert "unknown" == public["encrypted"]
    assert "end b" in public["reason"]


def test_what_is_proved_not_encrypted_stays_so():
    batch = VerdictBatch(BEGIN, lambda _: (), lambda _: 5 * S)
    for seq, at in ((1, 0), (2, 11)):
        for end in "ab":
            batch.add(sample(end, seq, BEGIN + at * S, encrypt=False), BEGIN + at * S)
    assert "no" == batch.flush(["l"], BEGIN + 12 * S)[0].public["encrypted"]


def test_a_silence_over_the_border_of_two_intervals_counts_in_the_second():
    batch, first = judged([0, 2, 4], 7)
    assert "yes" == first["encrypted"]
    for seq, at in ((4, 10), (5, 12)):
        for end in "ab":
            batch.add(sample(end, seq, BEGIN + at * S), BEGIN + at * S)
    second = batch.flush(["l"], BEGIN + 13 * S)[0].public
    assert ("unknown", "end a sent no sample for 6.0 s; one is relied on for 5 s") == (
        second["encrypted"],
        second["reason"],
    )


def test_a_fault_that_an_end_names_is_told_though_this_system_allows_none():
    assert judged([0, 2], 3)[1]["faults_enabled"] is False
    assert judged([0, 2], 3, faults=("encrypt_off",))[1]["faults_enabled"] is True
