"""When the path is open: permits, hold, close and reopen, violations, restarts. Real data planes."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from agent_rig import MS, socket_link
from agents_rig import Desk
from gate_rig import Gate
from hypothesis import given
from hypothesis import strategies as st

from keymgmt.agents.keeper import Keeper, Validity
from keymgmt.agents.state import StateFolder
from keymgmt.drivers.software_ports import boottime_ns
from keymgmt.errors import ControlUnavailable, PermitRefused
from keymgmt.permit import PermitKind


@pytest.fixture
def desk() -> Iterator[Desk]:
    with socket_link(traffic=False, allow_faults=True) as link:
        desk = Desk(link)
        desk.key()
        yield desk


def path(desk: Desk, end: str = "a") -> str:
    return desk.link.drivers[end].read().path


def test_without_a_permit_the_path_stays_closed(desk: Desk) -> None:
    desk.agents["a"].check()
    assert "closed" == path(desk)


def test_a_permit_opens_for_an_arm_and_each_check_renews_it(desk: Desk) -> None:
    desk.gate.defaults |= {"arm_ms": 300}
    desk.open()
    for _ in range(4):
        time.sleep(0.15)
        desk.agents["a"].check()
        assert "open" == path(desk)
    time.sleep(0.35)
    assert "closed" == path(desk)  # nobody renewed


def test_an_opening_never_outlives_its_permit(desk: Desk) -> None:
    desk.gate.defaults |= {"ttl_ms": 200, "arm_ms": 10_000}
    desk.open()
    assert "open" == path(desk)
    time.sleep(0.25)
    assert "closed" == path(desk)
    desk.agents["a"].check()
    assert "closed" == path(desk)


def test_validity_counts_from_the_request_and_not_from_its_answer(desk: Desk) -> None:
    agent, answer, asked = desk.agents["a"], desk.controls["a"]._permit, []

    def slow(doc: dict[str, Any]) -> bytes:
        asked.append(boottime_ns())
        time.sleep(0.05)
        return answer(doc)

    desk.controls["a"]._permit = slow  # type: ignore[method-assign]
    agent.pull()
    assert agent.keeper.standing.requested_ns <= asked[0]


def test_a_bug_in_a_pass_ends_no_loop(desk: Desk) -> None:
    agent = desk.agents["a"]
    passes: list[bool] = []

    def broken() -> None:
        passes.append(agent._stop.wait(0.01))
        if len(passes) == 2:
            agent.stop()
        raise LookupError

    agent._loop(broken)
    assert 2 == len(passes)


def test_hold_covers_silence_of_the_control_plane_and_then_ends(desk: Desk) -> None:
    desk.gate.defaults |= {"ttl_ms": 100, "max_hold_ms": 400, "arm_ms": 200}
    agent = desk.agents["a"]
    agent.pull()
    asked = agent.keeper.standing.requested_ns
    desk.controls["a"].away = True
    with pytest.raises(ControlUnavailable):
        agent.pull()
    secy = agent.driver.read().secy_id
    found = [agent.keeper.validity(secy, asked + ms * MS) for ms in (50, 150, 499, 500, 10_000)]
    assert [(450, False), (350, True), (1, True), (0, True), (0, True)] == [
        (v.left_ms, v.held) for v in found
    ]


def test_hold_never_passes_the_hard_end(desk: Desk) -> None:
    desk.gate.defaults |= {"ttl_ms": 100, "max_hold_ms": 10_000}
    desk.controls["a"].changes = {"hard_not_after_ms": 300}
    agent = desk.agents["a"]
    agent.pull()
    secy, asked = agent.driver.read().secy_id, agent.keeper.standing.requested_ns
    assert [1, 0] == [agent.keeper.validity(secy, asked + ms * MS).left_ms for ms in (299, 300)]


def test_a_close_drops_at_once_beats_any_hold_and_survives_a_restart(desk: Desk) -> None:
    desk.gate.defaults |= {"max_hold_ms": 60_000}
    desk.open()
    control = desk.controls["a"]
    control.kind = PermitKind.CLOSE
    assert PermitKind.CLOSE is desk.agents["a"].pull()
    assert "closed" == path(desk)
    desk.restart("a")
    control.kind = PermitKind.PERMIT
    desk.open()  # a permit alone does not end a close
    assert ("closed", True) == (path(desk), desk.agents["a"].keeper.standing.closed)
    assert control.pulls[-1].closed
    control.kind = PermitKind.REOPEN
    desk.open()
    assert "closed" == path(desk)  # a reopen alone opens nothing
    control.kind = PermitKind.PERMIT
    desk.open()
    assert "open" == path(desk)


def test_a_permit_survives_the_agents_restart_but_not_a_reboot(desk: Desk) -> None:
    desk.open()
    desk.restart("a")
    desk.controls["a"].away = True
    desk.agents["a"].check()
    assert "open" == path(desk)
    keeper = Keeper(desk.agents["a"].state, boot_id="another", clean_ms=1)
    assert (None, False) == (keeper.standing.permit, keeper.standing.closed)
    assert desk.agents["a"].keeper.standing.order == keeper.standing.order


def test_a_replayed_answer_is_refused(desk: Desk) -> None:
    agent, control = desk.agents["a"], desk.controls["a"]
    agent.pull()
    answer = desk.gate.answer(control.order(control.pulls[-1]))
    control._permit = lambda _doc: answer  # type: ignore[method-assign]
    with pytest.raises(PermitRefused, match="nonce"):
        agent.pull()


@pytest.mark.parametrize("fault", ["encrypt_off", "protect_off"])
def test_a_violation_closes_at_once_and_the_path_reopens_after_repair(desk: Desk, fault: str) -> None:
    desk.open()
    agent, control = desk.agents["a"], desk.controls["a"]
    assert "open" == path(desk)
    desk.link.drivers["a"].fault(fault)
    agent.check()
    assert ("closed", 1) == (path(desk), agent.keeper.violations)
    agent.poll()
    time.sleep(0.2)  # a steady probe meets the guard
    agent.check()
    assert 1 == agent.keeper.violations  # one violation, however often it is seen
    control.changes = {"violation_generation": 0}
    with pytest.raises(PermitRefused, match="violation"):
        agent.pull()
    control.changes = {}
    agent.pull()
    agent.check()
    assert "closed" == path(desk)  # it goes on: its own checks do not pass
    desk.link.drivers["a"].fault("clear")
    for _ in range(4):
        time.sleep(0.15)
        agent.check()
    agent.pull()
    agent.check()
    assert "open" == path(desk)


def test_one_suspicious_look_alone_is_no_violation(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.open()
    agent, read = desk.agents["a"], desk.agents["a"].driver.read
    looks = iter([False])
    monkeypatch.setattr(agent.driver, "read", lambda: replace(read(), encrypt=next(looks, True)))
    agent.check()
    assert (0, "open") == (agent.keeper.violations, path(desk))


def test_a_violation_drops_the_path_before_it_is_written_and_interrupts_the_held_poll(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.open()
    agent, control = desk.agents["a"], desk.controls["a"]
    agent.check()
    done: list[str] = []
    write = agent.state.write

    def noted(name: str, doc: Any) -> None:
        done.append(f"{name} while {path(desk)}")
        write(name, doc)

    monkeypatch.setattr(agent.state, "write", noted)
    assert 0 == control.interrupts
    desk.link.drivers["a"].fault("encrypt_off")
    agent.check()
    assert (["violations.json while closed"], 1) == (done, control.interrupts)


def test_a_violation_voids_every_permit_of_before(desk: Desk) -> None:
    desk.open()
    agent, secy = desk.agents["a"], desk.agents["a"].driver.read().secy_id
    desk.link.drivers["a"].fault("encrypt_off")
    agent.check()
    desk.link.drivers["a"].fault("clear")
    agent.check()
    agent.keeper._suspicious_ns = 0  # long past: the end is clean, and only a new permit is missing
    agent.check()
    assert ("closed", 0) == (path(desk), agent.keeper.validity(secy, boottime_ns()).left_ms)
    desk.open()
    assert "open" == path(desk)


def test_a_violation_is_reported_until_a_poll_was_answered(desk: Desk) -> None:
    agent, control = desk.agents["a"], desk.controls["a"]
    agent.check()
    desk.link.drivers["a"].fault("encrypt_off")
    agent.check()
    control.lose_next_answer = True
    with pytest.raises(ControlUnavailable):
        agent.poll()
    agent.poll()
    agent.poll()
    assert [1, 1, 0] == [len(poll["violations"]) for poll in control.polls[-3:]]
    assert {"code", "detail", "counters"} == set(control.polls[-2]["violations"][0])


def test_what_moved_while_the_agent_was_dead_is_a_violation(desk: Desk) -> None:
    desk.open()
    desk.link.drivers["a"].fault("protect_off")
    time.sleep(0.25)
    desk.link.drivers["a"].fault("clear")
    desk.restart("a")
    desk.agents["a"].check()
    assert ("closed", 1) == (path(desk), desk.agents["a"].keeper.violations)
    desk.restart("a")
    desk.agents["a"].check()
    assert 1 == desk.agents["a"].keeper.violations  # known already


def test_a_restarted_data_plane_voids_the_permit_and_is_reported(desk: Desk) -> None:
    desk.open()
    agent = desk.agents["a"]
    before = agent.driver.read().secy_id
    desk.link.stop_plane("a")
    agent.check()  # nobody answers: no error reaches the loop
    assert 0 == desk.controls["a"].interrupts
    desk.link.start_plane("a")
    agent.check()
    assert 1 == desk.controls["a"].interrupts, "told at once, not with the next poll"
    reading = agent.driver.read()
    assert ("closed", True) == (reading.path, reading.secy_id != before)
    agent.poll()
    sample = desk.controls["a"].polls[-1]["samples"][0]
    assert (reading.secy_id, None) == (sample["secy_id"], sample["tx_key_id"])
    assert 0 == agent.keeper.validity(reading.secy_id, boottime_ns()).left_ms
    agent.pull()
    agent.check()
    assert "closed" == path(desk)  # a permit does not help without a key


def test_a_data_plane_of_another_version_is_told_loudly_once_and_stays_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = desk.agents["a"]
    agent.pull()
    ask, log = agent.driver._ask, Log()  # type: ignore[attr-defined]
    with monkeypatch.context() as other:
        other.setattr(agent, "_log", log)
        other.setattr(agent.driver, "_ask", lambda command, **more: {**ask(command, **more), "a_field": 1})
        for _ in range(3):
            agent.check()
        assert ["warning", "debug", "debug"] == [level for level, _event in log.said]
        assert {"check_failed"} == {event for _level, event in log.said}
        assert "closed" == path(desk)
        other.setattr(agent.driver, "_ask", ask)
        agent.check()
        other.setattr(agent.driver, "_ask", lambda _command, **_more: {})
        agent.check()
        assert ("warning", "check_failed") == log.said[-1]


def test_a_full_disk_under_an_order_is_told_as_such_and_no_bug(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, log = desk.agents["a"], Log()
    monkeypatch.setattr(agent, "_log", log)
    monkeypatch.setattr(agent.state, "write", no_space)
    agent._pull_now.set()
    agent._permit_pass()
    assert ("error", "state_unwritable") in log.said
    assert "closed" == path(desk)


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


class Log:
    """What was logged: (level, event)."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **_more: self.said.append((level, event))


def test_a_confirm_that_came_too_late_leaves_the_old_key(desk: Desk) -> None:
    new = desk.install("r2", 1)["a"]["key_ids"]["tx"]
    desk.done("a", "select_tx", {"an": 1, "key_id": new, "revert_after_ms": 100}, rotation="r2")
    time.sleep(0.25)
    assert "ENOENT" == desk.do("a", "confirm", {"an": 1}, rotation="r2").error["code"]  # type: ignore[index]
    assert 0 == desk.state("a").encoding_an


ORDERS = st.lists(st.tuples(st.sampled_from(list(PermitKind)), st.integers(1, 12)), max_size=25)


@given(ORDERS)
def test_only_a_reopen_above_a_close_ends_it(
    tmp_path_factory: Any, orders: list[tuple[PermitKind, int]]
) -> None:
    """Whatever order orders arrive in: closed is what the highest close or reopen accepted so far says."""
    gate, folder = Gate(), tmp_path_factory.mktemp("k")
    keeper = Keeper(StateFolder(folder), boot_id="boot", clean_ms=1)
    highest, closed = 0, False
    for kind, seq in orders:
        keeper.accept(gate.permit(kind, seq=seq), 0)
        if seq > highest:
            highest = seq
            closed = kind is PermitKind.CLOSE or (closed and kind is not PermitKind.REOPEN)
        assert closed == keeper.standing.closed
        assert (0 < keeper.validity("secy", 1).left_ms) <= (not closed)
    again = Keeper(StateFolder(folder), boot_id="boot", clean_ms=1)
    assert keeper.standing == again.standing


def test_a_request_from_the_future_of_this_boot_is_not_valid(tmp_path: Any) -> None:
    keeper = Keeper(StateFolder(tmp_path), boot_id="boot", clean_ms=1)
    keeper.accept(Gate().permit(), 10**9)
    assert Validity(
        0, held=False, why="the permit's request lies in the future of this boot"
    ) == keeper.validity("secy", 0)
