"""One chain of checks answers both "start?" and "why not?"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_lifetimes import link

from keymgmt.model import EndpointSpec
from keymgmt.scheduler import Start, View, Wait, decide

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
LIVE = {"secy": {"a": "a1", "b": "b1"}, "born_ns": str(NOW - SECOND)}
SEEN = {"a": NOW, "b": NOW}
KEYED = View(live=LIVE, last_seen_ns=SEEN, secy={"a": "a1", "b": "b1"})

CASES: dict[str, tuple[View, Start | str]] = {
    "young key": (KEYED, "ok"),
    "no key yet": (replace(KEYED, live=None), Start("first keying")),
    "asked for": (replace(KEYED, requested_by="anna"), Start("asked for by anna")),
    "SecY began anew": (
        replace(KEYED, secy={"a": "a2", "b": "b1"}),
        Start("rekey: the SecY of end a began anew"),
    ),
    "no sample yet says nothing": (replace(KEYED, secy={}), "ok"),
    "old key": (replace(KEYED, live=LIVE | {"born_ns": "0"}), Start("key age: hard")),
    "waiting after a failure": (replace(KEYED, live=None, retry_ns=NOW + 1), "retry"),
    "asked for, although waiting after a failure": (
        replace(KEYED, requested_by="anna", retry_ns=NOW + 1),
        Start("asked for by anna"),
    ),
    "partner rotates": (replace(KEYED, requested_by="anna", open_partners=frozenset({"l2"})), "partner"),
    "another link rotates": (replace(KEYED, open_partners=frozenset()), "ok"),
    "agent never seen": (replace(KEYED, requested_by="anna", last_seen_ns={"a": NOW}), "agent away"),
    "agent silent": (replace(KEYED, last_seen_ns={"a": NOW, "b": NOW - 90 * SECOND}), "agent away"),
}


@pytest.mark.parametrize("name", CASES)
def test_decision(name: str) -> None:
    view, expected = CASES[name]
    found = decide(link(diverse_partner="l2"), view, NOW)
    if isinstance(expected, str):
        assert isinstance(found, Wait)
        assert expected == found.check
    else:
        assert expected == found


def test_a_missing_agent_is_named_with_the_next_command() -> None:
    found = decide(link(), replace(KEYED, last_seen_ns={}), NOW)
    assert isinstance(found, Wait)
    assert "start or repair agent l1-a" == found.next


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"encryption": "none"}, "encryption"),
        ({"a": EndpointSpec("a", "s1", "0200000000000001")}, "agents"),
        ({"encryption": "none", "a": EndpointSpec("a", "s1", "0200000000000001")}, "encryption"),
    ],
)
def test_a_link_without_encryption_or_agents_is_never_keyed_even_when_asked_for(
    changes: dict[str, Any], check: str
) -> None:
    for view in (KEYED, replace(KEYED, requested_by="anna")):
        found = decide(link(**changes), view, NOW)
        assert isinstance(found, Wait)
        assert check == found.check


def test_bounds_of_the_two_waits() -> None:
    away = replace(KEYED, poll_ns=SECOND)
    for seen, check in ((NOW - 3 * SECOND, "ok"), (NOW - 3 * SECOND - 1, "agent away")):
        found = decide(link(), replace(away, last_seen_ns={"a": NOW, "b": seen}), NOW)
        assert isinstance(found, Wait)
        assert check == found.check
    assert Start("first keying") == decide(link(), replace(KEYED, live=None, retry_ns=NOW), NOW)
