"""The embedded CA: stable across restarts, private files, certificates that only do their job."""

import datetime as dt
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from policy_engine.embedded.ca import LEAF_LIFETIME, Authority

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def load(pair):
    return x509.load_pem_x509_certificate(pair.cert.read_bytes())


def test_opening_again_gives_the_same_ca_and_the_same_certificate(tmp_path):
    first = Authority.open(tmp_path, "test ca", NOW).server("api", ("127.0.0.1", "localhost"), NOW)
    before = first.cert.read_bytes()
    second = Authority.open(tmp_path, "other name", NOW).server("api", ("127.0.0.1", "localhost"), NOW)
    assert before == second.cert.read_bytes()


def test_keys_are_readable_by_the_owner_only(tmp_path):
    pair = Authority.open(tmp_path / "tls", "test ca", NOW).client("train-us", NOW)
    for key in (tmp_path / "tls" / "ca.key", pair.key):
        assert 0o600 == stat.S_IMODE(key.stat().st_mode)


def test_a_certificate_serves_one_purpose(tmp_path):
    ca = Authority.open(tmp_path, "test ca", NOW)
    server, client = load(ca.server("s", ("127.0.0.1",), NOW)), load(ca.client("c", NOW))
    for cert, usage in ((server, "serverAuth"), (client, "clientAuth")):
        found = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [usage] == [oid._name for oid in found]
        assert not cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_the_pair_loads_into_a_tls_context_and_verifies(tmp_path):
    ca = Authority.open(tmp_path, "test ca", dt.datetime.now(dt.UTC))
    pair = ca.server("s", ("127.0.0.1",), dt.datetime.now(dt.UTC))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair.cert, pair.key)
    load(pair).verify_directly_issued_by(x509.load_pem_x509_certificate(ca.ca_file.read_bytes()))


@pytest.mark.parametrize("later", [LEAF_LIFETIME * 0.7, LEAF_LIFETIME * 2])
def test_a_certificate_is_renewed_in_its_last_third(tmp_path, later):
    ca = Authority.open(tmp_path, "test ca", NOW)
    before = load(ca.server("s", ("127.0.0.1",), NOW)).serial_number
    assert before != load(ca.server("s", ("127.0.0.1",), NOW + later)).serial_number


def test_other_hosts_are_another_certificate(tmp_path):
    ca = Authority.open(tmp_path, "test ca", NOW)
    before = load(ca.server("s", ("127.0.0.1",), NOW)).serial_number
    assert before != load(ca.server("s", ("127.0.0.2",), NOW)).serial_number


def test_a_key_of_another_ca_is_refused(tmp_path):
    Authority.open(tmp_path, "test ca", NOW)
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "ca.key").write_bytes(other)
    with pytest.raises(ValueError, match="do not belong together"):
        Authority.open(tmp_path, "test ca", NOW)
