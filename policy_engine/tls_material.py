"""TLS material of a listener: read, checked as a whole, swapped as a whole.

Decides when new certificate, key and client authorities may serve. A live SSLContext is never changed: a
mismatched pair loaded into it raises *and* leaves it broken. Instead the context that accepts connections
(the outer one) hands each handshake over to the newest context that was built without an error.

Session tickets are off: a resumed session is not verified against client authorities again (RFC 8446 4.6.1),
so a removed authority would go on working.
"""

import hashlib
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cryptography import x509

from policy_engine.errors import TlsMaterialError

ClientCert = Literal["none", "optional", "required"]

_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a listener's TLS material stands.

    Attributes:
        cert: PEM chain, leaf first.
        key: PEM private key.
        client_ca: PEM file, or a callable that gives PEM text (authorities come from declared state).
    """

    cert: Path
    key: Path
    client_ca: Path | Callable[[], str] | None = None

    def client_ca_pem(self) -> str:
        """PEM of the client authorities; empty when there are none."""
        if self.client_ca is None:
            return ""
        return self.client_ca.read_text("ascii") if isinstance(self.client_ca, Path) else self.client_ca()

    def digest(self) -> bytes:
        """SHA-256 over the content of everything; changes exactly when the content does."""
        parts = (self.cert.read_bytes(), self.key.read_bytes(), self.client_ca_pem().encode())
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


class ReloadingContext:
    """The outer context of one listener and the newest good one behind it."""

    def __init__(self, files: TlsFiles, client_cert: ClientCert) -> None:
        """Builds the first context.

        Raises:
            TlsMaterialError: The material cannot serve; nothing is served then.
        """
        self._files = files
        self._client_cert: ClientCert = client_cert
        self._current, self._digest = self._load()
        self._refused: bytes | None = None
        self.outer = self._load()[0]
        self.outer.sni_callback = self._hand_over

    def _hand_over(self, sock: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called for each handshake, also without SNI; swaps the client authorities as well.
        sock.context = self._current

    def refresh(self) -> bool:
        """Looks at the content now; True when new material took over.

        Raises:
            TlsMaterialError: New material is there and cannot serve. The old goes on serving. Raised once
                per content, so that a poll does not repeat itself.
        """
        try:
            digest = self._files.digest()
        except (OSError, ValueError) as exc:  # client authorities that are no ASCII are a ValueError
            digest = hashlib.sha256(repr((type(exc), getattr(exc, "errno", None))).encode()).digest()
        if digest in (self._digest, self._refused):
            return False
        try:
            self._current, self._digest = self._load()
        except TlsMaterialError:
            self._refused = digest
            raise
        self._refused = None
        return True

    def _load(self) -> tuple[ssl.SSLContext, bytes]:
        try:
            before = self._files.digest()
            context = _context(self._files, self._client_cert)
            not_after_ns = _not_after_ns(self._files.cert.read_bytes())
            if self._files.digest() != before:
                raise TlsMaterialError("the files changed while they were read; the next poll tries again")
        except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
            reason = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or type(exc).__name__
            raise TlsMaterialError(
                f"TLS material of {self._files.cert.name} cannot serve: {reason}",
                fix="write a certificate chain and the private key that belongs to it, both in PEM",
            ) from exc
        if not_after_ns <= time.time_ns():
            raise TlsMaterialError(
                f"TLS material of {self._files.cert.name} cannot serve: the certificate has expired",
                fix="renew the certificate",
            )
        return context, before


def _context(files: TlsFiles, client_cert: ClientCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(files.cert, files.key, password=_no_password)
    # The mode of the outer context counts even when the inner one has no authority: then every
    # certificate is refused.
    context.verify_mode = _MODES[client_cert]
    pem = files.client_ca_pem()
    if client_cert != "none" and pem.strip():
        context.load_verify_locations(cadata=pem)
    return context


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def _not_after_ns(pem: bytes) -> int:
    leaf = x509.load_pem_x509_certificate(pem)
    return int(leaf.not_valid_after_utc.timestamp()) * 1_000_000_000
