"""The agent's own private key and certificate: made here, certified by CSR, replaced as a pair.

The key never leaves the folder. A pair is a folder `identity-<n>` that the link `identity` points to, so that
key and certificate change in one step. The same key signs samples.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from evidence.durable import sync_folder
from keymgmt.errors import CouldNotTell


@dataclass(frozen=True, slots=True)
class Identity:
    """One key and its certificate."""

    key_file: Path
    cert_file: Path
    not_before: dt.datetime
    not_after: dt.datetime
    serial: int
    _key: EllipticCurvePrivateKey = field(repr=False)

    def sign(self, octets: bytes) -> bytes:
        """Return an ECDSA P-256 SHA-256 signature in DER."""
        return self._key.sign(octets, ECDSA(SHA256()))

    def tls(self, ca_file: str) -> ssl.SSLContext:
        """Return a client context that presents this certificate and trusts one CA file."""
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def wants_renewal(self, now: dt.datetime) -> bool:
        """Whether half of the certificate's life has passed."""
        return now >= self.not_before + (self.not_after - self.not_before) / 2

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the current pair. Raises CouldNotTell when the agent is not enrolled."""
        pair = (folder / "identity").resolve()
        key_file, cert_file = pair / "key.pem", pair / "cert.pem"
        try:
            key = load_pem_private_key(key_file.read_bytes(), None)
            cert = x509.load_pem_x509_certificate(cert_file.read_bytes())
        except (OSError, ValueError):
            raise CouldNotTell("the agent has no usable identity", fix="enrol it again") from None
        if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != cert.public_key():
            raise CouldNotTell("the agent's key and certificate do not fit", fix="enrol it again")
        return cls(
            key_file, cert_file, cert.not_valid_before_utc, cert.not_valid_after_utc, cert.serial_number, key
        )


class Candidate:
    """A new private key and its request; becomes the identity when its certificate arrives."""

    def __init__(self, name: str) -> None:
        self._key = generate_private_key(SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(self._key, SHA256())
        self.csr = request.public_bytes(Encoding.PEM).decode()

    def adopt(self, folder: Path, cert_pem: str) -> Identity:
        """Store key and certificate, make them current in one step and return them.

        Raises:
            CouldNotTell: the certificate is not for this key; the pair of before stays.
        """
        try:
            fits = x509.load_pem_x509_certificate(cert_pem.encode()).public_key() == self._key.public_key()
        except ValueError:
            fits = False
        if not fits:
            raise CouldNotTell("the certificate that came is not for this agent's new key")
        number = 1 + max((int(p.name.split("-")[1]) for p in folder.glob("identity-*")), default=0)
        pair = folder / f"identity-{number}"
        pair.mkdir(mode=0o700, parents=True)
        pem = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        try:
            for name, octets in (("key.pem", pem), ("cert.pem", cert_pem.encode())):
                descriptor = os.open(pair / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(octets)
                    file.flush()
                    os.fsync(file.fileno())
            sync_folder(pair)
        except OSError:
            _remove(pair)
            raise
        temporary = folder / ".identity"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(pair.name)
        temporary.replace(folder / "identity")
        sync_folder(folder)
        _forget_old(folder, number)
        return Identity.load(folder)


def _forget_old(folder: Path, current: int) -> None:
    """Remove all pairs but the current one and the one before."""
    for pair in folder.glob("identity-*"):
        if int(pair.name.split("-")[1]) < current - 1:
            _remove(pair)


def _remove(pair: Path) -> None:
    for file in pair.iterdir():
        file.unlink()
    pair.rmdir()
