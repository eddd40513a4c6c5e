"""What the data plane holds by itself: opening, revert, probes. In memory, with a clock of the test."""

from __future__ import annotations

import json

import pytest
from agent_rig import MS, SCI, USER, MemoryLink, pairs, sa

from keymgmt.drivers.software_control import answer, sa_to_json
from keymgmt.errors import DriverRefused

PROBE = "ab" * 16


def test_user_frames_are_dropped_both_ways_while_closed_and_probes_pass() -> None:
    link = MemoryLink()
    link.key()
    a, b = link.ends["a"], link.ends["b"]
    a.from_user(USER, link.now)
    assert [] == link.wire["a"]
    a.arm(link.now + 1000 * MS)
    a.from_user(USER, link.now)  # a is open, b is closed
    link.carry()
    assert [] == link.user["b"]
    nonces = a.probe(5, PROBE)
    link.carry()
    assert nonces == b.seen(PROBE)
    counters = {"a": a.counters(), "b": b.counters()}
    assert (1, 1) == (counters["a"]["user.TxClosed"], counters["b"]["user.RxClosed"])
    assert (5, 6) == (counters["b"]["probe.Seen"], counters["b"]["rxsa.0.InPktsOK"])
    assert [] == link.user["b"]


def test_the_opening_ends_by_itself_and_can_be_dropped() -> None:
    link = MemoryLink()
    link.key()
    plane = link.ends["a"]
    plane.arm(link.now + 500 * MS)
    assert ("open", "open", "closed") == tuple(plane.path(link.now + ms * MS) for ms in (0, 499, 500))
    plane.arm(link.now + 500 * MS)
    plane.arm(0)
    assert "closed" == plane.path(link.now)


def test_a_user_frame_cannot_pose_as_a_probe() -> None:
    link = MemoryLink()
    link.key()
    link.open()
    link.ends["a"].from_user(USER[:12] + b"\x88\xb5" + USER[14:], link.now)
    assert [] == link.wire["a"]
    assert 1 == link.ends["a"].counters()["user.TxReserved"]


def test_an_unconfirmed_select_reverts_and_the_old_packet_numbers_go_on() -> None:
    link = MemoryLink()
    link.key()
    plane = link.ends["a"]
    plane.probe(3, PROBE)
    new = link.install(1, "r2")["a"].tx
    assert 0 == plane.select(1, new.key_id, 200, link.now)
    plane.probe(2, PROBE)
    plane.tick(link.now + 199 * MS)
    assert 1 == plane.secy.encoding_an
    plane.tick(link.now + 200 * MS)
    assert (0, None, 4) == (plane.secy.encoding_an, plane.revert, plane.secy.tx[0].next_pn)
    with pytest.raises(DriverRefused):
        plane.confirm(1)
    assert 1 == plane.counters()["port.Reverts"]


def test_a_first_select_reverts_to_silence() -> None:
    link = MemoryLink()
    keys = link.install()["a"]
    plane = link.ends["a"]
    assert plane.select(0, keys.tx.key_id, 200, link.now) is None
    plane.tick(link.now + 300 * MS)
    assert plane.secy.encoding_an is None
    assert [] == plane.probe(1, PROBE)


def test_a_confirmed_select_stays_and_confirm_may_be_repeated() -> None:
    link = MemoryLink()
    link.key()
    plane, new = link.ends["a"], link.install(1, "r2")["a"].tx
    plane.select(1, new.key_id, 200, link.now)
    plane.confirm(1)
    plane.confirm(1)
    plane.tick(link.now + 10_000 * MS)
    assert 1 == plane.secy.encoding_an


def test_while_a_revert_is_pending_its_way_back_stays() -> None:
    link = MemoryLink()
    old = link.key()["a"].tx
    plane, new = link.ends["a"], link.install(1, "r2")["a"].tx
    plane.select(1, new.key_id, 200, link.now)
    with pytest.raises(DriverRefused, match="revert"):
        plane.refuse_retire(0)
    with pytest.raises(DriverRefused, match="confirm"):
        plane.select(0, old.key_id, 200, link.now)
    assert 0 == plane.revert_tx(0, old.key_id)
    assert plane.revert is None


def test_steady_probes_prove_an_idle_link() -> None:
    link = MemoryLink()
    plane = link.ends["a"]
    plane._interval_ns = 500 * MS
    plane.tick(link.now)
    assert 0 == plane.counters()["probe.Sent"]  # no key yet
    link.key()
    for step in range(1, 5):
        plane.tick(link.now + step * 500 * MS)
    link.carry()
    assert 4 == link.ends["b"].counters()["rxsa.0.InPktsOK"]


def ask(link: MemoryLink, command: str, **fields: object) -> dict[str, object]:
    message = json.dumps({"cmd": command, **fields}).encode()
    reply: dict[str, object] = json.loads(answer(link.ends["a"], message, link.now))
    return reply


def test_control_commands_read_back_what_is() -> None:
    link = MemoryLink()
    keys = pairs()["a"]
    secy_id = link.ends["a"].secy.secy_id
    check = ask(link, "install_rx", sa=sa_to_json(sa(keys.rx, 0, SCI["b"])), secy_id=secy_id)
    assert {"ok": {"check": keys.rx.check}} == check
    ask(link, "install_tx", sa=sa_to_json(sa(keys.tx, 0, SCI["a"])), secy_id=secy_id)
    assert {"ok": {"encoding_an": 0, "was": None}} == ask(
        link, "select", an=0, key_id=keys.tx.key_id, revert_after_ms=50
    )
    state = ask(link, "read")["ok"]
    assert isinstance(state, dict)
    assert [{"an": 0, "key_id": keys.tx.key_id, "next_pn": "1", "in_use": True}] == state["tx"]["sas"]
    assert (True, "closed", []) == (state["revert_pending"], state["path"], state["faults"])
    assert keys.tx.sak.hex() not in json.dumps(state)
    assert keys.tx.salt.hex() not in json.dumps(state)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"[]",
        b'{"cmd":"nothing"}',
        b'{"cmd":"arm"}',
        b"\xff",
        b'{"cmd":"install_tx","sa":{"sak":"zz"}}',
    ],
)
def test_a_malformed_command_is_refused_without_quoting_it(message: bytes) -> None:
    link = MemoryLink()
    reply = json.loads(answer(link.ends["a"], message, 0))
    assert {"code": "EINVAL", "detail": "malformed command"} == reply["error"]


def test_faults_are_refused_unless_the_data_plane_was_started_for_them() -> None:
    link = MemoryLink()
    reply = ask(link, "fault", name="encrypt_off", params={})
    assert "EPERM" == reply["error"]["code"]  # type: ignore[index]
    assert link.ends["a"].secy.encrypt
    assert [] == ask(link, "read")["ok"]["faults"]  # type: ignore[index]
