"""What scheduler and journal say of a link. Posture and gate are added by `policy_engine.gate.why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from keymgmt.journal_rows import Loaded
from keymgmt.limits import Limits
from keymgmt.model import SIDES, LinkSpec
from keymgmt.rotation import Rotation, Table, outstanding
from keymgmt.scheduler import View, Wait, decide

_BY_KEY_STORE: Final = " by the key store"


class Presence(Protocol):
    """What the hub knows of agents; the conductor only reads it."""

    def last_seen_ns(self, agent: str) -> int | None:
        """Wall clock of an agent's last poll."""
        ...

    def secy_of(self, link: str, endpoint: str) -> str | None:
        """SecY lifetime of the newest sample of an end."""
        ...


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """What `links` shows of one link.

    Attributes:
        live: {"an", "key_ids", "secy", "born_ns", "rotation"} or None before the first key.
        rotation: the open rotation.
        waiting: what it waits for, "read by cw-gcp-1-a".
        why: the first check of the scheduler that stands in the way; check "ok" when none does.
        custody: why the key store did not answer, "" when it did.
        recent: newest rotations, newest first.
    """

    link: str
    encryption: str
    keyed: bool
    live: Mapping[str, Any] | None
    rotation: Rotation | None
    waiting: tuple[str, ...]
    why: Wait
    last_end: str | None
    last_why: str | None
    custody: str = ""
    recent: tuple[Rotation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What the API shows: public ids, states and reasons."""
        live = dict(self.live) if self.live is not None else None
        return {
            "link": self.link,
            "encryption": self.encryption,
            "keyed": self.keyed,
            "live": live,
            "rotation": rotation_json(self.rotation) if self.rotation is not None else None,
            "waiting": list(self.waiting),
            "why": {"check": self.why.check, "detail": self.why.detail, "next": self.why.next},
            "last_end": self.last_end,
            "last_why": self.last_why,
            "recent": [rotation_json(state) for state in self.recent],
        }


def rotation_json(state: Rotation) -> dict[str, Any]:
    """One rotation without anything that is not public."""
    return {
        "rotation": state.rotation,
        "reason": state.reason,
        "step": state.step,
        "parked": state.parked,
        "alarm": state.alarm,
        "end": state.end,
        "why": state.why or state.cause,
        "an": state.memo.get("an"),
        "key_ids": state.memo.get("key_ids"),
        "started_ns": str(state.started_ns),
        "steps": [
            {"step": p.step, "to": p.to, "ms": (p.left_ns - p.entered_ns) // 1_000_000, "why": p.why}
            for p in state.trail
        ],
    }


def view_of(
    spec: LinkSpec, loaded: Loaded, presence: Presence, limits: Limits, apart: frozenset[str]
) -> View:
    """The scheduler's view of one link."""
    lifetimes = {side: presence.secy_of(spec.name, side) for side in SIDES}
    return View(
        live=loaded.entry.live,
        open_partners=loaded.open_elsewhere & apart,
        requested_by=loaded.request.asked_by if loaded.request is not None else None,
        last_seen_ns={side: presence.last_seen_ns(spec.end(side).agent or "") for side in SIDES},
        secy={side: value for side, value in lifetimes.items() if value is not None},
        retry_ns=loaded.entry.retry_ns,
        poll_ns=limits.poll_hold_ms * 1_000_000,
    )


def describe(  # noqa: PLR0917 - one value per column
    spec: LinkSpec,
    loaded: Loaded,
    view: View,
    recent: Sequence[Rotation],
    table: Table,
    custody: str,
    now_ns: int,
) -> LinkStatus:
    """One link as people see it."""
    waiting = waits_for(spec, loaded.open, table, now_ns)
    return LinkStatus(
        link=spec.name,
        encryption=spec.encryption,
        keyed=spec.keyed,
        live=loaded.entry.live,
        rotation=loaded.open,
        waiting=waiting,
        why=_why(spec, loaded, view, waiting, custody, now_ns),
        last_end=loaded.entry.last_end,
        last_why=loaded.entry.last_why,
        custody=custody,
        recent=tuple(recent),
    )


def waits_for(spec: LinkSpec, state: Rotation | None, table: Table, now_ns: int) -> tuple[str, ...]:
    """Commands of the open step without an outcome, in words."""
    if state is None:
        return ()
    return tuple(
        f"{c.kind} by {spec.end(c.side).agent}" if c.side is not None else f"{c.kind}{_BY_KEY_STORE}"
        for c in outstanding(state, spec, table, now_ns)
    )


def _why(  # noqa: PLR0917
    spec: LinkSpec, loaded: Loaded, view: View, waiting: Sequence[str], custody: str, now_ns: int
) -> Wait:
    state = loaded.open
    if state is None:
        decision = decide(spec, view, now_ns)
        return decision if isinstance(decision, Wait) else Wait("starting", decision.reason)
    if custody and any(text.endswith(_BY_KEY_STORE) for text in waiting):
        return Wait("key store", custody, "unseal or restart OpenBao")
    detail = "; ".join(text for text in (state.alarm, state.cause, state.waits) if text)
    detail = detail or (f"waiting for {', '.join(waiting)}" if waiting else "waiting")
    return Wait(f"rotation in step {state.step}", detail, _command(spec, state, waiting))


def _command(spec: LinkSpec, state: Rotation, waiting: Sequence[str]) -> str:
    """What an operator does about an open rotation; nothing while it runs as it should."""
    if not state.alarm:
        return ""
    silent = [text.rpartition(" by ")[2] for text in waiting if not text.endswith(_BY_KEY_STORE)]
    if silent:
        return f"start or repair agent {silent[0]}"
    if waiting:
        return "unseal or restart OpenBao"
    return f"read the logs of agents {spec.a.agent} and {spec.b.agent}: one cannot go on, both keys stay"
