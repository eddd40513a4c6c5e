"""From samples to what the posture chain looks at. Pure: one fold per end, one map per link.

A violation stands until a repair has been *measured*: ``CLEAN_SAMPLES`` consecutive samples of that
end in which protection is on and nothing clear, readable or foreign was counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from keymgmt.counters import delta, local_violation
from keymgmt.model import LinkSpec
from keymgmt.samples import Sample
from policy_engine.gate.posture import EndView, LinkView

CLEAN_SAMPLES: Final = 2  # the first could still bound an interval that began before the repair
PROVE_SECONDS: Final = 10  # probes are a few per second; without one for so long nothing is proved
_SECOND: Final = 1_000_000_000
LONGEST_SAMPLING_NS: Final = 30 * _SECOND  # between two samples of a living agent, whatever the ttl
MARGIN_NS: Final = _SECOND  # for the way of a sample and a busy host


@dataclass(frozen=True, slots=True)
class EndTrack:
    """What is remembered of one end between two samples.

    Attributes:
        last: The newest sample.
        received_ns: When it was received.
        proved_ns: When decrypted frames last rose.
        off_samples: Consecutive samples with protection off.
        measured: Code of the violation that stands, by our own comparison of samples.
        reported: Code of the violation that stands, by the agent's own report.
        clean: Consecutive samples without any violation.
        violation_generation: The highest that this end has named.
    """

    last: Sample
    received_ns: int
    proved_ns: int = 0
    off_samples: int = 0
    measured: str | None = None
    reported: str | None = None
    clean: int = 0
    violation_generation: int = 0


def fold(track: EndTrack | None, sample: Sample, received_ns: int, *, keyed: bool) -> EndTrack:
    """Take in one more verified sample.

    Args:
        track: What was known; ``None`` before the first sample.
        sample: The new one. An older one of the same end (by sequence) changes nothing.
        received_ns: When it was received.
        keyed: Whether the link was ever keyed; before that nothing is a violation.
    """
    off = not (sample.protect and sample.encrypt)
    if track is None:
        return EndTrack(
            sample,
            received_ns,
            off_samples=int(off and keyed),
            violation_generation=sample.violation_generation,
        )
    if sample.seq <= track.last.seq:
        return track
    found = local_violation(track.last, sample) if keyed else None
    newly = keyed and sample.violation_generation > track.violation_generation
    clean = 0 if found is not None or newly else track.clean + 1
    repaired = clean >= CLEAN_SAMPLES
    code = found.code if found is not None else None
    # A wrong configuration alone is confirmed by the second sample that shows it (off_samples).
    measured = code if code != "config" else None
    return replace(
        track,
        last=sample,
        received_ns=received_ns,
        proved_ns=received_ns if _decrypted_more(track.last, sample) else track.proved_ns,
        off_samples=track.off_samples + 1 if off and keyed else 0,
        measured=measured or (None if repaired else track.measured),
        reported=(code or "reported") if newly else (None if repaired else track.reported),
        clean=clean,
        violation_generation=max(track.violation_generation, sample.violation_generation),
    )


def report(track: EndTrack, code: str) -> EndTrack:
    """Take in a violation that the agent names itself."""
    return replace(track, reported=code, clean=0)


def _decrypted_more(before: Sample, after: Sample) -> bool:
    if before.secy_id != after.secy_id or after.tx_key_id is None:
        return False
    names = ("rxsc.InPktsOK", "rxsc.InOctetsDecrypted")
    return all(delta(before.counters, after.counters, name) > 0 for name in names)


def end_view(agent: str, track: EndTrack | None) -> EndView | None:
    """The chain's view of one end."""
    if track is None:
        return None
    sample = track.last
    return EndView(
        agent=agent,
        received_ns=track.received_ns,
        protect=sample.protect,
        encrypt=sample.encrypt,
        tx_key_id=sample.tx_key_id,
        proved_ns=track.proved_ns,
        off_samples=track.off_samples,
        measured=track.measured,
        reported=track.reported,
        guard=any(name.startswith("guard.") for name in sample.counters),
        path_open=sample.path == "open",
    )


@dataclass(frozen=True, slots=True)
class KeyState:
    """The journal's word on one link."""

    keyed: bool = False
    parked: bool = False
    key_since_ns: int = 0
    cipher: str = ""


def fresh_for_ns(spec: LinkSpec) -> int:
    """How long one sample of a link may be relied on: until the next is due, then for arm.

    An agent that died just before its next sample leaves a path that its data plane has shut by then; a
    path may not carry new work for longer. A living agent sends a sample with each pull of a permit, at
    a third of its ttl (`Agent._permit_pass`).
    """
    sampling_ns = min(spec.profile.ttl_ns // 3, LONGEST_SAMPLING_NS)
    return spec.profile.arm_ns + sampling_ns + MARGIN_NS


def link_view(spec: LinkSpec, keys: KeyState, tracks: tuple[EndTrack | None, EndTrack | None]) -> LinkView:
    """The chain's view of one link."""
    agents = (spec.a.agent or "", spec.b.agent or "")
    return LinkView(
        name=spec.name,
        encryption=spec.encryption,
        cipher=spec.profile.cipher,
        cipher_in_use=keys.cipher,
        ends=(end_view(agents[0], tracks[0]), end_view(agents[1], tracks[1])),
        agents=agents,
        keyed=keys.keyed,
        parked=keys.parked,
        key_since_ns=keys.key_since_ns,
        hard_age_ns=spec.profile.hard_age_ns,
        fresh_for_ns=fresh_for_ns(spec),
        prove_within_ns=max(spec.profile.ttl_ns, PROVE_SECONDS * _SECOND),
    )
