"""What stands in a link's way: the first of scheduler, posture and gate that is not good. Pure.

Each names its own next step. What only takes its time (a rotation that runs, a second sample that is due)
gives way to what somebody has to act on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from keymgmt.scheduler import Wait
from policy_engine.gate.orders import Standing
from policy_engine.gate.posture import Finding, LinkPosture

OK: Final = "ok"


def first(
    scheduler: Wait,
    posture: LinkPosture | None,
    finding: Finding | None,
    standing: Standing,
    shut: Collection[str],
) -> Wait:
    """The one thing to show; check "ok" only for a link over which admission lets data move.

    Args:
        scheduler: What the scheduler says: of agents, rotations and the key's age.
        posture: The posture as of now; None before the first judgement.
        finding: What is behind it; None when it is ``encrypted``.
        standing: The order that stands.
        shut: Agents whose ends report a closed path.
    """
    found = (_of_posture(posture, finding), _of_gate(posture, standing, shut))
    wrong = [one for one in (scheduler, *found) if one is not None and one.check != OK]
    return next((one for one in wrong if one.next), wrong[0] if wrong else scheduler)


def _of_posture(posture: LinkPosture | None, finding: Finding | None) -> Wait | None:
    if posture is None:
        return Wait("not judged", "the gate has not judged this link yet")
    if finding is None:
        return None
    return Wait(_words(finding.reason), finding.message, finding.fix)


def _of_gate(posture: LinkPosture | None, standing: Standing, shut: Collection[str]) -> Wait | None:
    if posture is None or posture.state == "open":
        return None
    if standing.closed:
        return Wait("gate closed", f"closed by order: {_words(standing.reason)}")
    if posture.posture != "encrypted" or not shut:
        return Wait("gate closed", "no open path is reported by both ends")
    agents = " and ".join(sorted(shut))
    return Wait(
        "gate closed",
        f"no open path at the end of {agents}",
        f"if it stays so, read the log of agent {min(shut)}",
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ")
