"""What the conductor makes of rows it read: outcomes, refusals by a fence, a link's standing. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from keymgmt.checks import take
from keymgmt.errors import SaidNo
from keymgmt.journal_rows import LinkEntry, Loaded, OpEntry
from keymgmt.lease import Term
from keymgmt.lifetimes import retry_wait_ns
from keymgmt.limits import Limits
from keymgmt.operations import RESULTS, OpKind
from keymgmt.rotation import Outcome, Rotation

STALE: Final = "stale_token"
_FENCE_CODES: Final = frozenset({STALE, "stale_seq", "expired"})  # keymgmt.agents.fence
_JUMP: Final = 2**32  # an agent that reports more above us than this lies: tokens end at 2**53


def outcome(entry: OpEntry) -> Outcome:
    """An acknowledgement as the machine takes it; a result of another shape counts as a failure."""
    if entry.status != "done":
        status = "refused" if entry.status == "refused" else "failed"
        return Outcome(status, {}, f"end {entry.side}: {entry.kind}: {entry.why}"[:512])  # type: ignore[arg-type]
    try:
        return Outcome(
            "done", take(dict(entry.result), RESULTS[OpKind(entry.kind)], f"result of {entry.kind}")
        )
    except SaidNo as error:
        return Outcome("failed", {}, f"end {entry.side}: {error}")


def fenced_off(entry: OpEntry, term: Term) -> bool:
    """True for a refusal by the agent's fence or clock: the order was never looked at.

    One that reports a token or place which no history can explain is an ordinary refusal: an agent must not
    be able to use up the numbers that all agents share.
    """
    return entry.status == "refused" and code(entry) in _FENCE_CODES and known(entry) - term.token < _JUMP


def code(entry: OpEntry) -> str:
    """The code of a refusal."""
    return entry.why.partition(":")[0]


def known(entry: OpEntry) -> int:
    """The token or place that the agent's fence holds, as its refusal reports it."""
    value = entry.result.get("last", 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def cancelled(before: Rotation | None, after: Rotation, loaded: Loaded) -> list[str]:
    """Operations of a step that was left: an agent that has not seen them must not do so any more."""
    if before is None or before.serial == after.serial:
        return []
    return [op_id for op_id, entry in loaded.operations.items() if entry.status == "pending"]


def standing(entry: LinkEntry, state: Rotation, limits: Limits, now: int) -> LinkEntry | None:
    """The link's standing after this write; None when it does not change."""
    if state.end is None:
        return None
    entry = replace(entry, last_end=state.end, last_why=state.why or None)
    if state.end == "complete":
        live = {
            "an": state.memo["an"],
            "key_ids": state.memo["key_ids"],
            "secy": state.memo["secy"],
            "born_ns": str(_born(state)),
            "rotation": state.rotation,
        }
        return replace(entry, live=live, failures=0, retry_ns=0)
    if state.end == "rekeyed":
        return replace(entry, live=None, failures=0, retry_ns=0)
    failures = entry.failures + 1
    wait = retry_wait_ns(failures, limits.retry_first_ms, limits.retry_max_ms)
    return replace(entry, failures=failures, retry_ns=now + wait)


def _born(state: Rotation) -> int:
    """When the new key came into use at both ends: the commit."""
    return next((p.left_ns for p in state.trail if p.step == "confirm"), state.entered_ns)
