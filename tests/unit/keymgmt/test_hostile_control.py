"""What must not break a data plane from its control socket: malformed commands, strangers, crowds, lost answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from agent_rig import MS, SCI, USER, MemoryLink, pairs, sa, socket_link

from keymgmt.drivers import software, software_control, software_ports
from keymgmt.drivers.software import SoftwareDriver
from keymgmt.drivers.software_control import answer, sa_to_json
from keymgmt.drivers.software_loop import MOST_PEERS
from keymgmt.drivers.software_ports import boottime_ns, free_ports, send_quietly
from keymgmt.errors import DriverUnavailable

PROBE = "ab" * 16


def ask(link: MemoryLink, command: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(
        answer(link.ends["a"], json.dumps({"cmd": command, **fields}).encode(), link.now)
    )
    return reply


@pytest.mark.parametrize(
    "message",
    [
        b"[" * 60_000,
        b'{"cmd":"arm","until_ns":1e999}',
        b'{"cmd":"arm","until_ns":"99999999999999999999999"}',
        b'{"cmd":"arm","ms":15000}',
        b'{"cmd":["arm"]}',
        b'{"cmd":"arm","until_ns":"0","extra":1}',
        b'{"cmd":"probe","count":true,"probe_id":"%s"}' % PROBE.encode(),
        b'{"cmd":"probe","count":1,"probe_id":"abcd"}',
        b'{"cmd":"seen","probe_id":[]}',
        b'{"cmd":"select","an":0.0,"key_id":"x","revert_after_ms":NaN}',
        b'"read"',
        b"null",
    ],
    ids=lambda m: m[:48].decode(),
)
def test_no_message_ends_the_data_plane(message: bytes) -> None:
    link = MemoryLink()
    link.key()
    reply = json.loads(answer(link.ends["a"], message, link.now))
    assert {"code": "EINVAL", "detail": "malformed command"} == reply["error"]
    assert link.ends["a"].path(link.now) == "closed"


def test_a_bug_of_ours_is_could_not_tell_and_is_logged_without_its_text(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> dict[str, Any]:
        raise KeyError("a-key-could-stand-here")

    monkeypatch.setitem(software_control.COMMANDS, "confirm", (broken, {"an": lambda _v: True}))
    with socket_link(traffic=False) as link:
        with pytest.raises(DriverUnavailable, match="see its log"):
            link.drivers["a"].confirm(0)
        assert "closed" == link.drivers["a"].read().path, "it goes on"
    logged = capfd.readouterr().err
    assert ("command confirm failed: KeyError at test_hostile_control.py" in logged, False) == (
        True,
        "a-key-could" in logged,
    )


@pytest.mark.parametrize(
    "params", [{"ms": -1}, {"ms": "5"}, {"ms": 1.5}, {"ms": True}, {"direction": "up"}, {"direction": 1}]
)
def test_a_fault_of_another_form_is_refused(params: dict[str, Any]) -> None:
    link = MemoryLink(allow_faults=True)
    for name in ("stall", "freeze", "wrong_key"):
        assert "EINVAL" == ask(link, "fault", name=name, params=params)["error"]["code"]
    assert ["allowed"] == ask(link, "read")["ok"]["faults"]


@pytest.mark.parametrize("change", [{"an": 1.0}, {"an": True}, {"ssci": "1"}, {"key_id": 5}, {"sak": 7}])
def test_an_install_of_another_form_is_refused_without_quoting_it(change: dict[str, Any]) -> None:
    link = MemoryLink()
    secy = link.ends["a"].secy
    key = pairs(an=1)["a"].tx
    doc = sa_to_json(sa(key, 1, SCI["a"])) | change
    reply = ask(link, "install_tx", sa=doc, secy_id=secy.secy_id)
    assert {"code": "EINVAL", "detail": "malformed command"} == reply["error"]
    assert {} == secy.tx


def test_a_key_that_was_meant_for_another_secy_lifetime_is_refused() -> None:
    link = MemoryLink()
    doc = sa_to_json(sa(pairs()["a"].tx, 0, SCI["a"]))
    assert "ESTALE" == ask(link, "install_tx", sa=doc, secy_id="00" * 16)["error"]["code"]
    assert {} == link.ends["a"].secy.tx


class Deaf:
    """Takes one command and dies without an answer, as often as it is asked; then says how often."""

    def __init__(self, path: Path) -> None:
        self.messages: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            first = peer.recv(65_536)
            peer.send(b'{"ok":{"counters":{}}}')
            self.messages += [first, peer.recv(65_536)]
            peer.close()


def test_a_key_whose_fate_is_unknown_is_not_sent_a_second_time(tmp_path: Path) -> None:
    """The first data plane may have taken it: its successor must never see the same key."""
    deaf = Deaf(tmp_path / "c.sock")
    driver = SoftwareDriver(str(tmp_path / "c.sock"))
    driver.sample()
    with pytest.raises(DriverUnavailable):
        driver.install_tx(sa(pairs()["a"].tx, 0, SCI["a"]), "ab" * 16)
    time.sleep(0.05)
    assert 1 == sum(b"install_tx" in message for message in deaf.messages)
    driver.close()


def test_keys_go_to_no_data_plane_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket_link(traffic=False) as link:
        monkeypatch.setattr(software, "peer_uid", lambda _sock: 12345)
        driver = SoftwareDriver(link.configs["a"]["control"])
        with pytest.raises(DriverUnavailable, match="another user"):
            driver.install_tx(sa(pairs()["a"].tx, 0, SCI["a"]), "ab" * 16)


def test_a_client_of_another_user_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket_link(traffic=False) as link:
        monkeypatch.setattr(software_ports, "peer_uid", lambda _sock: 12345)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(link.configs["a"]["control"])
            sock.settimeout(2)
            time.sleep(0.1)
            with pytest.raises(BrokenPipeError):
                sock.send(b'{"cmd":"read"}')


def test_a_client_that_never_reads_and_a_crowd_stop_nothing() -> None:
    with socket_link(traffic=False) as link:
        path, crowd = link.configs["a"]["control"], []
        for _ in range(3 * MOST_PEERS):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.setblocking(False)
            try:
                sock.connect(path)
                for _ in range(500):
                    sock.send(b'{"cmd":"read"}')
            except OSError:
                pass
            crowd.append(sock)
            time.sleep(0.005)
        plane = link._planes["a"][0]
        assert len(plane.loop._selector.get_map()) <= MOST_PEERS + 3
        for sock in crowd:
            sock.close()
        deadline = time.monotonic() + 5
        driver = link.drivers["a"]
        while time.monotonic() < deadline:
            try:
                assert "closed" == driver.read().path
                return
            except DriverUnavailable:
                time.sleep(0.05)
        pytest.fail("the data plane does not answer any more")


def test_a_datagram_of_the_greatest_length_does_not_end_the_process() -> None:
    with socket_link(traffic=False) as link:
        link.rotate(0, "r0")
        driver = link.drivers["a"]
        driver.permit(boottime_ns() + 5_000 * MS)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
            user.bind(tuple(link.configs["a"]["controlled"]["peer"]))
            user.sendto(USER.ljust(65_507, b"x"), tuple(link.configs["a"]["controlled"]["bind"]))
        time.sleep(0.1)
        assert 1 == driver.sample()["user.TxTooLong"]


def test_a_wire_that_refuses_everything_loses_frames_and_no_more() -> None:
    """EMSGSIZE, ENETUNREACH, EPERM of a packet filter: as on a wire, the frame is lost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", free_ports(1)[0]))
        send_quietly(sock, bytes(70_000))
