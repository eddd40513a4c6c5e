"""The verdict of a verify step: did the peer really decrypt what this end sent under the new SA?

Pure (rotation.md section 3). Verified means: the probes' nonces came back from the peer, its per-SA OK count
and its decrypted octets rose by at least the probes, and its error counters stayed flat. The check value is
no proof of what the hardware holds; this is. "No" and "could not tell" are apart: silence is `unknown` until
the step's deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keymgmt.counters import ROTATION_HEALTH, delta

PROBE_MIN_OCTETS: Final = 46  # secure data of the shortest probe: EtherType and payload
GROWN_ERRORS: Final = (*ROTATION_HEALTH, "rxsc.InOctetsValidated", "rxsc.InPktsUnchecked", "secy.InPktsNoTag")


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Result of `judge_probe`: `verified`, `failed` or `unknown`, with why as text for people."""

    outcome: str
    why: str
    ok_rise: int
    error_rise: Mapping[str, int]


def judge_probe(
    *,
    an: int,
    sent: Sequence[str],
    seen: Sequence[str],
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> ProbeVerdict:
    """Judge one direction.

    Args:
        an: the new SA's association number.
        sent: nonces of the probes that the sender put on the wire.
        seen: nonces that the receiver decrypted for this probe id.
        before: the receiver's counters before the sender's switch (those of its `install` ack will do).
        after: the receiver's counters in its `verify` answer.
    """
    ok = delta(before, after, f"rxsa.{an}.InPktsOK")
    octets = delta(before, after, "rxsc.InOctetsDecrypted")  # Linux counts octets per SC only
    errors = {name: rise for name in GROWN_ERRORS if (rise := delta(before, after, name))}
    if errors:
        names = ", ".join(f"{name} +{rise}" for name, rise in errors.items())
        return ProbeVerdict("failed", f"the receiver counted errors: {names}", ok, errors)
    if not sent:
        return ProbeVerdict("unknown", "no probe was sent", ok, errors)
    if set(seen) - set(sent):
        return ProbeVerdict("failed", "the receiver named nonces that were never sent", ok, errors)
    missing = len(set(sent) - set(seen))
    if missing:
        return ProbeVerdict("unknown", f"{missing} of {len(sent)} probes were not seen", ok, errors)
    if ok < len(sent) or octets < len(sent) * PROBE_MIN_OCTETS:
        return ProbeVerdict(
            "failed",
            f"probes were seen but only {ok} frames, {octets} octets were decrypted",
            ok,
            errors,
        )
    return ProbeVerdict("verified", f"{len(sent)} probes decrypted under AN {an}", ok, errors)
