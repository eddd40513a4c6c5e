"""Rights and destruction on a real OpenBao: every forbidden path of every role is tried and refused."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bao_server import Bao
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from evidence.logs import get_logger
from keymgmt.agents.config import BaoPaths, Server
from keymgmt.agents.enrol import enrol
from keymgmt.agents.identity import Candidate, Identity
from keymgmt.agents.vault import Vault
from keymgmt.bao import Address, AppRole, BaoSession
from keymgmt.custody_openbao import OpenBaoLinkKeys, OpenBaoSigner, OpenBaoStore
from keymgmt.errors import CustodyRefused, CustodyUnavailable, RightsRefused

pytestmark = pytest.mark.slow
AD = b'{"an":1,"link":"c1"}'
PATHS = BaoPaths(keys_mount="links-e1", approle_mount="enrol")


@pytest.fixture(scope="module", autouse=True)
def links(bao: Bao) -> None:
    for link in ("c1", "c2"):
        bao.provisioner().add_link(link, (f"{link}-a", f"{link}-b"))


@pytest.fixture
def keys(bao: Bao) -> OpenBaoLinkKeys:
    return OpenBaoLinkKeys(bao.store.session("conductor"), epoch=1)


@pytest.fixture(scope="module")
def agent(bao: Bao, links: None, tmp_path_factory: pytest.TempPathFactory) -> Vault:
    identity = enrolled(bao, "c1-a", "c1", tmp_path_factory.mktemp("agent"))
    return Vault(server(bao), PATHS, lambda: identity)


def server(bao: Bao) -> Server:
    return Server("127.0.0.1", bao.child.port, str(bao.child.tls.ca_file))


def enrolled(bao: Bao, name: str, link: str, folder: Path) -> Identity:
    ticket = bao.provisioner().enrol(name, link)
    return enrol(
        server=server(bao),
        paths=PATHS,
        name=name,
        role_id=ticket.role_id,
        wrapping_token=ticket.wrapped_secret_id,
        folder=folder,
    )


# --- the key's life ---------------------------------------------------------------------------------------


def test_a_wrapped_key_opens_for_its_agent_only_with_its_associated_data(
    keys: OpenBaoLinkKeys, agent: Vault
) -> None:
    version = keys.rotate("c1")
    wrapped = keys.wrapped("c1", AD)
    assert version == wrapped.version
    assert 32 == len(agent.decrypt("c1", wrapped.ciphertext, AD))
    with pytest.raises(CustodyRefused):
        agent.decrypt("c1", wrapped.ciphertext, b"{}")
    with pytest.raises(CustodyRefused):
        agent.decrypt("c2", wrapped.ciphertext, AD)


def test_a_destroyed_version_never_decrypts_again(keys: OpenBaoLinkKeys, agent: Vault, bao: Bao) -> None:
    version = keys.rotate("c1")
    wrapped = keys.wrapped("c1", AD)
    proof = keys.destroy("c1", version)
    assert (version, version + 1) == (proof.version, proof.min_available_version)
    with pytest.raises(CustodyRefused):
        agent.decrypt("c1", wrapped.ciphertext, AD)
    conductor = bao.store.session("conductor")
    for minimum in (version, 1):
        with pytest.raises(CustodyRefused):
            conductor.write(
                "links-e1/keys/c1/config",
                {"min_decryption_version": minimum, "min_encryption_version": minimum},
            )
    assert proof == keys.destroy("c1", version), "repeating it is harmless"


def test_a_raised_minimum_alone_is_no_destruction(keys: OpenBaoLinkKeys, agent: Vault, bao: Bao) -> None:
    """The mutant: it can be lowered again by whoever has the conductor's rights."""
    conductor = bao.store.session("conductor")
    version = keys.rotate("c1")
    wrapped = keys.wrapped("c1", AD)
    keys.rotate("c1")
    both = {"min_decryption_version": version + 1, "min_encryption_version": version + 1}
    conductor.write("links-e1/keys/c1/config", both)
    with pytest.raises(CustodyRefused):
        agent.decrypt("c1", wrapped.ciphertext, AD)
    low = {"min_decryption_version": version, "min_encryption_version": version}
    conductor.write("links-e1/keys/c1/config", low)
    assert 32 == len(agent.decrypt("c1", wrapped.ciphertext, AD)), "revived: so it was never destroyed"
    keys.destroy("c1", version)


def test_a_stale_conductor_between_config_and_trim_only_costs_a_round(
    keys: OpenBaoLinkKeys, bao: Bao, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = bao.store.session("conductor")
    version = keys.rotate("c1")
    session: BaoSession = keys._bao
    write, lowered = session.write, []

    def interfering(path: str, data: Any = None, **more: Any) -> Any:
        if path.endswith("/trim") and not lowered:
            lowered.append(path)
            low = {"min_decryption_version": version, "min_encryption_version": version}
            stale.write("links-e1/keys/c1/config", low)
        return write(path, data, **more)

    monkeypatch.setattr(session, "write", interfering)
    assert version + 1 == keys.destroy("c1", version).min_available_version
    assert lowered


def test_destruction_that_read_back_never_shows_is_could_not_tell(
    keys: OpenBaoLinkKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = keys.rotate("c1")
    session: BaoSession = keys._bao
    write = session.write
    monkeypatch.setattr(
        session, "write", lambda path, *a, **k: {} if path.endswith("/trim") else write(path, *a, **k)
    )
    with pytest.raises(CustodyUnavailable, match="still there"):
        keys.destroy("c1", version)


# --- what each role may not do ------------------------------------------------------------------------------

LINK = "links-e1/keys/c1"
LOOPBACK = ["127.0.0.1/32"]
CERT_ROLE = {
    "certificate": "x",
    "token_policies": "sluicegate/agent",
    "token_no_default_policy": "true",
    "token_bound_cidrs": LOOPBACK,
}
ENROL_ROLE = {
    "token_policies": "sluicegate/enrol",
    "token_num_uses": "1",
    "token_bound_cidrs": LOOPBACK,
    "secret_id_num_uses": "1",
    "secret_id_ttl": "300s",
    "secret_id_bound_cidrs": LOOPBACK,
}
FORBIDDEN: dict[str, list[tuple[str, str, dict[str, Any] | None]]] = {
    "conductor": [
        ("write", "links-e1/decrypt/c1", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
        ("write", "links-e1/encrypt/c1", {"plaintext": "e30="}),
        ("write", "links-e1/rewrap/c1", {"ciphertext": "vault:v1:x"}),
        ("write", "links-e1/datakey/plaintext/c1", {"associated_data": "e30="}),
        ("write", "links-e1/datakey/wrapped/c1", {}),
        ("write", "links-e1/datakey/wrapped/c1", {"associated_data": "e30=", "bits": "512"}),
        ("write", "links-e1/datakey/wrapped/c1", {"associated_data": "e30=", "key_version": 1}),
        ("write", f"{LINK}/config", {"exportable": True}),
        ("write", f"{LINK}/config", {"deletion_allowed": True}),
        ("write", f"{LINK}/config", {"allow_plaintext_backup": True}),
        ("write", f"{LINK}/config", {"auto_rotate_period": "1h"}),
        ("write", "links-e1/keys/new", {"type": "aes256-gcm96"}),
        ("read", "links-e1/export/encryption-key/c1", None),
        ("read", "links-e1/backup/c1", None),
        ("delete", LINK, None),
        ("write", "transit/sign/ledger", {"input": "e30="}),
        ("write", "transit/sign/permit-root", {"input": "e30="}),
        ("write", "sys/policies/acl/sluicegate/conductor", {"policy": ""}),
        ("write", "auth/approle/role/conductor", {"token_policies": "root"}),
        ("write", "auth/enrol/role/c1-a/secret-id", {}),
        ("write", "links-e1/datakey/wrapped/c1", {"associated_data": "e30=", "batch_input": [{}]}),
        ("read", "links-e2/keys/c1", None),
        ("write", "links-e2/keys/c1/rotate", {}),
        ("list", "links-e1/keys", None),
        ("write", "links-e1/keys/c1/import_version", {}),
        ("write", "links-e1/cache-config", {"size": 1}),
        ("read", "sys/mounts", None),
        ("write", "sys/seal", {}),
        ("write", "sys/wrapping/wrap", {"a": "b"}),
        ("read", "auth/token/lookup-self", None),
        ("write", "auth/token/create", {}),
        ("write", "pki/sign/agent", {"csr": "x"}),
        ("write", "pki/issue/agent", {"common_name": "c1-a"}),
        ("write", "kv/data/epoch", {"data": {"epoch": "9"}}),
        ("write", "identity/entity/name/c1-a", {"metadata": {"link": "c2"}}),
    ],
    "gate": [
        ("write", "transit/sign/permit-root", {"input": "e30=", "key_version": 1}),
        ("write", "transit/sign/permit-root", {"batch_input": [{"input": "e30="}]}),
        ("write", "transit/sign/permit-root", {"input": "e30=", "prehashed": True}),
        ("write", "transit/sign/permit-root/sha2-256", {"input": "e30="}),
        ("delete", "kv/data/permits/x", None),
        ("read", "kv/metadata/permits/x", None),
        ("write", "kv/destroy/permits/x", {"versions": [1]}),
        ("read", LINK, None),
        ("write", f"{LINK}/rotate", {}),
        ("write", "links-e1/decrypt/c1", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
        ("write", "links-e1/datakey/wrapped/c1", {"associated_data": "e30="}),
        ("write", "transit/sign/ledger", {"input": "e30="}),
        ("read", "transit/export/signing-key/permit-root", None),
        ("write", "transit/keys/permit-root/rotate", {}),
        ("write", "kv/data/epoch", {"data": {"epoch": "9"}}),
        ("read", "kv/data/other", None),
        ("write", "pki/sign/agent", {"csr": "x"}),
    ],
    "ledger": [
        ("write", "transit/sign/ledger", {"input": "e30=", "key_version": 1}),
        ("write", "transit/sign/ledger", {"batch_input": [{"input": "e30="}]}),
        ("write", "transit/sign/permit-root", {"input": "e30="}),
        ("read", "transit/export/signing-key/ledger", None),
        ("write", "transit/keys/ledger/rotate", {}),
        ("write", "transit/keys/ledger/config", {"exportable": True}),
        ("read", LINK, None),
        ("write", f"{LINK}/rotate", {}),
        ("read", "kv/data/permits/x", None),
    ],
    "enroller": [
        ("write", "auth/enrol/role/c1-a/secret-id", {}),
        ("write", "auth/enrol/role/c1-a/custom-secret-id", {"secret_id": "x"}),
        ("write", "auth/enrol/role/c1-a", {"token_policies": "root"}),
        ("write", "auth/approle/role/conductor/secret-id", {}),
        ("read", LINK, None),
        ("write", "links-e1/decrypt/c1", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
    ],
    "provisioner": [
        ("write", "links-e1/keys/c3", {"type": "aes256-gcm96", "auto_rotate_period": "24h"}),
        ("write", "links-e1/keys/c3", {"type": "aes256-gcm96", "derived": True}),
        ("write", "links-e1/keys/c3/import", {}),
        ("write", f"{LINK}/config", {"deletion_allowed": True}),
        ("delete", LINK, None),
        ("write", "sys/policies/acl/sluicegate/provisioner", {"policy": ""}),
        ("write", "sys/mounts/other", {"type": "transit"}),
        ("write", "auth/cert/certs/agent", CERT_ROLE | {"token_policies": "sluicegate/conductor"}),
        ("write", "auth/cert/certs/agent", CERT_ROLE | {"token_no_default_policy": "false"}),
        ("write", "auth/cert/certs/agent", {k: v for k, v in CERT_ROLE.items() if "cidr" not in k}),
        ("write", "auth/cert/certs/other", CERT_ROLE),
        ("write", "auth/enrol/role/c1-a", ENROL_ROLE | {"token_num_uses": "0"}),
        ("write", "auth/enrol/role/c1-a", ENROL_ROLE | {"secret_id_num_uses": "0"}),
        ("write", "auth/enrol/role/c1-a", ENROL_ROLE | {"bind_secret_id": False}),
        ("write", "auth/enrol/role/c1-a", {k: v for k, v in ENROL_ROLE.items() if "cidr" not in k}),
        ("write", "auth/enrol/role/c1-a/policies", {"token_policies": "root"}),
        ("write", "identity/entity", {"name": "c1-a", "policies": ["root"]}),
        ("write", "identity/group", {"name": "g", "policies": ["root"]}),
        ("write", "identity/entity/merge", {}),
        ("write", "pki/sign/agent", {"csr": "x"}),
        ("write", "pki/issue/agent", {"common_name": "c1-a"}),
        ("write", "pki/sign-verbatim", {"csr": "x"}),
        ("write", f"{LINK}/rotate", {}),
        ("write", f"{LINK}/trim", {"min_available_version": 1}),
        ("write", "links-e1/datakey/wrapped/c1", {"associated_data": "e30="}),
        ("write", "links-e1/decrypt/c1", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
        ("write", "links-e1/keys/c3", {"type": "aes256-gcm96", "exportable": True}),
        ("write", "links-e1/keys/c3", {"type": "aes256-gcm96", "allow_plaintext_backup": True}),
        ("write", "identity/entity/name/c1-a", {"policies": ["root"]}),
        ("write", "auth/enrol/role/c1-a", {"token_policies": "sluicegate/conductor"}),
        ("write", "auth/enrol/role/c1-a/secret-id", {}),
        ("write", "auth/approle/role/conductor/secret-id", {}),
        ("write", "sys/policies/acl/other", {"policy": ""}),
        ("write", "transit/sign/ledger", {"input": "e30="}),
        ("write", "auth/token/create", {}),
        ("write", "sys/seal", {}),
    ],
}


@pytest.mark.parametrize("role", FORBIDDEN)
def test_forbidden_paths_of_service_roles_are_refused(bao: Bao, role: str) -> None:
    session = bao.store.session(role)
    allowed = []
    for verb, path, data in FORBIDDEN[role]:
        call: Callable[..., Any] = getattr(session, verb)
        try:
            call(path) if data is None else call(path, data)
        except RightsRefused:
            continue
        except (CustodyRefused, CustodyUnavailable) as error:
            allowed.append((path, data, str(error)))
        else:
            allowed.append((path, data, "done"))
    assert [] == allowed


def test_an_enroller_says_nothing_about_a_secret_id_but_that_it_is_wrapped(bao: Bao) -> None:
    session, path = bao.store.session("enroller"), "auth/enrol/role/c1-a/secret-id"
    for more in ({"num_uses": 5}, {"ttl": "24h"}, {"metadata": "{}"}, {"token_bound_cidrs": ["0.0.0.0/0"]}):
        with pytest.raises(RightsRefused):
            session.write(path, more, wrap_ttl_s=60)
    with pytest.raises(RightsRefused):
        session.write(path, wrap_ttl_s=3600)
    assert session.write(path, wrap_ttl_s=60)["wrap_info"]["token"]


def test_tokens_live_minutes_are_bound_to_networks_and_have_one_policy(bao: Bao) -> None:
    for role in bao.store.roles:
        session = bao.store.session(role)
        session._keep_alive()
        login = bao.store.roles[role]
        body = {"role_id": login.role_id, "secret_id": login.secret_id}
        auth = session.write("auth/approle/login", body)["auth"]
        assert ([f"sluicegate/{role}"], True) == (auth["token_policies"], auth["lease_duration"] <= 600)
        session.close()


AGENT_FORBIDDEN: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "links-e1/decrypt/c2", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
    ("POST", "links-e1/decrypt/c1", {"ciphertext": "vault:v1:x"}),
    ("POST", "links-e1/decrypt/c1", {"batch_input": [{"ciphertext": "vault:v1:x"}]}),
    ("POST", "links-e2/decrypt/c1", {"ciphertext": "vault:v1:x", "associated_data": "e30="}),
    ("POST", "links-e1/decrypt/c1", {"ciphertext": "x", "associated_data": "e30=", "key_version": 1}),
    ("POST", "sys/wrapping/wrap", {"a": "b"}),
    ("POST", "links-e1/rewrap/c1", {"ciphertext": "vault:v1:x"}),
    ("POST", "pki/sign/agent", {"csr": "x", "ttl": "87600h"}),
    ("POST", "pki/sign-verbatim/agent", {"csr": "x"}),
    ("POST", "pki/revoke", {"serial_number": "1"}),
    ("POST", "links-e1/encrypt/c1", {"plaintext": "e30="}),
    ("POST", "links-e1/datakey/wrapped/c1", {"associated_data": "e30="}),
    ("POST", "links-e1/keys/c1/rotate", {}),
    ("GET", "links-e1/keys/c1", None),
    ("POST", "pki/issue/agent", {"common_name": "c1-a"}),
    ("POST", "pki/sign/agent", {"csr": "x", "common_name": "c2-a"}),
    ("POST", "transit/sign/permit-root", {"input": "e30="}),
    ("GET", "kv/data/epoch", None),
    ("GET", "auth/token/lookup-self", None),
    ("POST", "auth/token/create", {}),
    ("GET", "identity/entity/name/c1-a", None),
]


def test_forbidden_paths_of_an_agent_are_refused(agent: Vault) -> None:
    agent.keep_alive()
    allowed = []
    for method, path, data in AGENT_FORBIDDEN:
        try:
            agent._send(method, path, data or {}, agent._token)
        except CustodyRefused as refused:
            if getattr(refused, "status", 0) == 403:
                continue
        allowed.append(path)
    assert [] == allowed


def test_an_agent_cannot_get_another_agents_certificate(agent: Vault) -> None:
    with pytest.raises(CustodyRefused):
        agent.sign_csr(Candidate("c2-a").csr)
    assert "BEGIN CERTIFICATE" in agent.sign_csr(Candidate("c1-a").csr)


def test_an_enrolment_token_works_once(bao: Bao, tmp_path: Path) -> None:
    ticket = bao.provisioner().enrol("c1-b", "c1")
    arguments: dict[str, Any] = {
        "server": server(bao),
        "paths": PATHS,
        "name": "c1-b",
        "role_id": ticket.role_id,
        "wrapping_token": ticket.wrapped_secret_id,
    }
    enrol(**arguments, folder=tmp_path / "one")
    with pytest.raises(CustodyRefused):
        enrol(**arguments, folder=tmp_path / "two")
    assert ticket.wrapped_secret_id not in repr(ticket)


def test_a_disabled_agent_is_out_at_once(bao: Bao, tmp_path: Path, keys: OpenBaoLinkKeys) -> None:
    identity = enrolled(bao, "c2-b", "c2", tmp_path)
    vault = Vault(server(bao), PATHS, lambda: identity)
    keys.rotate("c2")
    wrapped = keys.wrapped("c2", AD)
    vault.decrypt("c2", wrapped.ciphertext, AD)
    bao.provisioner().disable("c2-b")
    with pytest.raises(CustodyRefused):
        vault.decrypt("c2", wrapped.ciphertext, AD)
    with pytest.raises(CustodyRefused):
        Vault(server(bao), PATHS, lambda: identity).keep_alive()


def test_an_agent_name_belongs_to_one_link(bao: Bao) -> None:
    bao.provisioner().add_link("c4", ("c4-a", "c4-b"))
    bao.provisioner().add_link("c4", ("c4-a", "c4-b"))
    with pytest.raises(CustodyRefused, match="another link"):
        bao.provisioner().add_link("c5", ("c4-a", "c5-b"))


# --- signing and sealed documents -----------------------------------------------------------------------------


def test_signatures_verify_under_the_public_key(bao: Bao) -> None:
    for role, key in (("ledger", "ledger"), ("gate", "permit-root")):
        signer = OpenBaoSigner(bao.store.session(role), key)
        Ed25519PublicKey.from_public_bytes(signer.public_key()).verify(signer.sign(b"head"), b"head")


def test_sealed_documents_are_written_under_compare_and_set(bao: Bao) -> None:
    store = OpenBaoStore(bao.store.session("gate"))
    assert store.get("permits/none") is None
    assert 1 == store.put("permits/signer", {"a": "1"}, expected=0)
    with pytest.raises(CustodyRefused):
        store.put("permits/signer", {"a": "2"}, expected=0)
    assert ({"a": "1"}, 1) == store.get("permits/signer")


def test_errors_name_path_and_status_but_quote_nothing(bao: Bao) -> None:
    session = bao.store.session("conductor")
    canary = base64.b64encode(b"canary-canary").decode()
    with pytest.raises(RightsRefused) as refused:
        session.write("links-e1/encrypt/c1", {"plaintext": canary})
    assert "links-e1/encrypt/c1: refused, 403" == str(refused.value)
    assert canary not in repr(refused.value.__cause__)
    assert canary not in repr(refused.value.__context__)


def test_no_canary_reaches_an_exception_a_log_line_or_a_representation(
    bao: Bao, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything that a failing call could drag along: request body, token, secret_id."""
    bird = f"tweet-{2**40}"  # put together: a traceback quotes source lines
    login = AppRole(bird, bird)
    sessions = [
        BaoSession(bao.address, login),
        BaoSession(bao.address, token=bird),
        BaoSession(Address("https://127.0.0.1:1", bao.child.tls.ca_file), login),
        BaoSession(Address(bao.child.url, Path("/nowhere")), token=bird),
    ]
    for session in sessions:
        with pytest.raises((CustodyRefused, CustodyUnavailable, OSError)) as failed:
            session.write("links-e1/encrypt/c1", {"plaintext": bird})
        error = failed.value
        get_logger("test").error("call_failed", error=str(error), exc_info=error)
        assert bird not in "".join(traceback.format_exception(error)) + repr((session, login, error.args))
    assert bird not in "".join(capsys.readouterr())
    assert bird not in (bao.child.folder / "log" / "audit.log").read_text()


def test_a_revoked_certificate_still_logs_in_until_the_crl_is_posted(bao: Bao, tmp_path: Path) -> None:
    """Why `disable` comes first; and the provisioner's rights are enough for all three acts."""
    identity = enrolled(bao, "c2-a", "c2", tmp_path)
    certificate = x509.load_pem_x509_certificate(identity.cert_file.read_bytes())
    serial = f"{certificate.serial_number:x}"
    serial = serial.zfill(len(serial) + len(serial) % 2)
    provisioner = bao.store.session("provisioner")
    colons = ":".join(serial[i : i + 2] for i in range(0, len(serial), 2))
    provisioner.write("pki/revoke", {"serial_number": colons})
    Vault(server(bao), PATHS, lambda: identity).keep_alive()
    crl = provisioner.read("pki/cert/crl")
    assert crl is not None
    provisioner.write("auth/cert/crls/agents", {"crl": crl["certificate"]})
    with pytest.raises(CustodyRefused):
        Vault(server(bao), PATHS, lambda: identity).keep_alive()
