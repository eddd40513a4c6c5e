"""Rules of links and their profiles: identity of ends, headroom of packet numbers, order of deadlines.

Sources: IEEE 802.1AE-2018 (SCI, PN, XPN, confidentiality offset) and rotation.md sections 1, 2, 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from policy_engine.errors import Problem
from policy_engine.limits import LIMITS
from policy_engine.resources.model import Link, LinkProfile
from policy_engine.resources.objects import Source
from policy_engine.resources.values import format_duration

_PN_HEADROOM: Final = 2**30  # packets; a quarter of the 32-bit space (rotation.md section 2)
_WIRE_OCTETS: Final = 84  # smallest Ethernet frame with preamble and gap: the most packets a rate can carry
_XPN_FROM_GBPS: Final = 100
_NS: Final = 1_000_000_000


def check_profiles(profiles: Iterable[tuple[LinkProfile, Source]]) -> list[Problem]:
    """Problems of each profile by itself."""
    out: list[Problem] = []
    for profile, source in profiles:
        if profile.confidentiality_offset != 0:
            fix = "write 0: an offset leaves the first octets of every frame readable"
            out.append(source.problem(("spec", "confidentialityOffset"), "only 0 is allowed", fix))
        out += _packet_numbers(profile, source)
        out += _order(profile, source)
    return out


def _packet_numbers(profile: LinkProfile, source: Source) -> Iterator[Problem]:
    if "XPN" in profile.cipher_suite:
        return
    path = ("spec", "cipherSuite")
    fix = f'use "{profile.cipher_suite.replace("GCM-AES-", "GCM-AES-XPN-")}"'
    if profile.line_rate_gbps >= _XPN_FROM_GBPS:
        message = f"at {profile.line_rate_gbps} Gbit/s a 32-bit packet number runs out within seconds"
        yield source.problem(path, message, fix)
        return
    holds = profile.on_control_loss == "hold"
    hold = profile.max_hold_ns if holds else 0
    poll = LIMITS.agent_poll_seconds * _NS
    exposed = poll + profile.total_deadline_ns + profile.revert_after_ns + hold
    packets = profile.line_rate_gbps * 1_000_000_000 * exposed // (8 * _WIRE_OCTETS * _NS)
    if packets > _PN_HEADROOM:
        message = (
            f"at {profile.line_rate_gbps} Gbit/s up to {packets} packets pass in poll + totalDeadline"
            f" + revertAfter{' + maxHold' if holds else ''} ({format_duration(exposed)}),"
            " more than 2^30 packet numbers"
        )
        yield source.problem(path, message, f"{fix}, or shorten maxHold" if holds else fix)


def _order(p: LinkProfile, source: Source) -> Iterator[Problem]:
    """Deadlines that contain one another must be in that order."""
    ordered = (
        ("arm", p.arm_ns, "ttl", p.ttl_ns, "the opening is renewed while the permit lasts"),
        (
            "pathDelay",
            p.path_delay_ns,
            "stepDeadline",
            p.step_deadline_ns,
            "a step waits for frames to arrive",
        ),
        ("revertAfter", p.revert_after_ns, "totalDeadline", p.total_deadline_ns, "a rollback ends in time"),
        ("stepDeadline", p.step_deadline_ns, "totalDeadline", p.total_deadline_ns, "a step is part of it"),
        ("overlap", p.overlap_ns, "totalDeadline", p.total_deadline_ns, "the overlap is part of it"),
        ("totalDeadline", p.total_deadline_ns, "rotateEvery", p.rotate_every_ns, "one ends before the next"),
        ("rotateEvery", p.rotate_every_ns, "softAge", p.soft_age_ns, "a key on time is not old"),
        ("softAge", p.soft_age_ns, "hardAge", p.hard_age_ns, "the alarm comes first"),
    )
    for low, low_ns, high, high_ns, why in ordered:
        if low_ns > high_ns:
            message = f"{format_duration(low_ns)} is longer than {high} ({format_duration(high_ns)}): {why}"
            yield source.problem(("spec", low), message, f"make it at most {high}")
    early = p.prepare_before_ns + p.jitter_ns
    if early >= p.rotate_every_ns:
        message = f"prepareBefore + jitter ({format_duration(early)}) is not shorter than rotateEvery"
        yield source.problem(("spec", "prepareBefore"), message, "prepare later, or rotate less often")


def check_links(links: Sequence[tuple[Link, Source]]) -> list[Problem]:
    """Problems of links, alone and against each other."""
    out: list[Problem] = []
    by_name = {link.name: link for link, _ in links}
    scis: dict[str, str] = {}
    agents: dict[str, str] = {}
    for link, source in links:
        out += _ends(link, source)
        out += _partner(link, by_name, source)
        for i, endpoint in enumerate(link.endpoints):
            at = f"{link.name} endpoints[{i}]"
            for field, value, seen in (("sci", endpoint.sci, scis), ("agent", endpoint.agent, agents)):
                if value is not None and seen.setdefault(value, at) != at:
                    word = "SCI" if field == "sci" else "agent"
                    message = f'{word} "{value}" stands already at {seen[value]}'
                    fix = "every end of every link has its own"
                    out.append(source.problem(("spec", "endpoints", i, field), message, fix))
    return out


def _ends(link: Link, source: Source) -> Iterator[Problem]:
    first, second = link.endpoints
    if first.site == second.site:
        yield source.problem(("spec", "endpoints", 1, "site"), "both ends are at the same site")
    for i, end in enumerate(link.endpoints):
        missing = [f for f in ("agent", "driver", "sci") if getattr(end, f) is None]
        if not missing:
            continue
        path = ("spec", "endpoints", i)
        if link.encryption == "required":
            message = f"encryption is required, but {', '.join(missing)} is missing at this end"
            yield source.problem(path, message, "give agent, driver and sci, or say encryption: none")
        elif len(missing) < 3:
            message = f"an end is keyed or it is not: {', '.join(missing)} is missing"
            yield source.problem(path, message, "give all of agent, driver and sci, or none")


def _partner(link: Link, by_name: dict[str, Link], source: Source) -> Iterator[Problem]:
    if link.diverse_partner is None:
        return
    path = ("spec", "diversePartner")
    partner = by_name.get(link.diverse_partner)
    if link.diverse_partner == link.name:
        yield source.problem(path, "a link is not its own partner")
    elif partner is not None and {e.site for e in partner.endpoints} != {e.site for e in link.endpoints}:
        yield source.problem(path, f'"{partner.name}" joins other sites', "name a link of the same two sites")
