"""What must not break a data plane: hostile frames, time that jumps, any order of commands."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from agent_rig import CIPHER, MS, SCI, USER, MemoryLink, pairs, sa, socket_link
from hypothesis import example, given
from hypothesis import strategies as st

from keymgmt.counters import ARRIVALS
from keymgmt.drivers import software_loop
from keymgmt.drivers.software_control import answer
from keymgmt.drivers.software_dataplane import DataPlane, DataPlaneConfig
from keymgmt.drivers.software_frames import PN64_END
from keymgmt.drivers.software_plane import MAX_USER_FRAME
from keymgmt.drivers.software_ports import boottime_ns
from keymgmt.drivers.software_secy import SecY, SecyConfig
from keymgmt.errors import DriverRefused

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


class Noted:
    """A timer whose turns come 30 ms after it was asked: (what was done, whether the turn was due)."""

    def __init__(self, at_due: Callable[[], object]) -> None:
        self.done: list[tuple[str, bool]] = []
        self.due_ns = 0
        self._at_due = at_due

    def next_due_ns(self, now_ns: int) -> int:
        self.due_ns = now_ns + 30 * MS
        return self.due_ns

    def tick(self, now_ns: int) -> None:
        self.done.append(("tick", now_ns >= self.due_ns))
        if len(self.done) == 3:
            self._at_due()


def test_what_is_due_by_the_time_after_the_wait_comes_before_any_frame() -> None:
    """A revert that is due must not let one more frame out under the key that it takes back."""
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    timer = Noted(lambda: sender.send(b"comes later"))

    def take(_frame: bytes, _now_ns: int) -> None:
        timer.done.append(("frame", False))
        if len(timer.done) > 3:
            loop.stop()

    with tempfile.TemporaryDirectory(prefix="sg-", dir="/tmp") as folder, sender:
        loop = software_loop.Loop(f"{folder}/x.sock", lambda message: message, timer)
        loop.port(receiver, take)
        sender.send(b"waits already")
        loop.run()
    assert ["tick", "frame", "tick", "tick", "frame"] == [what for what, _due in timer.done]
    assert ("tick", True) == timer.done[2]


def test_frames_of_one_batch_are_judged_each_by_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped within a batch must not go on with the time of before."""
    with socket_link(traffic=False) as link:
        for end in "ab":
            link.stop_plane(end)
        plane = DataPlane(DataPlaneConfig.from_json(link.configs["a"]))
        try:
            now, here = [10**12], threading.get_ident()

            def clock() -> int:
                if threading.get_ident() != here:
                    return boottime_ns()  # the relay's loop, in a thread of its own
                now[0] += 10**9
                return now[0]

            monkeypatch.setattr(software_loop, "boottime_ns", clock)
            plane.plane.arm(now[0] + 2 * 10**9 + 1)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as user:
                user.bind(tuple(link.configs["a"]["controlled"]["peer"]))
                for _ in range(5):
                    user.sendto(USER, tuple(link.configs["a"]["controlled"]["bind"]))
            time.sleep(0.05)
            ports = [key.fileobj for key in plane.loop._selector.get_map().values()]
            (port,) = [p for p in ports if p.getsockname() == tuple(link.configs["a"]["controlled"]["bind"])]
            plane.loop._frames(port, plane.plane.from_user)
            counters = plane.plane.counters()
            assert (2, 3) == (counters["user.Tx"], counters["user.TxClosed"])
        finally:
            plane.loop.close()


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


# The first key is used, left, retired, and then installed and selected a second time.
REINSTALL = [
    "install",
    "select",
    "confirm",
    "probe",
    "wait",
    "install",
    "wait",
    "select",
    "confirm",
    "wait",
    "retire",
    "again",
    "select",
    "probe",
]
STEPS = st.lists(
    st.sampled_from(
        ["probe", "user", "install", "select", "confirm", "revert", "wait", "retire", "again", "end"]
    ),
    max_size=80,
)


@example(REINSTALL, CIPHER)
@given(STEPS, st.sampled_from([CIPHER, "GCM-AES-256"]))
def test_no_order_of_commands_uses_a_key_and_number_twice_on_the_wire(steps: list[str], cipher: str) -> None:
    """Read from the frames themselves: reverts, late confirms, AN wrap, spent numbers, re-installs."""
    link, seen, keys = MemoryLink(cipher), set(), []
    plane = link.ends["a"]
    plane.arm(2**63)
    for number, step in enumerate(steps):
        link.now += 50 * MS
        plane.watch(link.now)
        sas = sorted(plane.secy.tx.items())
        try:
            if step == "install":
                an = number % 4
                keys.append((an, pairs(f"r{number}", an, cipher, key=bytes(32))["a"].tx))
                plane.secy.add_tx(sa(keys[-1][1], an, SCI["a"], cipher))
            elif step == "again" and keys:
                plane.secy.add_tx(sa(keys[0][1], keys[0][0], SCI["a"], cipher))
            elif step in ("select", "revert", "retire") and sas:
                an, held = sas[number % len(sas)]
                if step == "select":
                    plane.select(an, held.key_id, 120, link.now)
                elif step == "revert":
                    plane.revert_tx(an, held.key_id)
                else:
                    plane.refuse_retire(an)
                    plane.secy.delete_tx(an, held.key_id)
            elif step == "confirm" and plane.secy.encoding_an is not None:
                plane.confirm(plane.secy.encoding_an)
            elif step == "end" and sas:
                sas[0][1].next_pn = max(sas[0][1].next_pn, sas[0][1].cipher.pn_end - 2)
            elif step == "wait":
                link.now += 200 * MS
            elif step == "probe":
                plane.probe(2, PROBE)
            elif step == "user":
                plane.from_user(USER, link.now)
        except DriverRefused:
            continue
        for frame in link.wire["a"]:
            key_id = plane.secy.tx[frame[14] & 3].key_id
            pair = (key_id, frame[16:20])
            assert pair not in seen
            seen.add(pair)
        link.wire["a"].clear()
