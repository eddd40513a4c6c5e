"""A judgement as it is stored, and what turns in it are worth a record. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from evidence.records import Draft
from keymgmt.model import LinkSpec
from keymgmt.permit import Permit, PermitKind
from policy_engine.gate.orders import Standing, next_standing
from policy_engine.gate.posture import Finding, LinkPosture, LinkView, judge

SOURCE: Final = "gate"


@dataclass(frozen=True, slots=True)
class Judged:
    """A posture, the order that stands, and the finding behind both (``None``: proved encrypted)."""

    posture: LinkPosture
    standing: Standing
    finding: Finding | None = None

    @property
    def message(self) -> str:
        """The sentence behind it, empty when encrypted."""
        return self.finding.message if self.finding is not None else ""


def assess(
    spec: LinkSpec, view: LinkView, before: Judged | None, now_ns: int, *, settled: bool = True
) -> Judged:
    """Judge a link once, going on from the judgement before. For ``settled`` see `next_standing`."""
    posture, finding = judge(view, now_ns, before.posture if before is not None else None)
    standing = next_standing(
        before.standing if before is not None else Standing(),
        posture,
        spec.profile,
        now_ns,
        settled=settled,
    )
    return Judged(posture, standing, finding)


def differs(before: Judged | None, after: Judged) -> bool:
    """Whether the row must be written again."""
    return (
        before is None
        or before.posture.generation != after.posture.generation
        or before.standing.closed != after.standing.closed
    )


def turning_points(link: str, before: Judged | None, after: Judged, now_ns: int) -> list[Draft]:
    """Records of a violation that begins or ends. Closes and reopens are recorded when an end is told."""
    was = before is not None and before.posture.posture == "violation"
    is_now = after.posture.posture == "violation"
    if was == is_now:
        return []
    shown = after.posture if is_now or before is None else before.posture
    public = {
        "link": link,
        "reason": shown.reason,
        "since": str(shown.since_ns),
        "generation": shown.generation,
        "until": None if is_now else str(now_ns),
    }
    return [Draft("violation", "estate", SOURCE, now_ns, public, {"detail": after.message} if is_now else {})]


def order_record(permit: Permit, previous: PermitKind | None, judged: Judged, now_ns: int) -> Draft | None:
    """The record of one order; a close that only repeats the one before is not recorded again."""
    common: dict[str, Any] = {
        "link": permit.link,
        "endpoint": permit.endpoint,
        "epoch": permit.epoch,
        "seq": permit.seq,
        "posture_generation": permit.posture_generation,
        "order_digest": hashlib.sha256(permit.payload()).hexdigest(),
    }
    if permit.kind is PermitKind.CLOSE:
        if previous is PermitKind.CLOSE:
            return None
        public = common | {"reason": permit.reason, "since": str(judged.standing.since_ns)}
        return Draft("close", "estate", SOURCE, now_ns, public)
    if permit.kind is PermitKind.REOPEN:
        return Draft("reopen", "estate", SOURCE, now_ns, common | {"reason": permit.reason})
    public = common | {
        "ttl_ms": permit.ttl_ms,
        "max_hold_ms": permit.max_hold_ms,
        "arm_ms": permit.arm_ms,
        "violation_generation": permit.violation_generation,
        "sample_digest": permit.sample_digest,
    }
    return Draft(
        "permit", "estate", SOURCE, now_ns, public, {"boot_id": permit.boot_id, "nonce": permit.nonce}
    )
