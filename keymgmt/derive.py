"""From the data key of one rotation to the two SAs of a link (rotation.md 1.2).

The data key is never a SAK. HKDF-SHA-256 (RFC 5869; empty salt) with canonical JSON as info gives, for each
direction, the SAK, the XPN salt, the public key id and the check value. A direction is named by the SCI that
transmits. The check value proves equal derivation at both ends, not what the hardware holds: only probes do.
No AES block of an SA key is ever computed for comparison, because AES_K(0) is the GCM hash key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from evidence.canonical import canonical
from keymgmt.errors import DerivationRefused

SAK_OCTETS: Final[Mapping[str, int]] = {
    "GCM-AES-128": 16,
    "GCM-AES-256": 32,
    "GCM-AES-XPN-128": 16,
    "GCM-AES-XPN-256": 32,
}
DATA_KEY_OCTETS: Final = 32


def is_xpn(cipher: str) -> bool:
    """Whether a cipher suite counts 64-bit packet numbers (802.1AE 14.7, 14.8)."""
    return "-XPN-" in cipher


@dataclass(frozen=True, slots=True)
class SaKey:
    """One SA's key material. Its repr shows only what is public.

    Attributes:
        sak: 16 or 32 octets.
        salt: 12 octets (used by XPN suites only).
        ssci: 1 for the numerically greater SCI, 2 for the other.
        key_id: 32 hex digits, unique for ever, public.
        check: 32 hex digits, public: equal at both ends when the derivation was.
    """

    sak: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    ssci: int
    key_id: str
    check: str


@dataclass(frozen=True, slots=True)
class SaPair:
    """The two directions of one end: what it transmits under and what it receives under."""

    tx: SaKey
    rx: SaKey


def ssci_of(sci: str, peer_sci: str) -> int:
    """Return 1 when `sci` is the numerically greater of the two, else 2 (802.1AE 10.7.8 as profiled here).

    Raises:
        DerivationRefused: the SCIs are malformed or equal.
    """
    own, peer = _sci(sci), _sci(peer_sci)
    if own == peer:
        raise DerivationRefused("both ends have one SCI: each end of a link needs its own")
    return 1 if own > peer else 2


def derive_pair(  # noqa: D417
    data_key: bytes, *, link: str, rotation: str, cipher: str, an: int, own_sci: str, peer_sci: str
) -> SaPair:
    """Derive both directions as the end `own_sci` uses them.

    Args:
        data_key: 32 octets, unwrapped by this agent for this rotation only.
        own_sci: 16 hex digits; transmits under `tx`.
        peer_sci: 16 hex digits; we receive its frames under `rx`.

    Raises:
        DerivationRefused: equal SCIs or SSCIs, unknown cipher, AN beyond 3, data key of a wrong length.
    """
    _refuse_bad(data_key, cipher, an)
    tx_ssci, rx_ssci = ssci_of(own_sci, peer_sci), ssci_of(peer_sci, own_sci)
    if tx_ssci == rx_ssci:
        raise DerivationRefused("both directions have one SSCI")
    base = {"v": 1, "link": link, "rotation": rotation, "cipher": cipher, "an": an}
    return SaPair(
        tx=_direction(data_key, base | {"tx_sci": own_sci, "ssci": tx_ssci}, cipher),
        rx=_direction(data_key, base | {"tx_sci": peer_sci, "ssci": rx_ssci}, cipher),
    )


def check_plan(own_sci: str, tx_sci: str, rx_sci: str, ssci: int) -> None:
    """Refuse a plan whose SCIs or SSCI cannot be right for the end `own_sci`.

    Raises:
        DerivationRefused: the plan's transmit SCI is not ours, the receive SC is ours, or the SSCI differs.
    """
    if tx_sci != own_sci:
        raise DerivationRefused("the plan's transmit SCI is not this end's: check the link's endpoints")
    if rx_sci == own_sci:
        raise DerivationRefused("the plan's receive SC has this end's own SCI: check the link's endpoints")
    if ssci != ssci_of(tx_sci, rx_sci):
        raise DerivationRefused("the plan's SSCI differs: 1 belongs to the numerically greater SCI")


def associated_data(ad: Mapping[str, Any]) -> bytes:
    """Return the octets that bind a wrap: canonical {link, rotation, cipher, an, scis, nonce_a, nonce_b}.

    Raises:
        DerivationRefused: other fields, equal SCIs or equal nonces.
    """
    if set(ad) != {"link", "rotation", "cipher", "an", "scis", "nonce_a", "nonce_b"}:
        raise DerivationRefused("associated data has other fields than the protocol names")
    first, second = ad["scis"]
    ssci_of(first, second)
    if ad["nonce_a"] == ad["nonce_b"]:
        raise DerivationRefused("both ends gave one nonce: a nonce was replayed")
    return canonical(dict(ad))


def _direction(data_key: bytes, info: dict[str, Any], cipher: str) -> SaKey:
    def expand(purpose: str, octets: int) -> bytes:
        hkdf = HKDF(algorithm=SHA256(), length=octets, salt=None, info=canonical(info | {"purpose": purpose}))
        return hkdf.derive(data_key)

    return SaKey(
        sak=expand("sak", SAK_OCTETS[cipher]),
        salt=expand("salt", 12),
        ssci=info["ssci"],
        key_id=expand("key_id", 16).hex(),
        check=expand("check", 16).hex(),
    )


def _refuse_bad(data_key: bytes, cipher: str, an: int) -> None:
    if cipher not in SAK_OCTETS:
        raise DerivationRefused(f"unknown cipher suite; known: {', '.join(SAK_OCTETS)}")
    if not 0 <= an <= 3:
        raise DerivationRefused("an AN is 0 to 3")
    if len(data_key) != DATA_KEY_OCTETS:
        raise DerivationRefused("a data key has 32 octets: ask for bits=256")


def _sci(text: str) -> int:
    if len(text) != 16 or set(text) - set("0123456789abcdef"):
        raise DerivationRefused("an SCI is 16 lower-case hex digits")
    return int(text, 16)
