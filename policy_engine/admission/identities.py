"""Who may ask the admission webhook: one credential is bound to exactly one Cluster.

Decides which caller a request comes from, before a byte of its body is read. In order: a client
certificate issued by a certificate authority that is registered for exactly one Cluster, or a path token of
256 bits, known here by its SHA-256 only. The cluster named in the URL must be the one the credential is
bound to; the object in the review is never asked.

The TLS layer has already verified the chain and the proof of possession; this module decides the binding
again per request, so that a certificate authority taken out of a Cluster stops working on connections that
are already open, and so does whatever expires.
"""

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization

from policy_engine.errors import Forbidden, IdentityConfigError, Unauthenticated

How = Literal["client_certificate", "path_token"]

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43,86}")  # 256 bits or more in base64url or hex
_CACHE_SIZE: Final = 256  # peer certificates; each API server has one, renewals add a few


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What identifies the API server of one Cluster.

    Attributes:
        cluster: Name of the Cluster resource.
        client_cas: PEM of the authorities whose client certificates stand for this cluster alone.
        client_names: Common names that are accepted; empty accepts every leaf of the authorities.
        token_hashes: SHA-256 digests (32 octets) of path tokens, each with the end of its validity in
            nanoseconds; two while one is rotated.
    """

    cluster: str
    client_cas: tuple[bytes, ...] = ()
    client_names: frozenset[str] = frozenset()
    token_hashes: Mapping[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated API server: its cluster and what proved it (goes into the record)."""

    cluster: str
    how: How
    credential: str  # SHA-256 of the certificate, or the first 16 hex digits of the token's SHA-256

    record: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", {"credential": self.credential, "how": self.how})


@dataclass(frozen=True, slots=True)
class _Authority:
    cluster: str
    names: frozenset[str]
    certificate: x509.Certificate


@dataclass(frozen=True, slots=True)
class _Known:
    caller: Caller | None  # None: verified by TLS, bound to no cluster
    not_before_ns: int
    not_after_ns: int


class Identities:
    """An immutable table of callers. Replaced as a whole when clusters or tokens change."""

    def __init__(self, clusters: Iterable[ClusterIdentity] = ()) -> None:
        self._tokens: dict[bytes, tuple[Caller, int]] = {}
        self._authorities: dict[bytes, list[_Authority]] = {}  # by subject name
        self._by_cert: dict[bytes, _Known] = {}
        self._pems: list[str] = []
        owners: dict[bytes, str] = {}
        for entry in clusters:
            self._add_tokens(entry)
            self._add_authorities(entry, owners)

    def _add_tokens(self, entry: ClusterIdentity) -> None:
        for digest, not_after_ns in entry.token_hashes.items():
            if len(digest) != 32:
                raise IdentityConfigError(f"cluster {entry.cluster}: a token hash is not a SHA-256 digest")
            caller = Caller(entry.cluster, "path_token", digest.hex()[:16])
            if self._tokens.setdefault(digest, (caller, not_after_ns))[0].cluster != entry.cluster:
                raise IdentityConfigError(
                    f"cluster {entry.cluster}: its path token belongs to another cluster"
                )

    def _add_authorities(self, entry: ClusterIdentity, owners: dict[bytes, str]) -> None:
        for pem in entry.client_cas:
            for authority in _load_authorities(entry.cluster, pem):
                key = _spki_digest(authority)
                if owners.setdefault(key, entry.cluster) != entry.cluster:
                    raise IdentityConfigError(
                        f"clusters {owners[key]} and {entry.cluster} name the same client authority; "
                        "give each API server's client certificate an authority of its own"
                    )
                known = _Authority(entry.cluster, entry.client_names, authority)
                self._authorities.setdefault(authority.subject.public_bytes(), []).append(known)
                self._pems.append(authority.public_bytes(serialization.Encoding.PEM).decode("ascii"))

    def client_ca_pem(self) -> str:
        """PEM of every registered authority, for the listener's CertificateRequest. May be empty."""
        return "".join(dict.fromkeys(self._pems))

    def authenticate(self, cluster: str, token: str | None, peer_cert: bytes | None, now_ns: int) -> Caller:
        """The caller of a request to `/admit/{cluster}[/{token}]`.

        Args:
            cluster: From the URL path.
            token: The path token, if the URL carries one.
            peer_cert: DER of the TLS client certificate, if one was shown.
            now_ns: Present time in nanoseconds.

        Raises:
            Unauthenticated: No credential, or one that is bound to no cluster or has expired.
            Forbidden: A credential of another cluster, or a path token that is wrong for this cluster beside
                a certificate that is right.
        """
        if peer_cert is not None:
            caller = self._by_certificate(peer_cert, now_ns)
        elif token is not None:
            caller = self._by_token(token, now_ns)
        else:
            raise Unauthenticated("no client certificate and no path token", reason="no_credential")
        if caller.cluster != cluster:
            raise Forbidden("the credential is bound to another cluster", reason="other_cluster")
        if peer_cert is not None and token is not None:
            self._agrees(cluster, token, now_ns)
        return caller

    def _agrees(self, cluster: str, token: str, now_ns: int) -> None:
        """A token beside a good certificate adds nothing, but a wrong one says that something is mixed up."""
        try:
            other = self._by_token(token, now_ns).cluster
        except Unauthenticated as exc:
            raise Forbidden(f"{exc}, whatever the certificate says", reason=exc.reason) from None
        if other != cluster:
            raise Forbidden("the path token is bound to another cluster", reason="other_cluster")

    def _by_token(self, token: str, now_ns: int) -> Caller:
        # The dict is keyed by the digest of a 256-bit secret: its timing tells nothing about the secret.
        known = None
        if _TOKEN.fullmatch(token):
            known = self._tokens.get(hashlib.sha256(token.encode("ascii")).digest())
        if known is None or known[1] <= now_ns:  # one text: an expired one is unknown
            raise Unauthenticated("the path token is not known", reason="unknown_token")
        return known[0]

    def _by_certificate(self, der: bytes, now_ns: int) -> Caller:
        known = self._by_cert.get(der)
        if known is None:
            known = self._resolve(der)
            if len(self._by_cert) >= _CACHE_SIZE:
                self._by_cert.clear()
            self._by_cert[der] = known
        if known.caller is None:
            raise Unauthenticated(
                "the client certificate stands for no cluster", reason="unknown_certificate"
            )
        if not known.not_before_ns <= now_ns <= known.not_after_ns:
            raise Unauthenticated("the client certificate is not valid now", reason="expired_certificate")
        return known.caller

    def _resolve(self, der: bytes) -> _Known:
        try:
            leaf = x509.load_der_x509_certificate(der)
            authority = self._issuer_of(leaf)
        except ValueError:
            return _Known(None, 0, 0)
        if authority is None or not _name_accepted(leaf, authority.names):
            return _Known(None, 0, 0)
        caller = Caller(authority.cluster, "client_certificate", hashlib.sha256(der).hexdigest())
        # Whoever vouches must be valid too: connections outlive the check that TLS made.
        (begin, end), (ca_begin, ca_end) = _validity_ns(leaf), _validity_ns(authority.certificate)
        return _Known(caller, max(begin, ca_begin), min(end, ca_end))

    def _issuer_of(self, leaf: x509.Certificate) -> _Authority | None:
        for authority in self._authorities.get(leaf.issuer.public_bytes(), ()):
            try:
                leaf.verify_directly_issued_by(authority.certificate)
            except (InvalidSignature, ValueError, TypeError):
                continue
            return authority
        return None


def _load_authorities(cluster: str, pem: bytes) -> list[x509.Certificate]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x509.load_pem_x509_certificates(pem)
    except ValueError as exc:
        raise IdentityConfigError(f"cluster {cluster}: clientCA is not a PEM certificate") from exc


def _spki_digest(certificate: x509.Certificate) -> bytes:
    digest = hashes.Hash(hashes.SHA256())
    digest.update(
        certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return digest.finalize()


def _name_accepted(leaf: x509.Certificate, names: frozenset[str]) -> bool:
    if not names:
        return True
    common = leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return len(common) == 1 and common[0].value in names


def _validity_ns(one: x509.Certificate) -> tuple[int, int]:
    start, end = one.not_valid_before_utc, one.not_valid_after_utc
    return int(start.timestamp()) * 1_000_000_000, int(end.timestamp()) * 1_000_000_000
