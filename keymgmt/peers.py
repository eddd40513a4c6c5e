"""Who speaks on the agents' stream: the CN of the certificate that TLS verified, never a field of a body."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509.oid import NameOID

from keymgmt.errors import AgentUnknown
from keymgmt.model import LinkSpec, Side

_CERTIFICATES_KEPT: Final = 8192


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says: its one CN, its key, SHA-256 of its DER in hex, its end."""

    name: str
    public_key: EllipticCurvePublicKey
    digest: str
    not_after_ns: int


@dataclass(frozen=True, slots=True)
class Peer:
    """The agent behind a connection, and the declared link end that it keeps."""

    agent: str
    link: str
    side: Side
    certificate: Certificate


class Peers:
    """Certificates to agents of declared links; each certificate is parsed once."""

    def __init__(self, links: Callable[[], Mapping[str, LinkSpec]], clock: Callable[[], int]) -> None:
        self._links = links
        self._clock = clock
        self._certificates: dict[bytes, Certificate] = {}

    def of(self, der: object) -> Peer:
        """The agent that a verified certificate (DER octets) names.

        Raises:
            AgentUnknown: no certificate, an ended one, or one that names no agent of a declared link.
        """
        if not isinstance(der, bytes):
            raise AgentUnknown("no client certificate", fix="enrol the agent")
        known = self._certificate(der)
        if known.not_after_ns < self._clock():
            raise AgentUnknown("the certificate has ended", fix="renew or re-enrol the agent")
        for spec in self._links().values():
            side = spec.side_of(known.name)
            if side is not None:
                return Peer(known.name, spec.name, side, known)
        raise AgentUnknown("the certificate names no agent of a declared link", fix="declare it, or re-enrol")

    def _certificate(self, der: bytes) -> Certificate:
        found = self._certificates.get(der)
        if found is None:
            found = _parse(der)
            if len(self._certificates) >= _CERTIFICATES_KEPT:
                self._certificates.clear()
            self._certificates[der] = found
        return found


def _parse(der: bytes) -> Certificate:
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key, end = certificate.public_key(), certificate.not_valid_after_utc
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):  # stricter than TLS, in parts
        raise AgentUnknown("the certificate cannot be read", fix="re-enrol the agent") from None
    if len(names) != 1 or not isinstance(key, EllipticCurvePublicKey):
        raise AgentUnknown("the certificate is no agent's: one CN and an EC key are needed")
    end_ns = int(end.timestamp()) * 1_000_000_000
    return Certificate(str(names[0].value), key, hashlib.sha256(der).hexdigest(), end_ns)
