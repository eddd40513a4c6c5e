"""Who may ask: a credential is bound to exactly one Cluster."""

import contextlib
import datetime as dt
import hashlib
import re
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from policy_engine.admission.identities import ClusterIdentity, Identities
from policy_engine.errors import Forbidden, IdentityConfigError, Unauthenticated

NOW = dt.datetime.now(dt.UTC)
NOW_NS = int(NOW.timestamp() * 1e9)
DAY_NS = 86_400 * 10**9
US, EU = trustme.CA(), trustme.CA()
US_TOKEN, EU_TOKEN = "5a" * 32, "Eu-token_" + "q" * 34  # fixed: they stand in test ids


def identity(
    cluster: str, ca: trustme.CA, *tokens: str, names: frozenset[str] = frozenset()
) -> ClusterIdentity:
    digests = {hashlib.sha256(token.encode()).digest(): NOW_NS + DAY_NS for token in tokens}
    return ClusterIdentity(cluster, (ca.cert_pem.bytes(),), names, digests)


TABLE = Identities([identity("train-us", US, US_TOKEN), identity("train-eu", EU, EU_TOKEN)])


def der(ca: trustme.CA, name: str = "apiserver", **options: dt.datetime) -> bytes:
    leaf = ca.issue_cert(common_name=name, **options)
    return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())


def test_a_client_certificate_stands_for_the_cluster_of_its_authority() -> None:
    cert = der(US)
    caller = TABLE.authenticate("train-us", None, cert, NOW_NS)
    assert (caller.cluster, caller.how) == ("train-us", "client_certificate")
    assert caller.credential == hashlib.sha256(cert).hexdigest()


def test_a_path_token_stands_for_its_cluster_and_is_recorded_by_its_digest_only() -> None:
    caller = TABLE.authenticate("train-eu", EU_TOKEN, None, NOW_NS)
    assert (caller.cluster, caller.how) == ("train-eu", "path_token")
    assert EU_TOKEN not in repr(caller)
    assert EU_TOKEN not in str(caller.record)


@pytest.mark.parametrize(
    "token",
    [None, "", "short", "0" * 64, US_TOKEN[:-1], US_TOKEN + "=", US_TOKEN + "\n"],
    ids=["none", "empty", "short", "zeros", "one less", "padded", "newline"],
)
def test_no_credential_or_an_unknown_one_is_unauthenticated(token: str | None) -> None:
    with pytest.raises(Unauthenticated):
        TABLE.authenticate("train-us", token, None, NOW_NS)


@pytest.mark.parametrize(
    ("token", "reason"),
    [(EU_TOKEN, "other_cluster"), ("0" * 64, "unknown_token"), ("short", "unknown_token")],
)
def test_a_wrong_token_beside_a_good_certificate_is_forbidden(token: str, reason: str) -> None:
    with pytest.raises(Forbidden) as info:
        TABLE.authenticate("train-us", token, der(US), NOW_NS)
    assert info.value.reason == reason
    assert token not in str(info.value)
    assert TABLE.authenticate("train-us", US_TOKEN, der(US), NOW_NS).how == "client_certificate"


def test_another_clusters_credential_is_forbidden() -> None:
    for token, cert in ((EU_TOKEN, None), (None, der(EU)), (US_TOKEN, der(EU))):
        with pytest.raises(Forbidden) as info:
            TABLE.authenticate("train-us", token, cert, NOW_NS)
        assert info.value.reason == "other_cluster"
        assert "train-eu" not in str(info.value)


def test_a_certificate_of_the_same_name_under_another_authority_is_not_believed() -> None:
    with pytest.raises(Unauthenticated):
        TABLE.authenticate("train-us", None, der(trustme.CA()), NOW_NS)
    with pytest.raises(Unauthenticated):
        TABLE.authenticate("train-us", None, b"\x30\x03\x02\x01\x00", NOW_NS)


def test_an_expired_certificate_ends_on_open_connections_too() -> None:
    cert = der(US, not_after=NOW + dt.timedelta(minutes=1))
    TABLE.authenticate("train-us", None, cert, NOW_NS)
    with pytest.raises(Unauthenticated) as info:
        TABLE.authenticate("train-us", None, cert, NOW_NS + 120 * 10**9)
    assert info.value.reason == "expired_certificate"


def test_a_certificate_that_is_not_valid_yet_is_refused() -> None:
    cert = der(US, not_before=NOW + dt.timedelta(hours=1))
    with pytest.raises(Unauthenticated) as info:
        TABLE.authenticate("train-us", None, cert, NOW_NS)
    assert info.value.reason == "expired_certificate"
    assert TABLE.authenticate("train-us", None, cert, NOW_NS + 7200 * 10**9).cluster == "train-us"


def test_an_authority_that_has_expired_vouches_for_nobody() -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=old authority")
    begin, end = NOW - dt.timedelta(days=2), NOW + dt.timedelta(days=1)

    def signed(subject: x509.Name, end: dt.datetime) -> x509.Certificate:
        certificate = x509.CertificateBuilder(name, subject, key.public_key(), 1, begin, end)
        return certificate.sign(key, hashes.SHA256())

    ca, leaf = signed(name, end), signed(x509.Name.from_rfc4514_string("CN=apiserver"), end + (end - NOW))
    table = Identities([ClusterIdentity("old", (ca.public_bytes(serialization.Encoding.PEM),))])
    shown = leaf.public_bytes(serialization.Encoding.DER)
    assert table.authenticate("old", None, shown, NOW_NS).cluster == "old"
    with pytest.raises(Unauthenticated, match="not valid now"):
        table.authenticate("old", None, shown, NOW_NS + DAY_NS + 10**9)


def test_an_expired_path_token_ends_without_another_table() -> None:
    last = NOW_NS + DAY_NS - 1
    assert TABLE.authenticate("train-us", US_TOKEN, None, last).how == "path_token"
    with pytest.raises(Unauthenticated) as info:
        TABLE.authenticate("train-us", US_TOKEN, None, last + 1)
    assert (info.value.reason, str(info.value)) == ("unknown_token", "the path token is not known")
    with pytest.raises(Forbidden) as beside:
        TABLE.authenticate("train-us", US_TOKEN, der(US), last + 1)
    assert beside.value.reason == "unknown_token"


def test_accepted_names_narrow_an_authority() -> None:
    table = Identities([identity("train-us", US, names=frozenset({"kube-apiserver"}))])
    table.authenticate("train-us", None, der(US, "kube-apiserver"), NOW_NS)
    with pytest.raises(Unauthenticated):
        table.authenticate("train-us", None, der(US, "kubelet"), NOW_NS)


@pytest.mark.parametrize(
    ("names", "accepted"),
    [
        (["kube-apiserver"], True),
        ([], False),
        (["kube-apiserver", "kubelet"], False),
        (["kubelet", "kube-apiserver"], False),
    ],
)
def test_an_accepted_name_is_the_only_one_of_its_certificate(names: list[str], accepted: bool) -> None:
    table = Identities([identity("train-us", US, names=frozenset({"kube-apiserver"}))])
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names]))
        .issuer_name(x509.load_pem_x509_certificate(US.cert_pem.bytes()).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1))
        .sign(serialization.load_pem_private_key(US.private_key_pem.bytes(), None), hashes.SHA256())  # type: ignore[arg-type]
    )
    with contextlib.nullcontext() if accepted else pytest.raises(Unauthenticated):
        table.authenticate("train-us", None, leaf.public_bytes(serialization.Encoding.DER), NOW_NS)


def test_two_clusters_with_one_authority_or_one_token_cannot_be_told_apart() -> None:
    with pytest.raises(IdentityConfigError):
        Identities([identity("a", US), identity("b", US)])
    with pytest.raises(IdentityConfigError):
        Identities([identity("a", US, US_TOKEN), identity("b", EU, US_TOKEN)])
    with pytest.raises(IdentityConfigError):
        Identities([ClusterIdentity("a", (b"no certificate",))])
    with pytest.raises(IdentityConfigError):
        Identities([ClusterIdentity("a", token_hashes={b"short": NOW_NS + DAY_NS})])


def test_the_listener_asks_for_certificates_of_every_registered_authority() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cadata=TABLE.client_ca_pem())
    assert context.cert_store_stats()["x509_ca"] == 2
    assert Identities().client_ca_pem() == ""


def test_an_intermediate_may_be_registered_beside_its_root() -> None:
    child = US.create_child_ca()
    both = (US.cert_pem.bytes() + child.cert_pem.bytes(),)
    table = Identities([ClusterIdentity("train-us", both)])
    assert table.authenticate("train-us", None, der(child), NOW_NS).cluster == "train-us"


LATER = NOW_NS + 2 * DAY_NS
# Every way to be refused before the body: token, certificate, moment.
REFUSED: list[tuple[str | None, bytes | None, int]] = [
    (None, None, NOW_NS),
    ("0" * 64, None, NOW_NS),
    (US_TOKEN, None, LATER),
    (None, der(trustme.CA()), NOW_NS),
    (None, der(US, not_before=NOW.replace(year=2020), not_after=NOW.replace(year=2021)), NOW_NS),
    (None, der(EU), NOW_NS),
    (EU_TOKEN, None, NOW_NS),
    (EU_TOKEN, der(US), NOW_NS),
    ("0" * 64, der(US), NOW_NS),
]


def refusal(token: str | None, certificate: bytes | None, now_ns: int) -> tuple[int, str]:
    with pytest.raises((Unauthenticated, Forbidden)) as info:
        TABLE.authenticate("train-us", token, certificate, now_ns)
    return 401 if isinstance(info.value, Unauthenticated) else 403, info.value.reason


def test_the_page_lists_every_refusal_before_the_body_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/webhook.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| case \| HTTP \| counted as \|\n(.*?)\n\n", page, re.DOTALL)
    said = {
        (int(status), reason)
        for status, reasons in re.findall(r"\| (\d{3}) \| ([^|]+) \|$", table, re.MULTILINE)
        for reason in re.findall(r"`(\w+)`", reasons)
    }
    assert {refusal(*given) for given in REFUSED} == said
