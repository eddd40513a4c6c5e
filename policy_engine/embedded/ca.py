"""The embedded certificate authority: server certificates for one machine, by `cryptography`.

Signs the server certificates of OpenBao and of the three listeners, and, for the example estate,
stands in for each cluster's own CA that signs its API server's client certificate. Agents' client
certificates are *not* made here: OpenBao's PKI signs those by CSR.

Keys are EC P-256, made and kept in the state folder with mode 0600. One host holds all of this,
which is what ``custody: embedded (not separated)`` says.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from evidence import durable

CA_LIFETIME: Final = dt.timedelta(days=3650)
LEAF_LIFETIME: Final = dt.timedelta(days=90)
RENEW_BEFORE: Final = LEAF_LIFETIME / 3
# A clock that is a little behind must not refuse a new certificate.
BACKDATE: Final = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """One CA in one folder; opening it again gives the same CA."""

    def __init__(self, folder: Path, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self.ca_file = folder / "ca.crt"
        self._cert = cert
        self._key = key

    @classmethod
    def open(cls, folder: Path, name: str, now: dt.datetime) -> Authority:
        """Open the CA of a folder, making it on the first call.

        Raises:
            ValueError: Certificate and key in the folder do not belong together.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        cert_file, key_file = folder / "ca.crt", folder / "ca.key"
        if cert_file.exists() and key_file.exists():
            cert = x509.load_pem_x509_certificate(cert_file.read_bytes())
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != cert.public_key():
                raise ValueError(f"{cert_file} and its key do not belong together: remove both")
            return cls(folder, cert, key)
        key = ec.generate_private_key(ec.SECP256R1())
        cert = _self_signed(name, key, now)
        durable.replace(key_file, (_key_pem(key),))
        durable.replace(cert_file, (cert.public_bytes(serialization.Encoding.PEM),), 0o644)
        return cls(folder, cert, key)

    def server(self, name: str, hosts: tuple[str, ...], now: dt.datetime) -> Pair:
        """A server certificate for host names or addresses; kept while it is valid for long enough."""
        alternative = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._leaf(name, now, ExtendedKeyUsageOID.SERVER_AUTH, alternative)

    def client(self, name: str, now: dt.datetime) -> Pair:
        """A client certificate whose CN is ``name``."""
        return self._leaf(name, now, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _leaf(
        self,
        name: str,
        now: dt.datetime,
        usage: x509.ObjectIdentifier,
        san: x509.SubjectAlternativeName | None,
    ) -> Pair:
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        if _still_good(pair, now, san):
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, self._cert.subject, key, now, LEAF_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if san is not None:
            builder = builder.add_extension(san, critical=False)
        cert = builder.sign(self._key, hashes.SHA256())
        # Key first: a reader that sees the new certificate finds its key.
        durable.replace(pair.key, (_key_pem(key),))
        durable.replace(pair.cert, (cert.public_bytes(serialization.Encoding.PEM),), 0o644)
        return pair


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: dt.datetime, lifetime: dt.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _self_signed(name: str, key: ec.EllipticCurvePrivateKey, now: dt.datetime) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _builder(name, subject, key, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _still_good(pair: Pair, now: dt.datetime, san: x509.SubjectAlternativeName | None) -> bool:
    """Whether the pair on disk names the same hosts and is not due for renewal."""
    if not (pair.cert.exists() and pair.key.exists()):
        return False
    cert = x509.load_pem_x509_certificate(pair.cert.read_bytes())
    if cert.not_valid_after_utc - now < RENEW_BEFORE:
        return False
    if san is None:
        return True
    try:
        have = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return have == san
