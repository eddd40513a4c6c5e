"""What key management needs to know of a link: small frozen inputs, checked once, free of IO.

The control plane maps its resources to these. IEEE 802.1AE-2018: SCI = MAC address and port (9.9),
AN of 2 bits (9.5), PN of 32 or, with XPN, 64 bits (10.5, 14.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from keymgmt.errors import LinkRefused

Side = Literal["a", "b"]
SIDES: tuple[Side, Side] = ("a", "b")

CIPHERS = ("GCM-AES-128", "GCM-AES-256", "GCM-AES-XPN-128", "GCM-AES-XPN-256")

_SCI = re.compile(r"[0-9a-f]{16}\Z")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_SECOND = 1_000_000_000  # ns
_SMALLEST_FRAME_BITS = (64 + 20) * 8  # 64 octets, preamble and gap: the most packets per second
PN32_LIMIT = 0xC000_0000  # rekey threshold of 802.1X, 32-bit PN
PN64_LIMIT = 0xC000_0000_0000_0000  # the same for XPN
_PN32_BUDGET = 2**30  # packets: what is left above the threshold


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """VLAN + MACsec profile, as far as rotation and gate use it. Times in nanoseconds."""

    name: str
    cipher: str = "GCM-AES-XPN-256"
    max_sa_per_sc: int = 4
    replay_window: int = 64
    must_secure: bool = True
    clear_tags: tuple[str, ...] = ()
    rotate_every_ns: int = 24 * 3600 * _SECOND
    prepare_before_ns: int = 3600 * _SECOND
    jitter_ns: int = 600 * _SECOND
    soft_age_ns: int = 36 * 3600 * _SECOND
    hard_age_ns: int = 72 * 3600 * _SECOND
    on_hard_age: Literal["hold", "close"] = "hold"
    on_control_loss: Literal["hold", "close"] = "hold"
    max_hold_ns: int = 24 * 3600 * _SECOND
    ttl_ns: int = 60 * _SECOND
    arm_ns: int = 15 * _SECOND
    path_delay_ns: int = 100_000_000
    reorder_bound_ns: int = 10_000_000
    overlap_ns: int = 5 * _SECOND
    revert_after_ns: int = 30 * _SECOND
    step_deadline_ns: int = 15 * _SECOND
    total_deadline_ns: int = 180 * _SECOND
    line_rate_gbps: int = 10

    def __post_init__(self) -> None:
        for ok, why, fix in _profile_checks(self):
            if not ok:
                raise LinkRefused(f"profile {self.name}: {why}", fix=fix)

    @property
    def xpn(self) -> bool:
        """True for 64-bit packet numbers."""
        return "XPN" in self.cipher

    @property
    def pn_limit(self) -> int:
        """The packet number at which the old SA has no headroom for a rollback left."""
        return PN64_LIMIT if self.xpn else PN32_LIMIT

    @property
    def drain_silence_ns(self) -> int:
        """Silence that counts as drained: max(path delay + reorder bound, 3 s)."""
        return max(self.path_delay_ns + self.reorder_bound_ns, 3 * _SECOND)


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One end of a link. `agent` is None for an end that nothing can key."""

    side: Side
    site: str
    sci: str
    agent: str | None = None
    driver: str = "software"

    def __post_init__(self) -> None:
        if not _SCI.match(self.sci) or self.sci == "0" * 16:
            raise LinkRefused(
                f"SCI {self.sci!r} is not 16 lower-case hex digits", fix="write MAC and port in hex"
            )
        if self.agent is not None and not _NAME.match(self.agent):
            raise LinkRefused(f"agent name {self.agent!r} is not a DNS label", fix="use a-z, 0-9 and -")


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A point-to-point link: exactly two members (802.1X 9.4: one live peer of the expected SCI)."""

    name: str
    profile: ProfileSpec
    a: EndpointSpec
    b: EndpointSpec
    encryption: Literal["required", "none"] = "required"
    diverse_partner: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise LinkRefused(f"link name {self.name!r} is not a DNS label", fix="use a-z, 0-9 and -")
        if (self.a.side, self.b.side) != SIDES:
            raise LinkRefused(f"link {self.name}: ends must be a and b, in this order")
        if self.a.sci == self.b.sci:
            raise LinkRefused(
                f"link {self.name}: both ends have SCI {self.a.sci}", fix="give each end its own SCI"
            )
        if self.a.agent is not None and self.a.agent == self.b.agent:
            raise LinkRefused(
                f"link {self.name}: one agent at both ends", fix="one agent (one entity) per link end"
            )
        if self.diverse_partner == self.name:
            raise LinkRefused(f"link {self.name}: a link cannot be its own diverse partner")

    @property
    def keyed(self) -> bool:
        """True when the link must be encrypted and both ends have an agent."""
        return self.encryption == "required" and self.a.agent is not None and self.b.agent is not None

    def end(self, side: str) -> EndpointSpec:
        """The end named `a` or `b`."""
        return self.a if side == "a" else self.b

    def peer(self, side: str) -> EndpointSpec:
        """The other end."""
        return self.b if side == "a" else self.a

    def side_of(self, agent: str) -> Side | None:
        """The end that `agent` keeps, or None."""
        return next((end.side for end in (self.a, self.b) if end.agent == agent), None)


def partners(spec: LinkSpec, links: Mapping[str, LinkSpec]) -> frozenset[str]:
    """The links of which none may rotate together with `spec`, whichever of a pair names the other."""
    naming = {name for name, link in links.items() if link.diverse_partner == spec.name}
    named = {spec.diverse_partner} if spec.diverse_partner is not None else set()
    return frozenset(naming | named) - {spec.name}


def other(side: str) -> Side:
    """The side across the wire."""
    return "b" if side == "a" else "a"


def ssci(own_sci: str, peer_sci: str) -> int:
    """SSCI of an end: 1 for the numerically greater SCI, 2 for the other (802.1AE 10.7.13)."""
    if own_sci == peer_sci:
        raise LinkRefused("equal SCIs have no order")
    return 1 if int(own_sci, 16) > int(peer_sci, 16) else 2


def _profile_checks(p: ProfileSpec) -> Iterator[tuple[bool, str, str]]:
    yield p.cipher in CIPHERS, f"unknown cipher suite {p.cipher}", f"one of {', '.join(CIPHERS)}"
    yield p.max_sa_per_sc in (2, 4), f"maxSaPerSc {p.max_sa_per_sc}", "2 or 4 (802.1AE: AN has 2 bits)"
    yield p.must_secure, "mustSecure is off", "a link that may fall back to clear frames is never keyed"
    yield (
        min(p.step_deadline_ns, p.revert_after_ns, p.total_deadline_ns, p.ttl_ns, p.arm_ns) > 0,
        "a deadline is zero or negative",
        "give every deadline a positive duration",
    )
    yield (
        p.revert_after_ns < p.total_deadline_ns,
        "revertAfter is not shorter than totalDeadline",
        "the watchdog must fire inside the rotation",
    )
    yield (
        p.prepare_before_ns + p.jitter_ns < p.rotate_every_ns,
        "prepareBefore + jitter reach rotateEvery",
        "leave time between two rotations",
    )
    yield p.soft_age_ns <= p.hard_age_ns, "softAge is above hardAge", "alarm before the hard end"
    yield (
        p.xpn or p.line_rate_gbps < 100,
        f"32-bit PN at {p.line_rate_gbps} Gb/s",
        "an XPN suite from 100 Gb/s on",
    )
    yield (
        p.xpn or _pn_spent(p) <= _PN32_BUDGET,
        f"a 32-bit PN at {p.line_rate_gbps} Gb/s could run out within one rotation, rollback and hold",
        "an XPN suite, or a shorter maxHold and totalDeadline",
    )


def _pn_spent(p: ProfileSpec) -> int:
    """Packets of the smallest size in poll + worst rotation + rollback + longest hold."""
    worst_ns = 25 * _SECOND + p.total_deadline_ns + p.revert_after_ns + p.max_hold_ns
    per_second = p.line_rate_gbps * 1_000_000_000 // _SMALLEST_FRAME_BITS
    return per_second * worst_ns // _SECOND
