"""Keeps the path of one link end: open only while permit, local checks and the data plane all say so.

Decisions over durable state; the loops that call it stand in `keymgmt.agents.agent` (rotation.md section 5):

* A *permit* is valid for a duration from our own request on CLOCK_BOOTTIME, bound to boot and SecY lifetime.
  After ttl it may be *held* up to max_hold, never past hard_not_after. Hold covers silence only.
* A *close* is persisted and beats any hold; only a *reopen* ends it, and a reopen opens nothing by itself.
* A *violation*, confirmed by a second sample, drops the path before anything else happens and voids every
  permit that was issued before it was seen.
* The opening is renewed in the data plane for at most `arm`, and never beyond what is left of the validity.
* State that cannot be stored (a full disk) closes: a close counts from the moment it is known, and is left on
  disk by a rename, which needs no space; a violation that is not stored keeps the path shut until it is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Final

from keymgmt.agents.state import StateFolder, unreadable
from keymgmt.checks import decode_counters, encode_counters
from keymgmt.counters import Violation, local_violation
from keymgmt.errors import MessageRefused
from keymgmt.permit import Permit, PermitKind
from keymgmt.samples import Sample

ORDERS: Final = "orders.json"
CLOSED: Final = "orders.closed"  # `orders.json` of before a close that could not be written
VIOLATIONS: Final = "violations.json"
_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Validity:
    """Whether a permit counts now.

    Attributes:
        left_ms: how long it goes on counting without a new one; 0 when it does not.
        held: True while it counts only by hold.
        why: why not, for people.
    """

    left_ms: int
    held: bool
    why: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The orders an end stands under. `requested_ns` is CLOCK_BOOTTIME of the permit's pull."""

    order: tuple[int, int] = (0, 0)
    closed: bool = False
    reason: str = ""
    permit: Permit | None = None
    requested_ns: int = 0


class Keeper:
    """Orders and violations of one end, durable. Thread-safe."""

    def __init__(self, state: StateFolder, *, boot_id: str, clean_ms: int) -> None:
        self._state, self._boot_id = state, boot_id
        self._clean_ns = clean_ms * _MS
        self._lock = threading.RLock()
        self.standing = _load(state, boot_id)
        known = state.read(VIOLATIONS)
        self.violations: int = known.get("generation", 0)
        self._settled = (known.get("secy_id", ""), decode_counters(known.get("counters", {})))
        self._last: Sample | None = None
        self._in_violation = False
        self._suspicious_ns: int | None = None
        self.unsaved = False

    # --- orders

    def accept(self, permit: Permit, requested_ns: int) -> None:
        """Take a verified order: durable first, then in force; a close is in force whatever happens.

        Raises:
            OSError: it could not be stored.
        """
        with self._lock:
            standing = self.standing
            if permit.order <= standing.order:
                return
            if permit.kind is PermitKind.CLOSE:
                after = Standing(permit.order, closed=True, reason=permit.reason)
                self._close(after)
                return
            elif permit.kind is PermitKind.REOPEN:
                after = Standing(permit.order)
            elif standing.closed:
                # A permit alone never ends a close; its place in the order is kept.
                after = replace(standing, order=permit.order)
            else:
                after = Standing(permit.order, permit=permit, requested_ns=requested_ns)
            self._store(after)
            self.standing = after

    def _close(self, after: Standing) -> None:
        self.standing = after
        try:
            self._store(after)
        except OSError:
            self._state.rename(ORDERS, CLOSED)
            raise

    def _store(self, standing: Standing) -> None:
        self._state.write(ORDERS, _standing_to(standing, self._boot_id))
        self._state.remove(CLOSED)

    def validity(self, secy_id: str, now_ns: int) -> Validity:
        """Say whether the path may be open, and how long without news."""
        with self._lock:
            standing, violations = self.standing, self.violations
        permit = standing.permit
        if standing.closed:
            return Validity(0, held=False, why=f"closed by order: {standing.reason}")
        if permit is None:
            return Validity(0, held=False, why="no permit yet")
        if permit.secy_id != secy_id:
            return Validity(0, held=False, why="the permit was for an earlier SecY lifetime")
        if permit.violation_generation < violations:
            return Validity(0, held=False, why="a violation came after the permit")
        return _left(permit, standing.requested_ns, now_ns)

    # --- local checks

    def judge(self, sample: Sample) -> Violation | None:
        """Compare a sample with the one before; return a suspicion, which a second sample must confirm.

        After a start of the agent the base is what it had settled before: what moved meanwhile counts.
        """
        with self._lock:
            if self._last is None:
                secy_id, counters = self._settled
                known = secy_id == sample.secy_id
                self._last = replace(sample, counters=counters if known else {})
            return local_violation(self._last, sample)

    def settle(self, sample: Sample, found: Violation | None) -> Violation | None:
        """Account for the verdict of a (second) sample; return it when it begins a new violation.

        The caller has closed the path before, when `found` is not None.
        """
        with self._lock:
            self._last = sample
            begun = found is not None and not self._in_violation
            if found is not None:
                self._suspicious_ns, self._in_violation = sample.mono_ns, True
            ended = found is None and self._in_violation and self._calm(sample.mono_ns)
            if ended:
                self._in_violation = False
            self.violations += begun
            if begun or ended or self.unsaved:
                self._remember(sample)
            return found if begun else None

    def _remember(self, sample: Sample) -> None:
        counters = encode_counters(sample.counters)
        doc = {"generation": self.violations, "secy_id": sample.secy_id, "counters": counters}
        try:
            self._state.write(VIOLATIONS, doc)
            self.unsaved = False
        except OSError:
            self.unsaved = True  # tried again at each look, shut until then

    def clean(self, now_ns: int) -> bool:
        """Whether the last suspicious sample lies long enough back, and is stored."""
        with self._lock:
            return self._calm(now_ns) and not self.unsaved

    def _calm(self, now_ns: int) -> bool:
        return self._suspicious_ns is None or now_ns - self._suspicious_ns >= self._clean_ns


def keyed(sample: Sample) -> str | None:
    """Return why this end cannot carry traffic encrypted, None when it can."""
    if not (sample.protect and sample.encrypt and sample.validate == "strict"):
        return "the SecY is not configured to encrypt strictly"
    if sample.encoding_an is None or sample.tx_key_id is None:
        return "no transmit key is in use"
    if not any(name.startswith("rxsa.") for name in sample.counters):
        return "no receive key is installed"
    return None


def _left(permit: Permit, requested_ns: int, now_ns: int) -> Validity:
    age_ms = (now_ns - requested_ns) // _MS
    if age_ms < 0:
        return Validity(0, held=False, why="the permit's request lies in the future of this boot")
    until = permit.ttl_ms + permit.max_hold_ms
    if permit.hard_not_after_ms is not None:
        until = min(until, permit.hard_not_after_ms)
    left = max(0, until - age_ms)
    return Validity(left, held=age_ms >= permit.ttl_ms, why="" if left else "permit and hold have ended")


def _standing_to(standing: Standing, boot_id: str) -> dict[str, Any]:
    permit = standing.permit
    return {
        "order": list(standing.order),
        "closed": standing.closed,
        "reason": standing.reason,
        "permit": permit.payload().decode() if permit is not None else None,
        "requested_ns": str(standing.requested_ns),
        "boot_id": boot_id,
    }


def _load(state: StateFolder, boot_id: str) -> Standing:
    """Read the orders back; raises CouldNotTell when they make no sense."""
    kept, closed = state.read(ORDERS), state.read(CLOSED)
    try:
        if closed and not kept:
            reason = "a close that could not be written"
            return replace(_standing_from(closed, boot_id), closed=True, reason=reason, permit=None)
        return _standing_from(kept, boot_id)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, MessageRefused):
        raise unreadable(ORDERS) from None


def _standing_from(doc: dict[str, Any], boot_id: str) -> Standing:
    """Read orders back. A permit of another boot no longer counts; an order and a close always do."""
    if not doc:
        return Standing()
    standing = Standing((doc["order"][0], doc["order"][1]), doc["closed"], doc["reason"])
    if doc["permit"] is None or doc["boot_id"] != boot_id:
        return standing
    permit = Permit.from_payload(doc["permit"].encode())
    return replace(standing, permit=permit, requested_ns=int(doc["requested_ns"]))
