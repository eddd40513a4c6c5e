from __future__ import annotations

import json
import time

import pytest
from agent_rig import CANARY, SCI, USER, MemoryLink, pairs, sa
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.drivers import SaInstall
from keymgmt.drivers.software_control import answer, sa_to_json
from keymgmt.drivers.software_guard import Guard, is_confidential

MACSEC = bytes(12) + b"\x88\xe5"


@pytest.mark.parametrize(
    ("frame", "passes"),
    [
        (MACSEC + b"\x2c" + bytes(60), True),
        (MACSEC + b"\x2f" + bytes(60), True),
        (MACSEC + b"\x20" + bytes(60), False),
        (MACSEC + b"\x28" + bytes(60), False),
        (MACSEC + b"\x24" + bytes(60), False),
        (bytes(12) + b"\x88\x8e" + bytes(60), False),
        (bytes(12) + b"\x08\x00\x2c" + bytes(60), False),
        (MACSEC + b"\x2c", False),
        (b"", False),
    ],
    ids=["E C", "E C AN 3", "integrity only", "E alone", "C alone", "EAPOL", "IPv4", "cut short", "empty"],
)
def test_only_macsec_with_e_and_c_passes(frame: bytes, passes: bool) -> None:
    sent: list[bytes] = []
    guard = Guard(sent.append)
    guard.transmit(frame)
    assert passes == bool(sent) == is_confidential(frame)
    assert int(not passes) == guard.counters()["guard.OutDropped"]


@given(st.binary(max_size=80))
def test_nothing_without_the_two_bits_ever_passes(frame: bytes) -> None:
    sent: list[bytes] = []
    Guard(sent.append).transmit(frame)
    assert all(f[12:14] == b"\x88\xe5" and f[14] & 0x0C == 0x0C for f in sent)


def fault(link: MemoryLink, end: str, name: str, **params: object) -> list[str]:
    message = json.dumps({"cmd": "fault", "name": name, "params": params}).encode()
    names: list[str] = json.loads(answer(link.ends[end], message, link.now))["ok"]["faults"]
    return names


def install(link: MemoryLink, command: str, key: SaInstall) -> bytes:
    doc = {"cmd": command, "sa": sa_to_json(key), "secy_id": link.ends["a"].secy.secy_id}
    return json.dumps(doc).encode()


@pytest.mark.parametrize(
    ("name", "counter"), [("encrypt_off", "txsc.OutPktsProtected"), ("protect_off", "secy.OutPktsUntagged")]
)
def test_with_encryption_off_the_guard_keeps_clear_frames_off_the_wire(name: str, counter: str) -> None:
    link = MemoryLink(allow_faults=True)
    link.key()
    link.open()
    assert ["allowed", name] == fault(link, "a", name)
    for _ in range(3):
        link.ends["a"].from_user(USER, link.now)
    assert [] == link.wire["a"]
    counters = link.ends["a"].counters()
    assert (3, 3, 0) == (counters["guard.OutDropped"], counters[counter], counters["port.TxFrames"])
    assert ["allowed"] == fault(link, "a", "clear")
    link.ends["a"].from_user(USER, link.now)
    assert [True] == [is_confidential(frame) and CANARY not in frame for frame in link.carry()]


def test_a_wrong_key_behind_a_right_check_value_is_only_seen_by_the_peers_counters() -> None:
    link = MemoryLink(allow_faults=True)
    link.key()
    fault(link, "a", "wrong_key", direction="tx")
    keys = pairs("r2", 1)
    reply = {}
    for direction, key, sci in (("rx", keys["a"].rx, SCI["b"]), ("tx", keys["a"].tx, SCI["a"])):
        message = install(link, f"install_{direction}", sa(key, 1, sci))
        reply[direction] = json.loads(answer(link.ends["a"], message, link.now))["ok"]["check"]
    assert {"rx": keys["a"].rx.check, "tx": keys["a"].tx.check} == reply
    link.ends["b"].secy.add_rx(sa(keys["b"].rx, 1, SCI["a"]))
    link.ends["b"].secy.add_tx(sa(keys["b"].tx, 1, SCI["b"]))
    link.ends["a"].select(1, keys["a"].tx.key_id, 500, link.now)
    link.ends["a"].probe(4, "cd" * 16)
    link.carry()
    counters = link.ends["b"].counters()
    assert (4, 0) == (counters["rxsa.1.InPktsNotValid"], counters["rxsa.1.InPktsOK"])
    assert [] == link.ends["b"].seen("cd" * 16)


def test_a_wrong_check_value_is_what_the_read_back_says() -> None:
    link = MemoryLink(allow_faults=True)
    fault(link, "a", "wrong_check")
    key = pairs()["a"].rx
    message = install(link, "install_rx", sa(key, 0, SCI["b"]))
    assert key.check != json.loads(answer(link.ends["a"], message, link.now))["ok"]["check"]


@pytest.mark.parametrize(("name", "end"), [("drop_tx", "a"), ("drop_rx", "b")])
def test_a_dropped_direction_arrives_nowhere(name: str, end: str) -> None:
    link = MemoryLink(allow_faults=True)
    link.key()
    link.open()
    fault(link, end, name)
    link.ends["a"].from_user(USER, link.now)
    link.ends["b"].from_user(USER, link.now)
    link.carry()
    assert ([USER], []) == (link.user["a"], link.user["b"])


def test_an_unknown_fault_is_refused() -> None:
    link = MemoryLink(allow_faults=True)
    message = b'{"cmd":"fault","name":"melt","params":{}}'
    assert "EINVAL" == json.loads(answer(link.ends["a"], message, 0))["error"]["code"]


def test_a_stall_delays_each_answer_and_a_freeze_stops_everything_once() -> None:
    link = MemoryLink(allow_faults=True)
    started = time.monotonic()
    fault(link, "a", "freeze", ms=60)
    assert time.monotonic() - started >= 0.06
    assert ["allowed", "stall"] == fault(link, "a", "stall", ms=40)
    started = time.monotonic()
    answer(link.ends["a"], b'{"cmd":"counters"}', link.now)
    assert time.monotonic() - started >= 0.04
