"""What must not break a data plane: hostile frames, stale and malformed commands, time that jumps."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_rig import CIPHER, MS, SCI, USER, MemoryLink, pairs, sa, socket_link
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.counters import ARRIVALS
from keymgmt.drivers import software, software_dataplane, software_ports
from keymgmt.drivers.software import SoftwareDriver
from keymgmt.drivers.software_control import answer, sa_to_json
from keymgmt.drivers.software_dataplane import MOST_PEERS, DataPlane, DataPlaneConfig
from keymgmt.drivers.software_frames import PN64_END
from keymgmt.drivers.software_plane import MAX_USER_FRAME
from keymgmt.drivers.software_ports import boottime_ns, free_ports, send_quietly
from keymgmt.drivers.software_secy import SecY, SecyConfig
from keymgmt.errors import DriverRefused, DriverUnavailable

PROBE = "ab" * 16


def ask(link: MemoryLink, command: str, **fields: Any) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(
        answer(link.ends["a"], json.dumps({"cmd": command, **fields}).encode(), link.now)
    )
    return reply


# --- frames


def test_an_integrity_only_frame_is_withheld_and_both_witnesses_count_it() -> None:
    link = MemoryLink()
    link.key()
    link.open()
    a, b = link.ends["a"].secy, link.ends["b"]
    a.encrypt = False
    frame = a.send(USER)
    assert frame is not None
    b.from_wire(frame, link.now)
    assert [] == link.user["b"]
    counters = b.counters()
    assert (len(USER) - 12, 1, 1) == tuple(
        counters[name] for name in ("rxsc.InOctetsValidated", "guard.InClear", "guard.InDropped")
    )


def test_an_integrity_only_probe_proves_nothing() -> None:
    link = MemoryLink()
    link.key()
    plane = link.ends["a"]
    plane.secy.encrypt = False
    plane.guard = SimpleNamespace(transmit=link.wire["a"].append)  # type: ignore[assignment]
    plane.probe(3, PROBE)
    link.carry()
    assert [] == link.ends["b"].seen(PROBE)
    assert 0 == link.ends["b"].counters()["probe.Seen"]


def test_a_frame_beyond_the_last_xpn_number_is_dropped() -> None:
    """PN recovery would lead past 2**64 - 1: no IV exists for that."""
    link = MemoryLink()
    link.key()
    frame = link.ends["a"].secy.send(USER)
    assert frame is not None
    b = link.ends["b"].secy
    b.rx[0].replay.next_pn = b.rx[0].replay.lowest = PN64_END - 10
    assert b.receive(frame) is None
    assert 1 == b.counters()["rxsc.InPktsLate"]


def test_packet_number_zero_is_a_bad_tag_where_numbers_have_32_bits() -> None:
    """802.1AE figure 10-5."""
    link = MemoryLink("GCM-AES-256")
    link.key()
    frame = link.ends["a"].secy.send(USER)
    assert frame is not None
    b = link.ends["b"].secy
    assert b.receive(frame[:16] + bytes(4) + frame[20:]) is None
    assert 1 == b.counters()["secy.InPktsBadTag"]


def test_short_data_may_be_padded_to_the_least_ethernet_frame_and_no_further() -> None:
    """9.7, 9.12: SL says where the data ends; more than 60 octets can be no padding of a MAC."""
    link = MemoryLink()
    link.key()
    secy = link.ends["a"].secy
    least, longer = secy.send(USER[:14]), secy.send(USER[:42])
    assert least is not None
    assert longer is not None
    b = link.ends["b"].secy
    assert USER[:14] == b.receive(least.ljust(60, b"\0"))
    assert b.receive(longer + b"\0") is None
    assert USER[:42] == b.receive(longer)


def test_a_forward_jump_of_the_window_refuses_what_was_before_it() -> None:
    link = MemoryLink(window=4)
    link.key()
    a, b = link.ends["a"].secy, link.ends["b"].secy
    old = a.send(USER)
    a.tx[0].next_pn = 2**31 + 10
    new = a.send(USER)
    assert old is not None
    assert new is not None
    assert USER == b.receive(new)
    assert b.receive(old) is None  # its lower half now means a PN of the next 2**32, under which no ICV fits
    assert (2**31 + 11, 1) == (b.rx[0].replay.next_pn, b.counters()["rxsc.InPktsOK"])


@pytest.mark.parametrize(
    "change",
    [
        {"cipher": "GCM-AES-512"},
        {"replay_window": -1},
        {"replay_window": 2**30},
        {"max_sa_per_sc": 5},
        {"max_sa_per_sc": 0},
        {"sci": "0200"},
        {"peer_sci": "02000000000G0001"},
    ],
    ids=str,
)
def test_a_secy_that_cannot_be_sound_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(DriverRefused):
        SecY(replace(SecyConfig(SCI["a"], SCI["b"], CIPHER), **change))


def test_a_user_frame_too_long_for_the_wire_is_counted_and_not_sent() -> None:
    link = MemoryLink()
    link.key()
    link.open()
    link.ends["a"].from_user(USER.ljust(MAX_USER_FRAME + 1, b"x"), link.now)
    assert ([], 1) == (link.wire["a"], link.ends["a"].counters()["user.TxTooLong"])
    link.ends["a"].from_user(USER.ljust(MAX_USER_FRAME, b"x"), link.now)
    assert 65_507 == len(link.wire["a"][0])  # the longest UDP payload


def test_vlan_tagged_user_frames_pass_whole_and_a_tag_before_the_sectag_is_clear() -> None:
    link = MemoryLink()
    link.key()
    link.open()
    tagged = USER[:12] + bytes.fromhex("810000070800") + USER[14:]
    link.ends["a"].from_user(tagged, link.now)
    frame = link.wire["a"][0]
    link.carry()
    assert [tagged] == link.user["b"]
    link.ends["b"].from_wire(frame[:12] + bytes.fromhex("81000007") + frame[12:], link.now)
    counters = link.ends["b"].counters()
    assert ([tagged], 1, 1) == (link.user["b"], counters["guard.InClear"], counters["secy.InPktsNoTag"])


@given(st.data())
def test_no_octets_from_wire_or_user_end_the_process_or_reach_the_user(data: st.DataObject) -> None:
    """Noise, noise behind a good header, and good frames with changed octets."""
    cipher = data.draw(st.sampled_from([CIPHER, "GCM-AES-256"]))
    link = MemoryLink(cipher)
    link.key()
    link.open()
    good = link.ends["a"].secy.send(USER)
    assert good is not None
    noise = data.draw(st.binary(max_size=120))
    at = data.draw(st.integers(0, len(good)))
    for frame in (noise, good[:12] + noise, good[:14] + noise, good[:28] + noise, good[:at], good + noise):
        link.ends["b"].from_wire(frame, link.now)
        link.ends["b"].from_user(frame, link.now)
    assert set(link.user["b"]) <= {USER}
    assert all(frame[12:14] == b"\x88\xe5" and frame[14] & 0x0C == 0x0C for frame in link.wire["b"])
    counters = link.ends["b"].counters()
    assert counters["port.RxFrames"] == sum(counters[name] for name in ARRIVALS)


# --- time


def test_frames_of_one_batch_are_judged_each_by_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped within a batch must not go on with the time of before."""
    with socket_link(traffic=False) as link:
        for end in "ab":
            link.stop_plane(end)
        plane = DataPlane(DataPlaneConfig.from_json(link.configs["a"]))
        try:
            now = [10**12]

            def clock() -> int:
                now[0] += 10**9
                return now[0]

            monkeypatch.setattr(software_dataplane, "boottime_ns", clock)
            plane.plane.arm(now[0] + 2 * 10**9 + 1)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
                user.bind(tuple(link.configs["a"]["controlled"]["peer"]))
                for _ in range(5):
                    user.sendto(USER, tuple(link.configs["a"]["controlled"]["bind"]))
            time.sleep(0.05)
            plane._frames(plane._user, plane.plane.from_user)
            counters = plane.plane.counters()
            assert (2, 3) == (counters["user.Tx"], counters["user.TxClosed"])
        finally:
            plane._close()


def test_an_arm_that_was_delayed_ends_when_it_would_have_ended() -> None:
    """The deadline is the agent's: a command that waited in a socket opens nothing afterwards."""
    link = MemoryLink()
    until = link.now + 1000 * MS
    link.now += 5000 * MS
    assert {"ok": {"path": "closed"}} == ask(link, "arm", until_ns=str(until))


def test_a_confirm_after_the_time_of_its_revert_is_too_late() -> None:
    link = MemoryLink()
    link.key()
    new = link.install(1, "r2")["a"].tx
    plane = link.ends["a"]
    plane.select(1, new.key_id, 200, link.now)
    link.now += 201 * MS  # no tick in between: the process stood still
    assert "ENOENT" == ask(link, "confirm", an=1)["error"]["code"]
    assert (0, None) == (plane.secy.encoding_an, plane.revert)


def test_the_way_back_leads_only_to_a_key_that_was_confirmed() -> None:
    """Else `revert` would be a select without a watchdog."""
    link = MemoryLink()
    old = link.key()["a"].tx
    plane, new = link.ends["a"], link.install(1, "r2")["a"].tx
    for _ in range(2):
        assert "EINVAL" == ask(link, "revert", an=1, key_id=new.key_id)["error"]["code"]
        assert 0 == plane.secy.encoding_an
        plane.select(1, new.key_id, 200, link.now)  # selected once and not confirmed: no better
        assert {"ok": {"encoding_an": 0}} == ask(link, "revert", an=0, key_id=old.key_id)
    plane.select(1, new.key_id, 200, link.now)
    plane.confirm(1)
    assert {"ok": {"encoding_an": 0}} == ask(
        link, "revert", an=0, key_id=old.key_id
    )  # the peer did not confirm


# --- control


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
        assert len(plane._selector.get_map()) <= MOST_PEERS + 3
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
