"""What counters prove, and what they do not (rotation.md section 3).

Pure: values in, verdicts out. Counter names are those of Linux macsec, flattened with a prefix for the scope:
`secy.OutPktsUntagged`, `txsc.OutPktsEncrypted`, `txsa.<an>.OutPktsEncrypted`, `rxsc.InPktsOK`,
`rxsa.<an>.InPktsOK`, `guard.OutDropped`, `port.TxFrames`, `probe.Sent`. A fall of a value is a reset, never a
negative delta; per-SA values end with their SA, so an interval is judged by the SC and SecY scopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from keymgmt.checks import decode_counters, encode_counters, is_map, is_str, take
from keymgmt.samples import Sample

CLEAR_SENT: Final = ("secy.OutPktsUntagged", "txsc.OutPktsProtected", "guard.OutDropped")
CLEAR_RECEIVED: Final = (
    "secy.InPktsNoTag",
    "secy.InPktsUntagged",
    "rxsc.InOctetsValidated",
    "rxsc.InPktsUnchecked",
    "guard.InClear",
)
ROTATION_HEALTH: Final = ("rxsc.InPktsNotUsingSA", "rxsc.InPktsNotValid", "rxsc.InPktsLate")
ARRIVALS: Final = (  # each frame that arrives is counted under exactly one of these
    "secy.InPktsNoTag",
    "secy.InPktsUntagged",
    "secy.InPktsBadTag",
    "secy.InPktsNoSCI",
    "secy.InPktsUnknownSCI",
    "rxsc.InPktsNotUsingSA",
    "rxsc.InPktsLate",
    "rxsc.InPktsNotValid",
    "rxsc.InPktsUnchecked",
    "rxsc.InPktsOK",
)
WRONG_PEER: Final = ("secy.InPktsUnknownSCI", "secy.InPktsNoSCI")


@dataclass(frozen=True, slots=True)
class Violation:
    """Measured at one end: frames in clear, readable frames, or a wrong peer. Never a suspicion.

    Attributes:
        code: one of clear_sent, clear_received, config, wrong_peer.
        counters: the names that moved, with their delta.
    """

    code: str
    detail: str
    counters: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return {"code", "detail", "counters"}."""
        return {"code": self.code, "detail": self.detail, "counters": encode_counters(self.counters)}

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read what `to_json` wrote. Raises MessageRefused."""
        got = take(doc, {"code": is_str, "detail": is_str, "counters": is_map}, "violation")
        return cls(got["code"], got["detail"], decode_counters(got["counters"]))


def delta(before: Mapping[str, int], after: Mapping[str, int], name: str) -> int:
    """Return the rise of a counter; a fall is a reset and counts from zero."""
    was, now = before.get(name, 0), after.get(name, 0)
    return now - was if now >= was else now


def local_violation(before: Sample, after: Sample) -> Violation | None:
    """Judge one end by two of its own samples of one SecY lifetime; None when nothing is wrong.

    Samples of two lifetimes are judged from zero, as the later one's counters began there.
    """
    base = before.counters if before.secy_id == after.secy_id else {}
    return (
        _moved("clear_sent", "frames in clear or readable left the SecY", CLEAR_SENT, base, after.counters)
        or _moved(
            "clear_received", "frames in clear or readable arrived", CLEAR_RECEIVED, base, after.counters
        )
        or _moved("wrong_peer", "frames of an unexpected SCI arrived", WRONG_PEER, base, after.counters)
        or _config(after)
    )


def _moved(
    code: str, detail: str, names: tuple[str, ...], before: Mapping[str, int], after: Mapping[str, int]
) -> Violation | None:
    moved = {name: rise for name in names if (rise := delta(before, after, name))}
    return Violation(code, f"{detail}: {', '.join(moved)}", moved) if moved else None


def _config(sample: Sample) -> Violation | None:
    wrong = [
        text
        for text, bad in (
            ("protect is off", not sample.protect),
            ("encrypt is off", not sample.encrypt),
            (f"validate is {sample.validate}, not strict", sample.validate != "strict"),
        )
        if bad
    ]
    return Violation("config", "; ".join(wrong), {}) if wrong else None


@dataclass(frozen=True, slots=True)
class Interval:
    """Two samples of one end, first and last of an interval."""

    first: Sample
    last: Sample

    def rise(self, name: str) -> int:
        """Return the delta of one counter over the interval."""
        return delta(self.first.counters, self.last.counters, name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one link was encrypted over an interval, and why.

    Attributes:
        encrypted: "yes", "no" or "unknown".
        why: codes and texts of what decided, first the decisive one.
        balance: per direction, frames encrypted at the sender minus frames that arrived at the receiver.
        witnesses: who said so: "self" and "peer".
    """

    encrypted: str
    why: tuple[str, ...]
    balance: Mapping[str, int]
    witnesses: tuple[str, ...] = ("self", "peer")


def evaluate(a: Interval, b: Interval, *, rate_fps: int, skew_ns: int, in_flight: int) -> Verdict:
    """Judge a link by one interval of each end.

    Args:
        a: the interval at end a of the link.
        b: the interval at end b.
        rate_fps: highest frame rate per direction, for the tolerance.
        skew_ns: how far the two ends' intervals may lie apart.
        in_flight: frames that may be on their way at either edge.
    """
    balance = {"a>b": _balance(a, b), "b>a": _balance(b, a)}
    for name, end in (("a", a), ("b", b)):
        found = local_violation(end.first, end.last)
        if found is not None:
            return Verdict("no", (f"{name}: {found.detail}",), balance)
    doubt = [f"{name}: {text}" for name, end in (("a", a), ("b", b)) if (text := _doubt(end))]
    tolerance = rate_fps * skew_ns // 1_000_000_000 + in_flight
    doubt += [
        f"{way}: {short} frames more were sent encrypted than arrived under an SA, tolerance {tolerance}"
        if short > 0
        else f"{way}: {-short} frames more arrived than were sent, tolerance {tolerance}"
        for way, short in balance.items()
        if abs(short) > tolerance
    ]
    return Verdict("unknown", tuple(doubt), balance) if doubt else Verdict("yes", _why_yes(a, b), balance)


def _balance(sender: Interval, receiver: Interval) -> int:
    arrived = sum(receiver.rise(f"rxsc.{name}") for name in ("InPktsOK", "InPktsNotValid", "InPktsLate"))
    arrived += receiver.rise("rxsc.InPktsNotUsingSA")
    return sender.rise("txsc.OutPktsEncrypted") - arrived


def _doubt(end: Interval) -> str | None:
    """Return why this end's interval proves nothing, None when it does."""
    if end.first.secy_id != end.last.secy_id or end.first.boot_id != end.last.boot_id:
        return "the SecY or the machine began anew within the interval"
    if end.last.seq <= end.first.seq or end.last.mono_ns <= end.first.mono_ns:
        return "the samples are not in order"
    if not end.rise("txsc.OutPktsEncrypted"):
        return "nothing was sent encrypted"
    if not end.rise("rxsc.InPktsOK") or not end.rise("rxsc.InOctetsDecrypted"):
        return "nothing was decrypted"
    return _past_the_secy(end)


def _past_the_secy(end: Interval) -> str | None:
    """Port identity: the port's frames are those that the SecY counted. Silent where the port is hidden."""
    if "port.TxFrames" not in end.last.counters:
        return None
    sent, encrypted = end.rise("port.TxFrames"), end.rise("txsc.OutPktsEncrypted")
    if sent != encrypted:
        return f"{sent} frames left the port and {encrypted} were encrypted by the SecY"
    arrived, counted = end.rise("port.RxFrames"), sum(end.rise(name) for name in ARRIVALS)
    if arrived != counted:
        return f"{arrived} frames arrived at the port and {counted} at the SecY"
    return None


def _why_yes(a: Interval, b: Interval) -> tuple[str, ...]:
    return tuple(
        f"{name}: {end.rise('txsc.OutPktsEncrypted')} encrypted, {end.rise('rxsc.InPktsOK')} decrypted"
        for name, end in (("a", a), ("b", b))
    )
