"""What must not make an agent unsafe: full disks, torn files, restarts between steps, two agents on one folder."""

from __future__ import annotations

import errno
import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_rig import MS, SCI, socket_link
from agents_rig import Desk, identity
from gate_rig import Gate

from keymgmt.agents.fence import Fence, Polls
from keymgmt.agents.identity import Candidate, Identity
from keymgmt.agents.keeper import Keeper, Validity
from keymgmt.agents.state import SEQ_BLOCK, Burnt, SampleNumbers, StateFolder
from keymgmt.errors import CouldNotTell
from keymgmt.operations import Operation
from keymgmt.permit import PermitKind
from keymgmt.processes import keep_out_of_core_files

PLAN = {"an": 0, "cipher": "GCM-AES-XPN-256", "tx_sci": SCI["a"], "rx_sci": SCI["b"], "ssci": 2}


@pytest.fixture
def desk() -> Iterator[Desk]:
    with socket_link(traffic=False, allow_faults=True) as link:
        desk = Desk(link)
        desk.key()
        yield desk


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


def fill(monkeypatch: pytest.MonkeyPatch, state: StateFolder) -> None:
    """Let every write fail; renames go on, as they do on a full disk."""
    monkeypatch.setattr(state, "write", no_space)
    monkeypatch.setattr(state, "append", no_space)


def path(desk: Desk, end: str = "a") -> str:
    return desk.link.drivers[end].read().path


# --- a full disk


def test_a_close_that_cannot_be_written_stays_in_force(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.gate.defaults |= {"max_hold_ms": 60_000}
    desk.open()
    agent, control = desk.agents["a"], desk.controls["a"]
    with monkeypatch.context() as full:
        fill(full, agent.state)
        control.kind = PermitKind.CLOSE
        with pytest.raises(OSError, match="no space"):
            agent.pull()
        for _ in range(3):
            agent.check()
            assert "closed" == path(desk)
    control.away = True
    agent.check()
    assert "closed" == path(desk)
    desk.restart("a")  # there is space again, but the close never reached the disk as such
    desk.agents["a"].check()
    assert ("closed", True) == (path(desk), desk.agents["a"].keeper.standing.closed)


def test_a_close_that_could_not_be_written_ends_by_a_reopen_like_any_other(tmp_path: Path) -> None:
    gate, state = Gate(), StateFolder(tmp_path)
    keeper = Keeper(state, boot_id="boot", clean_ms=1)
    keeper.accept(gate.permit(), 0)
    state.write = no_space  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="no space"):
        keeper.accept(gate.permit(PermitKind.CLOSE), 0)
    assert keeper.standing.closed
    again = Keeper(StateFolder(tmp_path), boot_id="boot", clean_ms=1)
    assert (True, None, (1, 1)) == (again.standing.closed, again.standing.permit, again.standing.order)
    again.accept(gate.permit(PermitKind.PERMIT), 0)
    assert 0 == again.validity("secy", 1).left_ms
    again.accept(gate.permit(PermitKind.REOPEN), 0)
    again.accept(gate.permit(PermitKind.PERMIT), 0)
    assert again.validity("secy", 1).left_ms
    assert Keeper(StateFolder(tmp_path), boot_id="boot", clean_ms=1).validity("secy", 1).left_ms


def test_a_violation_that_cannot_be_written_is_reported_and_keeps_the_path_shut(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.open()
    agent, control = desk.agents["a"], desk.controls["a"]
    with monkeypatch.context() as full:
        desk.link.drivers["a"].fault("encrypt_off")
        fill(full, agent.state)
        agent.check()
        assert "closed" == path(desk)
        agent.poll()
        assert 1 == len(control.polls[-1]["violations"])
        desk.link.drivers["a"].fault("clear")
    full_again = monkeypatch.context()
    with full_again as full:
        time.sleep(0.4)
        full.setattr(agent.state, "write", no_space)
        agent.check()
        agent.keeper._suspicious_ns = 0  # long past
        assert not agent.keeper.clean(10**18)
    agent.check()
    assert agent.keeper.clean(10**18)
    assert 1 == Keeper(agent.state, boot_id=agent.boot_id, clean_ms=1).violations


def test_without_a_number_for_its_sample_an_agent_drops_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.gate.defaults |= {"arm_ms": 30_000}
    desk.open()
    agent = desk.agents["a"]
    assert "open" == path(desk)
    fill(monkeypatch, agent.state)
    agent._numbers._next = agent._numbers._end  # the reserved block is used up
    agent.check()
    assert "closed" == path(desk)


def test_sample_numbers_that_were_not_reserved_are_never_given(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    numbers = SampleNumbers(state)
    state.write = no_space  # type: ignore[method-assign, assignment]
    for _ in range(3):
        with pytest.raises(OSError, match="no space"):
            numbers.take()
    del state.write
    assert (1, SEQ_BLOCK) == (numbers.take(), state.read("samples.json")["end"])


def test_an_operation_that_cannot_be_fenced_is_not_carried_out_and_may_come_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = desk.install("r2", 1)["a"]["key_ids"]["tx"]
    select = {"an": 1, "key_id": new, "revert_after_ms": 9_000}
    with monkeypatch.context() as full:
        fill(full, desk.agents["a"].state)
        ack = desk.do("a", "select_tx", select, op_id="x", op_seq=500)
        assert ("refused", "state_unwritable") == (ack.status, ack.error["code"] if ack.error else "")
        assert 0 == desk.agents["a"].driver.read().encoding_an
    assert "done" == desk.do("a", "select_tx", select, op_id="x", op_seq=500).status


def test_no_key_reaches_hardware_when_its_id_cannot_be_burnt(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = desk.wrapped(desk.prepare("r2", 1))
    monkeypatch.setattr(desk.agents["a"].state, "append", no_space)
    ack = desk.do("a", "install", params, rotation="r2")
    assert ("refused", "state_unwritable") == (ack.status, ack.error["code"] if ack.error else "")
    assert [0] == [sa.an for sa in desk.state("a").rx]


def test_a_result_that_cannot_be_stored_is_failed_now_and_after_a_restart(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, state = desk.agents["a"], desk.agents["a"].state
    real = state.write
    calls = []

    def second_fails(name: str, octets: bytes) -> None:
        calls.append(name)
        if len(calls) > 1:
            no_space()
        real(name, octets)

    with monkeypatch.context() as full:
        full.setattr(state, "write", second_fails)
        agent.executor._take_sample = dict
        ack = desk.do("a", "sample", op_id="x", op_seq=500)
    assert ("failed", "state_unwritable") == (ack.status, ack.error["code"] if ack.error else "")
    desk.restart("a")
    again = desk.do("a", "sample", op_id="x", op_seq=500)
    assert ("failed", "interrupted") == (again.status, again.error["code"] if again.error else "")


# --- torn and foreign files


def test_a_line_after_a_torn_one_is_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "burnt.log").write_bytes(b"aa 11\nbb")
    Burnt(StateFolder(tmp_path)).burn("cc", "33")
    burnt = Burnt(StateFolder(tmp_path))
    assert (("aa", "cc"), True, False) == (burnt.last(), "cc" in burnt, "bb" in burnt)


def test_a_line_that_did_not_fit_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    burnt, real = Burnt(StateFolder(tmp_path)), os.write
    burnt.burn("aa", "11")
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, octets: real(descriptor, octets[:3]))
        with pytest.raises(OSError, match="fit"):
            burnt.burn("bb", "22")
    burnt.burn("cc", "33")
    assert b"aa 11\ncc 33\n" == (tmp_path / "burnt.log").read_bytes()


@pytest.mark.parametrize("octets", [b"", b"[]", b"null", b'{"token":"1"}', b"\xff", b"[" * 50_000])
@pytest.mark.parametrize("name", ["fence.json", "orders.json"])
def test_state_that_makes_no_sense_is_never_taken_for_empty(tmp_path: Path, name: str, octets: bytes) -> None:
    (tmp_path / name).write_bytes(octets)
    with pytest.raises(CouldNotTell, match=name):
        Fence(StateFolder(tmp_path), "l") if name == "fence.json" else Keeper(
            StateFolder(tmp_path), boot_id="boot", clean_ms=1
        )


def test_a_crash_between_write_and_rename_leaves_the_fence_of_before(desk: Desk) -> None:
    desk.done("a", "read", op_seq=700)
    folder = desk.link.folder / "agent-a"
    (folder / ".fence.json.1.1").write_bytes(b'{"tok')
    desk.restart("a")
    ack = desk.do("a", "read", op_seq=700)
    assert "stale_seq" == (ack.error or {})["code"]


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    StateFolder(tmp_path)
    assert 0o700 == tmp_path.stat().st_mode & 0o777


def test_two_agents_never_run_on_one_folder(tmp_path: Path) -> None:
    held = StateFolder(tmp_path).claim()
    with pytest.raises(CouldNotTell, match="another agent"):
        StateFolder(tmp_path).claim()
    os.close(held)
    os.close(StateFolder(tmp_path).claim())


def test_a_certificate_for_another_key_does_not_replace_the_identity(tmp_path: Path) -> None:
    identity(tmp_path, "cw-gcp-1-a")
    before = Identity.load(tmp_path)
    for pem in (before.cert_file.read_text(), "no certificate", ""):
        with pytest.raises(CouldNotTell):
            Candidate("cw-gcp-1-a").adopt(tmp_path, pem)
    assert before.serial == Identity.load(tmp_path).serial


def test_a_pair_that_did_not_fit_on_the_disk_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity(tmp_path, "cw-gcp-1-a")
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        for _ in range(3):
            with pytest.raises(OSError, match="no space"):
                identity(tmp_path, "cw-gcp-1-a")
    assert before == sorted(tmp_path.iterdir())
    identity(tmp_path, "cw-gcp-1-a")


# --- restarts between steps


def test_a_nonce_is_on_no_disk_and_a_repeat_in_another_life_says_so(desk: Desk) -> None:
    plan = PLAN | {"an": 1}
    nonce = desk.done("a", "prepare", plan, op_id="p", op_seq=500, rotation="r2")["nonce"]
    kept = b"".join(p.read_bytes() for p in (desk.link.folder / "agent-a").glob("*") if p.is_file())
    assert nonce.encode() not in kept
    again = desk.done("a", "prepare", plan, op_id="p", op_seq=500, rotation="r2")
    assert nonce == again["nonce"]
    desk.restart("a")
    ack = desk.do("a", "prepare", plan, op_id="p", op_seq=500, rotation="r2")
    assert ("failed", "interrupted") == (ack.status, (ack.error or {})["code"])


def operation(op_id: str, op_seq: int) -> Operation:
    return Operation.from_json(
        {
            "op_id": op_id,
            "link": "l",
            "kind": "read",
            "token": 1,
            "holder": "c1",
            "op_seq": op_seq,
            "poll_nonce": "00" * 16,
            "time_to_act_ms": 1000,
            "rotation": None,
            "params": {},
        }
    )


def test_an_interrupted_operation_is_never_called_untouched(tmp_path: Path) -> None:
    """Another operation came before its repeat: it may have touched hardware all the same."""
    polls = Polls()
    polls.sent("00" * 16, 0)
    assert Fence(StateFolder(tmp_path), "l").admit(operation("one", 1), polls, 0, "boot") is None
    fence = Fence(StateFolder(tmp_path), "l")
    assert fence.admit(operation("two", 2), polls, 0, "boot") is None
    ack = fence.admit(operation("one", 1), polls, 0, "boot")
    assert ack is not None
    assert ("failed", "interrupted", 1) == (ack.status, (ack.error or {})["code"], ack.op_seq)


def test_an_abandon_that_stopped_half_way_is_not_called_untouched(desk: Desk) -> None:
    first = desk.key("r2", 1)
    old = desk.install("r3", 2)["a"]["key_ids"]
    desk.done("a", "select_tx", {"an": 2, "key_id": old["tx"], "revert_after_ms": 9_000}, rotation="r3")
    # transmit is under AN 2; AN 1 is what the pending revert goes back to and may not be deleted
    ack = desk.do("a", "abandon", {"key_ids": first["a"]["key_ids"]}, rotation="r2")
    assert ("failed", "EBUSY") == (ack.status, (ack.error or {})["code"])
    assert [0, 2] == [sa.an for sa in desk.state("a").rx]


# --- permits


def test_nothing_passes_the_hard_end_not_even_the_permits_own_time(desk: Desk) -> None:
    desk.controls["a"].changes = {"hard_not_after_ms": 300}
    agent = desk.agents["a"]
    agent.pull()
    secy, asked = agent.driver.read().secy_id, agent.keeper.standing.requested_ns
    assert [1, 0] == [agent.keeper.validity(secy, asked + ms * MS).left_ms for ms in (299, 300)]


@pytest.mark.parametrize("after_verdict", [True, False])
def test_an_agent_that_stood_still_after_its_verdict_opens_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, after_verdict: bool
) -> None:
    """SIGSTOP or a sleeping machine between looking at the permit and renewing the opening."""
    desk.gate.defaults |= {"ttl_ms": 200, "arm_ms": 10_000}
    agent = desk.agents["a"]
    agent.pull()
    real, judge = agent.driver.permit, agent.keeper.validity

    def late(until_ns: int) -> None:
        time.sleep(0.3 if until_ns and not after_verdict else 0)
        real(until_ns)

    def slow(secy_id: str, now_ns: int) -> Validity:
        found = judge(secy_id, now_ns)
        time.sleep(0.3 if after_verdict else 0)
        return found

    monkeypatch.setattr(agent.driver, "permit", late)
    monkeypatch.setattr(agent.keeper, "validity", slow)
    agent.check()
    assert "closed" == path(desk)


def test_a_crowd_of_acknowledgements_never_blocks_the_poll(desk: Desk) -> None:
    agent = desk.agents["a"]
    ack = desk.do("a", "read")
    agent._acks = [ack] * 100
    agent.poll()
    assert (64, 36) == (len(desk.controls["a"].polls[-1]["acks"]), len(agent._acks))


def test_a_process_with_keys_leaves_no_memory_in_core_files() -> None:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        keep_out_of_core_files()
        found = [*resource.getrlimit(resource.RLIMIT_CORE), Path("/proc/self/coredump_filter").read_text()]
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert [0, 0, "00000000"] == [
        part.strip() if isinstance(part, str) else part for part in json.loads(os.read(reading, 1000))
    ]
    os.close(reading)
    os.close(writing)
