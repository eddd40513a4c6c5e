"""The gate of the running system: what must close closes in its time, and nothing goes out in clear."""

import os
import signal
import time

import pytest
from running_system import wait

from policy_engine.demo.chapters_gate import SLACK_SECONDS, _path_closed, _traffic_ends
from policy_engine.demo.chapters_start import review
from policy_engine.demo.stage import LINKS, Meter

pytestmark = pytest.mark.slow
LINK = "cw-gcp-1"


@pytest.mark.parametrize("fault", ["encrypt_off", "protect_off"])
def test_encryption_turned_off_closes_the_gate_and_no_frame_goes_out_in_clear(system, fault):
    meter = Meter(system)
    system.fault(f"{LINK}-a", fault)
    wait(lambda: _path_closed(system, (LINK,)), 5, "both ends closed")
    wait(lambda: system.link(LINK)["posture"]["posture"] == "violation", 5, "posture says violation")
    refused = system.review("train-us", review(system, "compliant"))
    assert not refused["allowed"]
    assert "[encryption.gate]" in refused["status"]["message"]
    assert "since" in refused["status"]["message"]
    figures = meter.read()[LINK]
    assert (0, 0) == (figures["clear"], figures["canary"])
    dropped = int(system.plane(f"{LINK}-a")["counters"]["guard.OutDropped"])
    assert dropped > 0
    system.fault(f"{LINK}-a", "clear")
    system.all_open()
    assert system.review("train-us", review(system, "compliant"))["allowed"]
    kinds = {r["header"]["kind"] for r in system.api("/v1/records?limit=1000").body["records"]}
    assert {"violation", "close", "reopen", "permit"} <= kinds


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_an_agent_that_is_gone_closes_its_path_within_arm(system, number):
    arm = system.link(LINK)["exposure_ms"]["agent_lost"] / 1000
    pid = system.processes()[f"agent/{LINK}-a"]
    began = time.monotonic()
    os.kill(pid, number)
    ended = _traffic_ends(system, (LINK,), arm + 3)
    if number is signal.SIGSTOP:
        try:
            wait(
                lambda: _told(system) == f"start or repair agent {LINK}-a or its data plane",
                5,
                "the silent agent is named",
            )
            refused = system.review("train-us", review(system, "compliant"))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert not refused["allowed"]
    assert ended, "traffic went on"
    assert ended - began <= arm + SLACK_SECONDS
    if number is signal.SIGKILL:
        wait(lambda: system.processes()[f"agent/{LINK}-a"] != pid, 20, "the agent is restarted")


def test_the_control_plane_away_closes_every_path_within_ttl_and_hold(system):
    bound = max(system.link(name)["exposure_ms"]["control_lost"] for name in LINKS) / 1000
    meter = Meter(system)
    system.signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        ended = _traffic_ends(system, LINKS, bound + 5)
    finally:
        system.signal(signal.SIGCONT)
    assert ended, "traffic went on"
    assert bound - 3 <= ended - began <= bound + SLACK_SECONDS
    system.all_open()
    assert 0 == sum(row["clear"] + row["canary"] for row in meter.read().values())
    wait(lambda: {"unknown"} == _verdicts_of_silence(system), 15, "the frozen interval is unknown")


def test_sealing_the_key_store_stops_no_permit(system):
    """Permits are signed by a delegated key: links stay open on their keys while OpenBao is gone."""
    pid = system.processes()["openbao"]
    os.kill(pid, signal.SIGSTOP)
    try:
        before = system.traffic()[LINK]["a>b"]["received"]
        order = int(_orders(system))
        time.sleep(3)
        assert int(_orders(system)) > order
        assert system.traffic()[LINK]["a>b"]["received"] > before + 500
    finally:
        os.kill(pid, signal.SIGCONT)


def _told(system):
    return system.link(LINK)["why"]["next"]


def _verdicts_of_silence(system):
    """What is said of the intervals in which no sample came for too long."""
    page = system.api("/v1/records?kind=link_verdict&scope=estate&limit=1000").body["records"]
    told = [record["public"] for record in page]
    return {one["encrypted"] for one in told if "sent no sample for" in one["reason"]}


def _orders(system):
    import sqlite3

    with sqlite3.connect(f"file:{system.state / 'sluicegate.db'}?mode=ro", uri=True) as db:
        return db.execute(
            "SELECT seq FROM permit_order WHERE link = ? AND endpoint = 'a'", (LINK,)
        ).fetchone()[0]
