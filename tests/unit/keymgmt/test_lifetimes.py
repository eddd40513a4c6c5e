"""Thresholds of a key's life: pure, jittered only towards earlier, never due late."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.errors import LinkRefused
from keymgmt.lifetimes import age, jitter_ns, retry_wait_ns, thresholds
from keymgmt.model import EndpointSpec, LinkSpec, ProfileSpec, ssci

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
BORN = 1_800_000_000 * SECOND


@given(st.text(min_size=1, max_size=20), st.integers(0, 2**62), st.integers(0, HOUR))
def test_jitter_is_stable_and_within_its_width(link: str, born: int, width: int) -> None:
    offset = jitter_ns(link, born, width)
    assert offset == jitter_ns(link, born, width)
    assert 0 <= offset < max(width, 1)


@given(st.integers(0, 2**62))
def test_a_rotation_starts_early_enough_and_never_after_it_is_due(born: int) -> None:
    profile = ProfileSpec("p")
    t = thresholds(profile, "l1", born)
    assert born + profile.rotate_every_ns == t.due_ns
    assert t.due_ns - profile.prepare_before_ns - profile.jitter_ns <= t.prepare_ns
    assert t.prepare_ns <= t.due_ns - profile.prepare_before_ns


STAGES = {
    "just born": (0, "fresh"),
    "an hour before the earliest start": (21 * HOUR, "fresh"),
    "prepare": (23 * HOUR, "prepare"),
    "due": (24 * HOUR, "due"),
    "soft age": (36 * HOUR, "soft"),
    "hard age": (72 * HOUR, "hard"),
    "the clock stepped back": (-HOUR, "fresh"),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_of_a_key(name: str) -> None:
    passed, stage = STAGES[name]
    assert stage == age(ProfileSpec("p"), "l1", BORN, BORN + passed)


def test_links_of_one_birth_do_not_rotate_at_once() -> None:
    starts = {thresholds(ProfileSpec("p"), f"link-{number}", BORN).prepare_ns for number in range(50)}
    assert 50 == len(starts)


def test_waits_after_failures_double_up_to_a_bound() -> None:
    waits = [retry_wait_ns(n, 2_000, 300_000) // SECOND for n in range(12)]
    assert [0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300] == waits


PROFILES = {
    "unknown cipher": {"cipher": "AES"},
    "three association numbers": {"max_sa_per_sc": 3},
    "should-secure": {"must_secure": False},
    "no revert time": {"revert_after_ns": 0},
    "the watchdog outlives the rotation": {"revert_after_ns": 400 * SECOND},
    "no time between rotations": {"prepare_before_ns": 24 * HOUR},
    "alarm after the end": {"soft_age_ns": 80 * HOUR},
    "32-bit PN at 100 Gb/s": {"cipher": "GCM-AES-256", "line_rate_gbps": 100},
    "32-bit PN that could run out within a hold": {"cipher": "GCM-AES-256", "line_rate_gbps": 10},
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_that_cannot_be_keyed_safely_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(LinkRefused) as refused:
        ProfileSpec("p", **PROFILES[name])  # type: ignore[arg-type]
    assert refused.value.fix


def test_a_32_bit_pn_is_accepted_where_it_cannot_run_out() -> None:
    short = {"max_hold_ns": 60 * SECOND, "line_rate_gbps": 1, "total_deadline_ns": 90 * SECOND}
    assert not ProfileSpec("p", cipher="GCM-AES-256", **short).xpn  # type: ignore[arg-type]


def link(**changes: object) -> LinkSpec:
    a = EndpointSpec("a", "s1", "0200000000000001", "l1-a")
    b = EndpointSpec("b", "s2", "0200000000000002", "l1-b")
    return LinkSpec(**({"name": "l1", "profile": ProfileSpec("p"), "a": a, "b": b} | changes))  # type: ignore[arg-type]


def test_links_with_equal_scis_or_one_agent_are_refused() -> None:
    with pytest.raises(LinkRefused, match="SCI"):
        link(b=EndpointSpec("b", "s2", "0200000000000001", "l1-b"))
    with pytest.raises(LinkRefused, match="one agent"):
        link(b=EndpointSpec("b", "s2", "0200000000000002", "l1-a"))
    with pytest.raises(LinkRefused, match="own diverse partner"):
        link(diverse_partner="l1")
    with pytest.raises(LinkRefused, match="hex"):
        EndpointSpec("a", "s1", "02:00")


def test_a_link_without_agents_or_encryption_is_never_keyed() -> None:
    assert link().keyed
    assert not link(encryption="none").keyed
    assert not link(a=EndpointSpec("a", "s1", "0200000000000001")).keyed


def test_ssci_1_belongs_to_the_greater_sci() -> None:
    assert (1, 2) == (
        ssci("02ff000000000001", "0200000000000002"),
        ssci("0200000000000002", "02ff000000000001"),
    )
    with pytest.raises(LinkRefused):
        ssci("0200000000000002", "0200000000000002")
