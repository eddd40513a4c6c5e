"""Whether a link's next rotation may start now, and if not, the first check that says no. Pure.

The same chain answers the reconcile loop ("start, with this reason") and `links --why` ("wait, because"),
where posture and gate are asked after it (`policy_engine.gate.why`).
At most one rotation runs on a link or its diverse partner, so that a pair never loses both at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keymgmt.lifetimes import age, thresholds
from keymgmt.model import SIDES, LinkSpec

_AWAY_FACTOR = 3  # polls missed before an agent counts as away


@dataclass(frozen=True, slots=True)
class View:
    """What is known of one link at one moment.

    Attributes:
        live: the key pair in use as the journal has it, see `journal.LinkEntry`.
        open_partners: diverse partners with an open rotation, whichever of a pair names the other.
        requested_by: who asked for a rotation, None for nobody.
        last_seen_ns: per side, when its agent last polled; None for never.
        secy: per side, the SecY lifetime of the newest sample; absent when there is none.
        retry_ns: no automatic start before this.
        poll_ns: how long a poll is held.
    """

    live: Mapping[str, Any] | None = None
    open_partners: frozenset[str] = frozenset()
    requested_by: str | None = None
    last_seen_ns: Mapping[str, int | None] = field(default_factory=dict)
    secy: Mapping[str, str] = field(default_factory=dict)
    retry_ns: int = 0
    poll_ns: int = 25_000_000_000


@dataclass(frozen=True, slots=True)
class Start:
    """Start a rotation now, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do not start; the first check that says so.

    Attributes:
        check: name of the check; "ok" when nothing is wrong and the key is simply young.
        detail: for people.
        next: the operator's next command, "" when there is nothing to do.
        until_ns: when a look is worth it; None for "on the next event".
    """

    check: str
    detail: str
    next: str = ""
    until_ns: int | None = None


def never_keyed(encryption: str) -> Wait:
    """Why nothing keys a declared link; the one text for it, whoever asks."""
    if encryption == "none":
        return Wait(
            "encryption",
            "this link is declared without encryption: it is never keyed",
            "to have it keyed, declare `encryption: required` and an agent for both endpoints of the Link",
        )
    return Wait("agents", "an end of this link has no agent", "give both endpoints of the Link an agent")


def decide(spec: LinkSpec, view: View, now_ns: int) -> Start | Wait:
    """The chain of checks, in the order in which an operator would make them."""
    if not spec.keyed:
        return never_keyed(spec.encryption)
    away = _away(spec, view, now_ns)
    if away is not None:
        return away
    if view.open_partners:
        partner = min(view.open_partners)
        detail = f"a rotation is open on the diverse partner {partner}"
        return Wait("partner", detail, f"sluicegate links --why {partner}")
    if view.requested_by is not None:
        return Start(f"asked for by {view.requested_by}")
    if now_ns < view.retry_ns:
        return Wait(
            "retry", "the last rotation did not complete; waiting before the next try", "", view.retry_ns
        )
    if view.live is None:
        return Start("first keying")
    dead = _dead_secy(view)
    if dead is not None:
        return Start(f"rekey: the SecY of end {dead} began anew")
    return _by_age(spec, view.live, now_ns)


def _away(spec: LinkSpec, view: View, now_ns: int) -> Wait | None:
    for side in SIDES:
        seen = view.last_seen_ns.get(side)
        if seen is None or now_ns - seen > _AWAY_FACTOR * view.poll_ns:
            agent = spec.end(side).agent
            since = (
                "has not connected yet" if seen is None else f"was last seen {(now_ns - seen) // 10**9} s ago"
            )
            return Wait(
                "agent away", f"agent {agent} {since}; no key is minted", f"start or repair agent {agent}"
            )
    return None


def _dead_secy(view: View) -> str | None:
    """The end whose SecY lifetime differs from the one that the key was installed in."""
    assert view.live is not None
    known: Mapping[str, str] = view.live["secy"]
    return next((side for side in SIDES if side in view.secy and view.secy[side] != known[side]), None)


def _by_age(spec: LinkSpec, live: Mapping[str, Any], now_ns: int) -> Start | Wait:
    born = int(live["born_ns"])
    stage = age(spec.profile, spec.name, born, now_ns)
    if stage == "fresh":
        at = thresholds(spec.profile, spec.name, born).prepare_ns
        return Wait(
            "ok", f"key in use for {(now_ns - born) // 10**9} s", f"sluicegate rotate {spec.name}", at
        )
    return Start(f"key age: {stage}")
