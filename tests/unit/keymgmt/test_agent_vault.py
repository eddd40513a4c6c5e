"""The agent's rights in a real OpenBao: enrolment, decrypt on its own link only, renewal, restart, sealing."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path

import pytest
from bao_server import Bao, freeze

from keymgmt.agents.config import BaoPaths, Server
from keymgmt.agents.enrol import enrol
from keymgmt.agents.identity import Candidate, Identity
from keymgmt.agents.vault import Vault
from keymgmt.custody_openbao import OpenBaoLinkKeys
from keymgmt.errors import CouldNotTell, CustodyRefused, CustodyUnavailable

pytestmark = pytest.mark.slow


class Rig:
    """One enrolled agent of one link."""

    def __init__(self, bao: Bao, folder: Path, link: str, agent: str) -> None:
        self.bao, self.link, self.agent, self.folder = bao, link, agent, folder
        host, _, port = bao.child.url.removeprefix("https://").partition(":")
        self.server = Server(host, int(port), str(bao.child.tls.ca_file))
        self.paths = BaoPaths(f"links-e{bao.store.epoch}")
        provisioner = bao.provisioner()
        provisioner.add_link(link, (agent, f"{link}-other"))
        self.enrolment = provisioner.enrol(agent, link)
        self.identity = self.enrol(agent)
        self.vault = Vault(self.server, self.paths, lambda: self.identity)
        self.keys = OpenBaoLinkKeys(bao.store.session("conductor"), epoch=bao.store.epoch)

    def enrol(self, name: str) -> Identity:
        return enrol(
            server=self.server,
            paths=self.paths,
            name=name,
            role_id=self.enrolment.role_id,
            wrapping_token=self.enrolment.wrapped_secret_id,
            folder=self.folder,
        )

    def wrapped(self, ad: bytes = b"ad") -> str:
        self.keys.rotate(self.link)
        return self.keys.wrapped(self.link, ad).ciphertext


@pytest.fixture
def rig(bao: Bao, tmp_path: Path, request: pytest.FixtureRequest) -> Rig:
    link = f"v{abs(hash(request.node.name)) % 10**8}"
    return Rig(bao, tmp_path / "agent", link, f"{link}-a")


def test_an_enrolled_agent_unwraps_under_its_own_associated_data_only(rig: Rig) -> None:
    ciphertext = rig.wrapped(b"ours")
    key = rig.vault.decrypt(rig.link, ciphertext, b"ours")
    assert 32 == len(key)
    with pytest.raises(CustodyRefused):
        rig.vault.decrypt(rig.link, ciphertext, b"theirs")
    assert key.hex() not in repr(rig.vault)
    assert base64.b64encode(key).decode() not in str(vars(rig.vault))


def test_another_link_is_refused(rig: Rig) -> None:
    rig.bao.provisioner().add_link("foreign-1", ("foreign-1-a", "foreign-1-b"))
    rig.keys.rotate("foreign-1")
    ciphertext = rig.keys.wrapped("foreign-1", b"ad").ciphertext
    with pytest.raises(CustodyRefused, match="403"):
        rig.vault.decrypt("foreign-1", ciphertext, b"ad")


def test_an_enrolment_works_once_and_for_its_own_name_only(rig: Rig) -> None:
    with pytest.raises(CustodyRefused):
        rig.enrol(rig.agent)
    with pytest.raises(CustodyRefused):
        Candidate(f"{rig.link}-other").adopt(
            rig.folder / "x", rig.vault.sign_csr(Candidate(f"{rig.link}-other").csr)
        )


def test_a_destroyed_version_does_not_unwrap(rig: Rig) -> None:
    version = rig.keys.rotate(rig.link)
    ciphertext = rig.keys.wrapped(rig.link, b"ad").ciphertext
    rig.keys.destroy(rig.link, version)
    with pytest.raises(CustodyRefused):
        rig.vault.decrypt(rig.link, ciphertext, b"ad")


def test_a_renewed_certificate_logs_in_anew(rig: Rig) -> None:
    ciphertext, before = rig.wrapped(), rig.identity
    rig.vault.decrypt(rig.link, ciphertext, b"ad")
    candidate = Candidate(rig.agent)
    rig.identity = candidate.adopt(rig.folder, rig.vault.sign_csr(candidate.csr))
    assert before.serial != rig.identity.serial
    rig.vault.keep_alive()
    assert 32 == len(rig.vault.decrypt(rig.link, ciphertext, b"ad"))
    assert rig.identity.serial == Identity.load(rig.folder).serial
    assert before.key_file.read_bytes() != rig.identity.key_file.read_bytes()
    assert 0o600 == rig.identity.key_file.stat().st_mode & 0o777


def test_a_token_is_renewed_at_half_of_its_life(rig: Rig) -> None:
    rig.vault.keep_alive()
    token, rig.vault._renew_at = rig.vault._token, 0.0
    rig.vault.keep_alive()
    assert token == rig.vault._token
    assert rig.vault._renew_at > 0
    rig.vault._token, rig.vault._renew_at = "s.gone", 0.0
    rig.vault.keep_alive()  # a token that OpenBao does not know: log in anew
    assert 32 == len(rig.vault.decrypt(rig.link, rig.wrapped(), b"ad"))


def test_a_disabled_agent_is_stopped_at_once(rig: Rig) -> None:
    ciphertext = rig.wrapped()
    rig.vault.decrypt(rig.link, ciphertext, b"ad")
    rig.bao.provisioner().disable(rig.agent)
    with pytest.raises(CustodyRefused):
        rig.vault.decrypt(rig.link, ciphertext, b"ad")


def test_a_restart_of_openbao_is_survived_and_its_absence_is_could_not_tell(tmp_path: Path) -> None:
    bao = Bao(tmp_path / "bao")
    try:
        rig = Rig(bao, tmp_path / "agent", "r1", "r1-a")
        ciphertext = rig.wrapped()
        rig.vault.decrypt("r1", ciphertext, b"ad")
        assert bao.child.pid is not None
        freeze(bao.child.pid)
        rig.vault._connection._timeout_s = 0.3
        rig.vault._connection.close()
        with pytest.raises(CustodyUnavailable):
            rig.vault.decrypt("r1", ciphertext, b"ad")
        os.kill(bao.child.pid, signal.SIGCONT)
        bao.child.stop()
        with pytest.raises(CouldNotTell):
            rig.vault.decrypt("r1", ciphertext, b"ad")
        bao.child.start()
        rig.vault._connection._timeout_s = 5.0
        assert 32 == len(rig.vault.decrypt("r1", ciphertext, b"ad"))
    finally:
        bao.stop()
