"""Which order answers an agent's pull: permit, close or reopen, or none. Pure.

Classes of reason act apart (rotation.md section 5): a violation closes at once; policy and unknown
hold an open path for at most ``max_hold`` since the link was last proved encrypted, and refuse new
work meanwhile; a close stands until the link is proved encrypted again, then a reopen ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keymgmt.model import ProfileSpec
from keymgmt.permit import PermitKind
from policy_engine.gate.posture import HARD_AGE, Finding, LinkPosture

_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Standing:
    """The order that stands for a link: ``open`` or ``closed``, why and since when.

    ``last_encrypted_ns`` is when the link was last proved encrypted, 0 when it never was.
    """

    closed: bool = False
    reason: str = ""
    since_ns: int = 0
    last_encrypted_ns: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What to answer. ``hold_ms`` bounds silence after ttl."""

    kind: PermitKind
    reason: str
    hold_ms: int = 0


@dataclass(frozen=True, slots=True)
class NoOrder:
    """Nothing can be said to this end yet; it stays as it is and asks again."""

    why: str


def next_standing(
    standing: Standing, posture: LinkPosture, profile: ProfileSpec, now_ns: int, *, settled: bool = True
) -> Standing:
    """What stands after one judgement.

    Args:
        standing: What stood.
        posture: The judgement.
        profile: Timers of the link.
        now_ns: The time of the judgement.
        settled: False just after the gate's own start: agents that held their paths through its absence
            have had no time to speak, so their silence closes nothing yet. A violation does.
    """
    if posture.posture == "encrypted":
        return Standing(last_encrypted_ns=now_ns, since_ns=now_ns if standing.closed else standing.since_ns)
    if standing.closed:
        return standing
    over = settled and _hold_is_over(standing, posture, profile, now_ns)
    if posture.posture == "violation" or over:
        return Standing(True, posture.reason, now_ns, standing.last_encrypted_ns)
    return standing


def _hold_is_over(standing: Standing, posture: LinkPosture, profile: ProfileSpec, now_ns: int) -> bool:
    if not standing.last_encrypted_ns:
        return False  # it was never opened: there is nothing to close
    if posture.reason == HARD_AGE:
        return profile.on_hard_age == "close"
    return now_ns - standing.last_encrypted_ns > profile.max_hold_ns


def choose(
    standing: Standing,
    posture: LinkPosture,
    finding: Finding | None,
    profile: ProfileSpec,
    now_ns: int,
    *,
    end_closed: bool,
    end_proves: bool,
) -> Order | NoOrder:
    """Choose the answer to one pull.

    Args:
        standing: What stands after this judgement (`next_standing`).
        posture: The judgement.
        finding: What is behind it.
        profile: Timers of the link.
        now_ns: The time of the judgement.
        end_closed: The asking end stands under a persisted close order.
        end_proves: The asking end's own sample shows a transmit key and protection on.
    """
    if standing.closed:
        return Order(PermitKind.CLOSE, standing.reason)
    if finding is not None and not standing.last_encrypted_ns:
        return NoOrder(f"not proved encrypted yet: {finding.message}")
    if not end_proves:
        return NoOrder("this end has no transmit key, or its protection is off")
    if end_closed:
        if finding is not None:
            return NoOrder(f"a closed end reopens only on proof: {finding.message}")
        return Order(PermitKind.REOPEN, posture.reason)
    hold = 0 if profile.on_control_loss == "close" else profile.max_hold_ns
    if finding is not None:
        hold = max(0, min(hold, standing.last_encrypted_ns + profile.max_hold_ns - now_ns))
    return Order(PermitKind.PERMIT, posture.reason, hold // _MS)
