"""Agents on real data planes: rotation steps, fence, nonces, burnt keys, what they say of themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agent_rig import SCI, pairs, sa, socket_link
from agents_rig import Desk

from keymgmt.errors import ControlUnavailable, CouldNotTell
from keymgmt.probes import judge_probe

PROBE = "cd" * 16


@pytest.fixture
def desk() -> Iterator[Desk]:
    with socket_link(traffic=False, allow_faults=True) as link:
        yield Desk(link)


def code(ack: Any) -> str:
    assert "done" != ack.status
    return str(ack.error["code"])


def test_a_first_keying_and_a_rotation_by_operations_alone(desk: Desk) -> None:
    installed = desk.install()
    assert installed["a"]["checks"]["tx"] == installed["b"]["checks"]["rx"]
    assert installed["a"]["key_ids"]["rx"] == installed["b"]["key_ids"]["tx"]
    assert installed["a"]["key_ids"]["tx"] != installed["a"]["key_ids"]["rx"]
    for end, peer in (("a", "b"), ("b", "a")):
        ids = installed[end]["key_ids"]
        selected = desk.done(end, "select_tx", {"an": 0, "key_id": ids["tx"], "revert_after_ms": 9_000})
        assert {"encoding_an": 0, "was": None} == selected
        sent = desk.done(end, "probe", {"an": 0, "count": 5, "probe_id": PROBE})
        time.sleep(0.1)
        got = desk.done(peer, "verify", {"an": 0, "key_id": ids["tx"], "probe_id": PROBE})
        verdict = judge_probe(
            an=0,
            sent=sent["nonces"],
            seen=got["nonces"],
            before={k: int(v) for k, v in installed[peer]["counters"].items()},
            after={k: int(v) for k, v in got["counters"].items()},
        )
        assert "verified" == verdict.outcome, verdict.why
        assert {"revert_pending": False} == desk.done(end, "confirm", {"an": 0})
    desk.key("r2", 1)
    for end in "ab":
        ids = installed[end]["key_ids"]
        assert int(desk.done(end, "retire_tx", {"an": 0, "key_id": ids["tx"]})["finals"]["next_pn"]) > 5
    for end in "ab":
        ids = installed[end]["key_ids"]
        finals = desk.done(end, "retire_rx", {"an": 0, "key_id": ids["rx"]})["finals"]
        assert int(finals["InPktsOK"]) >= 5
        assert {"finals": {}} == desk.done(end, "retire_rx", {"an": 0, "key_id": ids["rx"]})
    state = desk.state("a")
    assert (1, 1, 1, 4) == (state.encoding_an, len(state.tx), len(state.rx), len(state.burnt))


def test_one_wrap_is_installed_once(desk: Desk) -> None:
    params = desk.wrapped(desk.prepare())
    desk.done("a", "install", params)
    assert "nonce_unknown" == code(desk.do("a", "install", params))
    assert 1 == desk.keys.decrypts


def test_a_nonce_dies_with_the_agent(desk: Desk) -> None:
    params = desk.wrapped(desk.prepare())
    desk.restart("a")
    assert "nonce_unknown" == code(desk.do("a", "install", params))
    assert () == desk.state("a").rx


@pytest.mark.parametrize(
    "change",
    [
        {"nonce_a": "00" * 16},
        {"link": "gcp-aws-1"},
        {"rotation": "r0"},
        {"scis": [SCI["b"], SCI["a"]]},
        {"cipher": "GCM-AES-256"},
        {"an": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_associated_data_that_is_not_this_ends_own_is_refused_before_decrypting(
    desk: Desk, change: Any
) -> None:
    ad = desk.prepare()
    params = desk.wrapped(ad | change) | {"an": 0}
    ack = desk.do("a", "install", params)
    assert ("refused", "plan_differs") == (ack.status, code(ack))
    assert (0, ()) == (desk.keys.decrypts, desk.state("a").tx)


def test_a_wrap_for_other_nonces_does_not_unwrap(desk: Desk) -> None:
    ad = desk.prepare()
    params = desk.wrapped(ad | {"nonce_b": "11" * 16}) | {"ad": ad}
    assert "custody_refused" == code(desk.do("a", "install", params))
    assert () == desk.state("a").burnt


def test_a_sealed_openbao_changes_nothing_and_the_old_key_goes_on(desk: Desk) -> None:
    desk.key()
    params = desk.wrapped(desk.prepare("r2", 1))
    desk.keys.away = True
    assert "custody_unavailable" == code(desk.do("a", "install", params, rotation="r2"))
    state = desk.state("a")
    assert (0, 1, 1) == (state.encoding_an, len(state.tx), len(state.rx))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tx_sci": SCI["b"]}, "refused"),
        ({"rx_sci": SCI["a"]}, "refused"),
        ({"ssci": 1}, "refused"),
        ({"rx_sci": "0200000000030001"}, "plan_differs"),
    ],
)
def test_a_plan_with_wrong_channels_is_refused(desk: Desk, change: dict[str, Any], expected: str) -> None:
    plan = {"an": 0, "cipher": "GCM-AES-XPN-256", "tx_sci": SCI["a"], "rx_sci": SCI["b"], "ssci": 2}
    assert expected == code(desk.do("a", "prepare", plan | change))


def test_an_an_in_use_is_refused_in_prepare(desk: Desk) -> None:
    desk.key()
    plan = {"an": 0, "cipher": "GCM-AES-XPN-256", "tx_sci": SCI["a"], "rx_sci": SCI["b"], "ssci": 2}
    assert "an_in_use" == code(desk.do("a", "prepare", plan))
    driver = desk.link.drivers["a"]
    driver.install_rx(sa(pairs(an=1)["a"].rx, 1, SCI["b"]), driver.read().secy_id)
    assert "an_in_use" == code(desk.do("a", "prepare", plan | {"an": 1})), "a receive key alone holds it too"


def test_a_key_that_was_installed_before_is_never_installed_again(desk: Desk) -> None:
    first = desk.wrapped(desk.prepare())
    ids = desk.done("a", "install", first)["key_ids"]
    desk.done("a", "abandon", {"key_ids": ids})
    again = desk.wrapped(desk.prepare())
    bound, _ = desk.keys.wraps[again["ciphertext"]]
    desk.keys.wraps[again["ciphertext"]] = (bound, desk.keys.wraps[first["ciphertext"]][1])
    ack = desk.do("a", "install", again)
    assert ("refused", "burnt") == (ack.status, code(ack))
    state = desk.state("a")
    assert ((), (), 2) == (state.tx, state.rx, len(state.burnt))


def test_an_end_can_receive_under_a_key_before_it_holds_it_for_transmit(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, done = desk.agents["a"].driver, []

    def noted(name: str) -> None:
        install = getattr(driver, name)

        def call(key: Any, secy_id: str) -> str:
            done.append(name)
            return str(install(key, secy_id))

        monkeypatch.setattr(driver, name, call)

    noted("install_tx")
    noted("install_rx")
    desk.install()
    assert ["install_rx", "install_tx"] == done


def test_a_ciphertext_of_another_key_version_is_refused_before_decrypting(desk: Desk) -> None:
    params = desk.wrapped(desk.prepare())
    ack = desk.do("a", "install", params | {"key_version": params["key_version"] + 1})
    assert ("refused", "plan_differs", 0) == (ack.status, code(ack), desk.keys.decrypts)


def test_a_secy_that_began_anew_since_prepare_gets_no_key_and_none_is_unwrapped(desk: Desk) -> None:
    params = desk.wrapped(desk.prepare())
    desk.link.stop_plane("a")
    desk.link.start_plane("a")
    ack = desk.do("a", "install", params)
    assert ("refused", "secy_changed", 0) == (ack.status, code(ack), desk.keys.decrypts)


def test_key_ids_are_burnt_before_hardware_is_touched(desk: Desk) -> None:
    params = desk.wrapped(desk.prepare())
    desk.link.stop_plane("a")

    class Dead:
        """A driver that dies at the first key."""

        def __init__(self, real: Any) -> None:
            self.real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def install_rx(self, _sa: Any, _secy_id: str) -> str:
            raise KeyboardInterrupt

    desk.link.start_plane("a")
    desk.agents["a"].executor.keying.prepared["r1"] = (
        desk.agents["a"]
        .executor.keying.prepared["r1"]
        .__class__(params["ad"]["nonce_a"], 0, params["cipher"], desk.agents["a"].driver.read().secy_id)
    )
    desk.agents["a"].executor.keying.driver = Dead(desk.agents["a"].driver)
    desk.send("a", "install", params)
    with pytest.raises(KeyboardInterrupt):
        desk.agents["a"].poll()
    burnt = (desk.link.folder / "agent-a" / "burnt.log").read_text().split()
    assert 4 == len(burnt)  # two key ids, two check values
    desk.restart("a")
    state = desk.state("a")
    assert (tuple(burnt[::2]), ()) == (state.burnt, state.rx)


def test_an_operation_that_was_begun_and_not_finished_is_interrupted(desk: Desk) -> None:
    agent = desk.agents["a"]
    agent.executor._do = {**agent.executor._do, "read": lambda _op: (_ for _ in ()).throw(KeyboardInterrupt)}  # type: ignore[dict-item]
    op_id = desk.send("a", "read", op_seq=50, op_id="cut")
    with pytest.raises(KeyboardInterrupt):
        agent.poll()
    desk.restart("a")
    ack = desk.do("a", "read", op_seq=50, op_id=op_id)
    assert ("failed", "interrupted") == (ack.status, code(ack))
    assert "done" == desk.do("a", "read", op_seq=51).status


def test_a_repeat_returns_the_stored_result_over_a_restart(desk: Desk) -> None:
    first = desk.do("a", "sample", op_id="once", op_seq=10)
    desk.restart("a")
    again = desk.do("a", "sample", op_id="once", op_seq=12, token=2, holder="c2")
    assert first.result == again.result
    assert "stale_token" == code(desk.do("a", "read", op_seq=13))  # the repeat raised the fence


@pytest.mark.parametrize(
    ("changes", "expected", "last"),
    [
        ({"token": 4, "op_seq": 99}, "stale_token", 5),
        ({"holder": "c2", "op_seq": 99}, "stale_token", 5),
        ({"op_seq": 20}, "stale_seq", 20),
        ({"op_seq": 19}, "stale_seq", 20),
        ({"op_seq": 19, "token": 6}, "stale_seq", 20),
        ({"op_seq": 99, "poll_nonce": "00" * 16}, "expired", 20),
        ({"op_seq": 99, "time_to_act_ms": 0}, "expired", 20),
        ({"op_seq": 99, "link": "gcp-aws-1"}, "wrong_link", None),
    ],
)
def test_the_fence_holds_over_a_restart(
    desk: Desk, changes: dict[str, Any], expected: str, last: int | None
) -> None:
    desk.token = 5
    desk.done("a", "read", op_seq=20)
    desk.restart("a")
    ack = desk.do("a", "read", **({"token": 5} | changes))
    assert ("refused", expected) == (ack.status, code(ack))
    assert last == ack.result.get("last")
    assert "done" == desk.do("a", "read", token=6, op_seq=100, holder="c3").status


def test_an_acknowledgement_is_sent_until_a_poll_was_answered(desk: Desk) -> None:
    op_id = desk.send("a", "read")
    agent, control = desk.agents["a"], desk.controls["a"]
    agent.poll()
    control.lose_next_answer = True
    with pytest.raises(ControlUnavailable):
        agent.poll()
    agent.poll()
    assert [[], [op_id], [op_id]] == [[ack["op_id"] for ack in poll["acks"]] for poll in control.polls]
    agent.poll()
    assert [] == control.polls[-1]["acks"]


def test_abandon_deletes_the_new_key_and_never_the_one_in_use(desk: Desk) -> None:
    old = desk.key()
    new = desk.install("r2", 1)
    assert {"deleted": ["rx", "tx"]} == desk.done(
        "a", "abandon", {"key_ids": new["a"]["key_ids"]}, rotation="r2"
    )
    assert {"deleted": []} == desk.done("a", "abandon", {"key_ids": new["a"]["key_ids"]}, rotation="r2")
    assert {"deleted": ["rx"]} == desk.done("b", "abandon", {"key_ids": old["b"]["key_ids"]})
    assert 0 == desk.state("b").encoding_an
    again = desk.install("r3", 2)
    assert new["a"]["key_ids"]["tx"] != again["a"]["key_ids"]["tx"]


def test_errno_of_the_data_plane_reaches_the_conductor(desk: Desk) -> None:
    ids = desk.key()["a"]["key_ids"]
    assert "EBUSY" == code(desk.do("a", "retire_tx", {"an": 0, "key_id": ids["tx"]}))
    assert "ENOENT" == code(desk.do("a", "select_tx", {"an": 1, "key_id": ids["tx"], "revert_after_ms": 5}))
    assert "no_revert" == code(
        desk.do("a", "select_tx", {"an": 0, "key_id": ids["tx"], "revert_after_ms": 0})
    )
    assert "an_not_in_use" == code(desk.do("a", "probe", {"an": 1, "count": 1, "probe_id": PROBE}))
    assert "no_such_sa" == code(desk.do("a", "verify", {"an": 1, "key_id": ids["rx"], "probe_id": PROBE}))
    desk.link.stop_plane("a")
    assert ("failed", "driver_unavailable") == ((ack := desk.do("a", "read")).status, code(ack))


def test_a_bug_in_an_operation_is_answered_without_its_text(desk: Desk) -> None:
    agent = desk.agents["a"]
    agent.executor._do = {**agent.executor._do, "read": lambda _op: int("CANARY")}  # type: ignore[dict-item]
    ack = desk.do("a", "read")
    assert ("failed", "internal", False) == (ack.status, code(ack), "CANARY" in repr(ack))


def test_a_wrong_check_value_is_reported_as_read_back(desk: Desk) -> None:
    desk.link.drivers["b"].fault("wrong_check")
    installed = desk.install()
    assert installed["a"]["checks"]["tx"] != installed["b"]["checks"]["rx"]
    assert installed["a"]["key_ids"]["tx"] == installed["b"]["key_ids"]["rx"]


def test_nothing_an_agent_keeps_or_says_holds_a_key(desk: Desk) -> None:
    desk.key()
    desk.open()
    keys = [key.hex() for _, key in desk.keys.wraps.values()]
    kept = b"".join(p.read_bytes() for p in (desk.link.folder / "agent-a").glob("*") if p.is_file())
    said = json.dumps(desk.controls["a"].polls).encode() + kept
    for plane, _ in desk.link._planes.values():
        assert plane.plane.secy.tx[0].key_id.encode() in said  # what is public may be there
    assert all(key.encode() not in said and bytes.fromhex(key) not in said for key in keys)
    assert all(p.stat().st_mode & 0o077 == 0 for p in (desk.link.folder / "agent-a").glob("*.json"))


def test_a_state_file_that_cannot_be_read_is_no_empty_state(desk: Desk) -> None:
    desk.state("a")
    (desk.link.folder / "agent-a" / "fence.json").write_text("{")
    with pytest.raises(CouldNotTell, match=r"fence\.json"):
        desk.restart("a")


def test_sample_numbers_rise_over_restarts(desk: Desk) -> None:
    first = desk.done("a", "sample")["sample"]["seq"]
    desk.restart("a")
    assert desk.done("a", "sample")["sample"]["seq"] > first
