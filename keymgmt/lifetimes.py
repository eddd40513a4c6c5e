"""When a key is prepared, activated, called old and too old. Pure: values and `now_ns` in, verdict out.

Shape of SPIRE's CA slots: thresholds are derived from the key's birth and looked at on every pass; nothing
ever sleeps "until due", so a stopped clock or a missed pass only delays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from keymgmt.model import ProfileSpec

Age = Literal["fresh", "prepare", "due", "soft", "hard"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Instants of one key's life, all wall-clock nanoseconds."""

    prepare_ns: int  # a rotation may start, so that its deadline falls before `due_ns`
    due_ns: int  # the key should be out of use
    soft_ns: int  # alarm
    hard_ns: int  # onHardAge


def jitter_ns(link: str, born_ns: int, width_ns: int) -> int:
    """A stable offset in [0, width) for one link and key, so that an estate never rotates at once."""
    if width_ns <= 0:
        return 0
    seed = hashlib.sha256(f"{link}\n{born_ns}".encode()).digest()
    return int.from_bytes(seed[:8], "big") % width_ns


def thresholds(profile: ProfileSpec, link: str, born_ns: int) -> Thresholds:
    """The thresholds of the key of `link` that came into use at `born_ns`.

    Jitter only ever makes a rotation earlier: a key never lives longer than `rotateEvery` because of it.
    """
    due = born_ns + profile.rotate_every_ns
    early = profile.prepare_before_ns + jitter_ns(link, born_ns, profile.jitter_ns)
    return Thresholds(due - early, due, born_ns + profile.soft_age_ns, born_ns + profile.hard_age_ns)


def age(profile: ProfileSpec, link: str, born_ns: int, now_ns: int) -> Age:
    """The strongest threshold passed; a clock that stepped back before the birth counts as fresh."""
    t = thresholds(profile, link, born_ns)
    steps: tuple[tuple[int, Age], ...] = (
        (t.hard_ns, "hard"),
        (t.soft_ns, "soft"),
        (t.due_ns, "due"),
        (t.prepare_ns, "prepare"),
    )
    return next((name for at, name in steps if now_ns >= at), "fresh")


def retry_wait_ns(failures: int, first_ms: int, longest_ms: int) -> int:
    """Wait after the n-th unsuccessful rotation in a row: doubling, bounded."""
    if failures <= 0:
        return 0
    return min(first_ms << min(failures - 1, 20), longest_ms) * 1_000_000
