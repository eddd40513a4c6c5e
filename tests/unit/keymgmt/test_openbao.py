"""The embedded OpenBao: ready means active, root is gone, kill -9 and sealing are survived, nothing outlives us."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bao_server import Bao, freeze, make_tls

from keymgmt.bao import Address, BaoSession
from keymgmt.custody_openbao import OpenBaoLinkKeys, OpenBaoStore
from keymgmt.errors import CustodyRefused, CustodyUnavailable, EpochMismatch, OpenBaoNotReady, RightsRefused
from keymgmt.limits import LIMITS
from keymgmt.openbao import OpenBaoChild
from keymgmt.provision import POLICIES, KeyStore, check_epoch, open_embedded, policy_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    server = Bao(tmp_path_factory.mktemp("own"))
    yield server
    server.stop()


def test_root_is_revoked_and_forgotten_and_a_link_can_still_be_added(own: Bao) -> None:
    assert "" == own.child.secrets().root_token
    with pytest.raises(RightsRefused):
        BaoSession(own.address, token=own.root_token).read("sys/mounts")
    own.provisioner().add_link("late", ("late-a", "late-b"))
    assert 2 == OpenBaoLinkKeys(own.store.session("conductor"), epoch=1).rotate("late")


def test_without_root_the_provisioner_and_the_unseal_key_make_an_upgrade_possible(own: Bao) -> None:
    """Its own policy is not its own to write: a root token for minutes, by share and role together."""
    session = own.store.session("provisioner")
    policy = {"policy": policy_text("provisioner", 1)}
    with pytest.raises(RightsRefused):
        session.write("sys/policies/acl/sluicegate/provisioner", policy)
    for role in ("conductor", "enroller"):
        with pytest.raises(RightsRefused):
            own.store.session(role).write("sys/generate-root-token/attempt", {})
    begun = session.write("sys/generate-root-token/attempt", {})["data"]
    share = {"nonce": begun["nonce"], "key": own.child.secrets().unseal_key}
    text = session.write("sys/generate-root-token/update", share)["data"]["encoded_token"]
    raw = base64.b64decode(text + "=" * (-len(text) % 4))
    token = bytes(x ^ y for x, y in zip(raw, begun["otp"].encode(), strict=True)).decode()
    root = BaoSession(own.address, token=token)
    root.write("sys/policies/acl/sluicegate/provisioner", policy)
    root.revoke_self()


@pytest.mark.parametrize("died", ["before the token was revoked", "after it was revoked"])
def test_a_crash_before_the_root_token_was_forgotten_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    child = OpenBaoChild(tmp_path / "openbao", make_tls(tmp_path / "tls"))
    child.start()
    root = child.secrets().root_token
    where = (BaoSession, "revoke_self") if died.startswith("before") else (OpenBaoChild, "forget_root")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(*where, _die)
            with pytest.raises(KeyboardInterrupt):
                open_embedded(child)
        store = open_embedded(child)
        assert store.session("conductor").read("kv/data/epoch")
        assert "" == child.secrets().root_token
        with pytest.raises(RightsRefused):
            BaoSession(Address(child.url, child.tls.ca_file), token=root).read("sys/mounts")
    finally:
        child.stop()


def _die(_self: object) -> None:
    raise KeyboardInterrupt


def test_no_secret_in_arguments_environment_or_a_core_file(own: Bao) -> None:
    proc = Path(f"/proc/{own.child.pid}")
    shown = (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
    secrets = [own.child.secrets().unseal_key, *(role.secret_id for role in own.store.roles.values())]
    assert not any(secret.encode() in shown for secret in secrets)
    limits = (proc / "limits").read_text()
    assert ["0", "0"] == next(line for line in limits.splitlines() if "core" in line).split()[4:6]


def test_secrets_lie_in_private_files_and_not_in_log_or_audit(own: Bao) -> None:
    folder = own.child.folder
    for name in ("unseal.json", "roles.json"):
        assert 0o600 == (folder / name).stat().st_mode & 0o777
    logs = b"".join(path.read_bytes() for path in (folder / "log").iterdir())
    assert own.root_token.encode() not in logs
    assert not any(role.secret_id.encode() in logs for role in own.store.roles.values())
    assert own.child.secrets().unseal_key.encode() not in logs
    assert "hidden" not in repr(own.store.roles)
    assert own.store.roles["conductor"].secret_id not in repr(own.store)


def test_after_kill_9_it_is_restarted_unsealed_and_sessions_go_on(own: Bao) -> None:
    session = own.store.session("conductor")
    assert session.read("kv/data/epoch")
    assert own.child.pid is not None
    os.kill(own.child.pid, signal.SIGKILL)
    while own.child.alive():
        time.sleep(0.02)
    with pytest.raises(CustodyUnavailable):
        session.read("kv/data/epoch")
    deadline = time.monotonic() + 20
    assert not own.child.look()
    while not own.child.look():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert session.read("kv/data/epoch")


def test_one_that_hangs_is_looked_at_for_a_second_and_left_alone(own: Bao) -> None:
    assert own.child.pid is not None
    pid = own.child.pid
    freeze(pid)
    try:
        began = time.monotonic()
        assert not own.child.look()
        assert 0.9 < time.monotonic() - began < 3
    finally:
        os.kill(pid, signal.SIGCONT)
    assert pid == own.child.pid
    while not own.child.look():
        time.sleep(0.05)


def test_sealed_is_could_not_tell_and_the_same_session_works_after_unseal(own: Bao) -> None:
    session = own.store.session("conductor")
    session.read("kv/data/epoch")
    own.child.stop()
    own.child.spawn()
    deadline = time.monotonic() + 10
    while own.child.health() != 503 and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(CustodyUnavailable, match="sealed"):
        session.read("kv/data/epoch")
    own.child.wait_active()
    assert session.read("kv/data/epoch")


def test_a_revoked_token_is_replaced_by_a_new_login(own: Bao) -> None:
    now = [1000.0]
    session = BaoSession(own.address, own.store.roles["provisioner"], clock=lambda: now[0])
    session.read("kv/data/epoch")
    stolen = session._client.token
    session._client.token = "s.not-a-token-any-more"
    now[0] += 5
    assert session.read("kv/data/epoch")
    assert session._client.token not in ("", stolen)


def test_a_session_renews_itself_at_half_of_its_life(own: Bao) -> None:
    now = [1000.0]
    session = BaoSession(own.address, own.store.roles["conductor"], clock=lambda: now[0])
    session.read("kv/data/epoch")
    token = session._client.token
    now[0] += session._life_s * 0.6
    session.read("kv/data/epoch")
    assert (token, now[0]) == (session._client.token, session._born)


def test_reopening_the_folder_changes_nothing(own: Bao) -> None:
    again = open_embedded(own.child)
    assert own.store.roles == again.roles
    assert own.store.agents_ca == again.agents_ca


def test_an_epoch_that_differs_stops_everything(own: Bao) -> None:
    store = own.store
    with pytest.raises(EpochMismatch):
        check_epoch(KeyStore(store.address, 2, store.agents_ca, store.roles))


def test_the_epoch_is_raised_under_compare_and_set_by_the_provisioner_only(own: Bao) -> None:
    provisioner = OpenBaoStore(own.store.session("provisioner"))
    found = provisioner.get("epoch")
    assert found is not None
    with pytest.raises(CustodyRefused):
        provisioner.put("epoch", {"epoch": "2"}, expected=0)
    with pytest.raises(RightsRefused):
        OpenBaoStore(own.store.session("conductor")).put("epoch", {"epoch": "2"}, expected=found[1])


def test_policies_are_files_and_carry_the_epoch() -> None:
    for name in POLICIES:
        assert "${" not in policy_text(name, 7)
    assert "links-e7/decrypt/{{identity.entity.metadata.link}}" in policy_text("agent", 7)


def test_it_is_started_from_the_main_thread_only(own: Bao) -> None:
    caught: list[Exception] = []

    def attempt() -> None:
        try:
            OpenBaoChild(own.child.folder, own.child.tls).start()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_one_that_ends_again_and_again_is_given_up_with_a_place_to_look(tmp_path: Path) -> None:
    child = OpenBaoChild(tmp_path / "openbao", make_tls(tmp_path / "tls"), binary="/bin/false")
    for _ in range(LIMITS.openbao_restarts):
        assert not child.look()
        while child.alive():
            time.sleep(0.01)
    with pytest.raises(OpenBaoNotReady, match="again and again") as refused:
        child.look()
    assert "openbao.log" in refused.value.fix


def test_a_port_that_was_taken_meanwhile_is_an_error_and_no_silent_move(tmp_path: Path) -> None:
    tls = make_tls(tmp_path / "tls")
    (tmp_path / "openbao").mkdir()
    with socket.socket() as taken, socket.socket() as other:
        for one in (taken, other):
            one.bind(("127.0.0.1", 0))
        ports = {"port": taken.getsockname()[1], "cluster_port": other.getsockname()[1]}
        (tmp_path / "openbao" / "ports.json").write_text(json.dumps(ports))
        child = OpenBaoChild(tmp_path / "openbao", tls)
        try:
            with pytest.raises(OpenBaoNotReady):
                child.start()
        finally:
            child.stop()
        assert ports["port"] == child.port


def test_a_state_folder_that_hcl_would_read_is_refused(tmp_path: Path) -> None:
    child = OpenBaoChild(tmp_path / 'a"b', make_tls(tmp_path / "tls"))
    with pytest.raises(OpenBaoNotReady) as refused:
        child.start()
    assert "another state folder" in refused.value.fix


def test_an_answer_cut_short_by_its_death_is_no_answer(tmp_path: Path) -> None:
    child = OpenBaoChild(tmp_path / "openbao", make_tls(tmp_path / "tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(child.tls.cert_file, child.tls.key_file)
    with socket.create_server(("127.0.0.1", 0)) as server:
        child.port = server.getsockname()[1]

        def dies() -> None:
            for cut in (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"\r\n"):
                connection = context.wrap_socket(server.accept()[0], server_side=True)
                connection.recv(4096)
                connection.sendall(cut)
                connection.close()

        thread = threading.Thread(target=dies)
        thread.start()
        assert [0, 0] == [child.health(), child.health()]
        thread.join()


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed with SIGKILL: nothing it could do, the kernel does it."""
    here = Path(__file__).resolve()
    code = (
        f"import sys; sys.path[:0] = [{str(here.parent)!r}, {str(here.parents[3])!r}]\n"
        "from pathlib import Path\n"
        "from bao_server import make_tls\n"
        "from keymgmt.openbao import OpenBaoChild\n"
        f"child = OpenBaoChild(Path({str(tmp_path)!r}) / 'bao', make_tls(Path({str(tmp_path)!r}) / 'tls'))\n"
        "child.spawn()\nprint(child.pid, flush=True)\nimport time; time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
