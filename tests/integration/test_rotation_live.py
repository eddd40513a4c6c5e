"""Rotation end to end: real key store, conductor, hub over mTLS, two agents, two data planes, relay, traffic."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from live_rig import CANARY, Live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(110)]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with Live(tmp_path) as running:
        yield running


def lost(streams: dict[str, Any]) -> dict[str, int]:
    return {way: figures["lost"] for way, figures in streams.items()}


def assert_nothing_in_clear(live: Live) -> None:
    for way, seen in live.relay().items():
        assert (0, 0) == (seen["clear"], seen["canary_seen"]), way


async def test_keying_rotation_and_faults_under_traffic(live: Live) -> None:
    """One story on one system, because starting it costs seconds."""
    await live.open_with_traffic()
    before = lost(live.streams())
    key_before = live.driver("a").read().key_of_tx()

    # Rotation under traffic: nothing lost, another key at both ends, one SA per direction left.
    done = await live.rotate()
    assert "complete" == done.end, done.why
    assert before == lost(live.streams())
    for side in ("a", "b"):
        reading = live.driver(side).read()
        assert done.memo["key_ids"][side]["tx"] == reading.key_of_tx() != key_before
        assert 1 == len(reading.tx) == len(reading.rx)

    # Fault a: the check values differ. Abandoned, nothing lost, the old key stays in use.
    live.driver("a").fault("wrong_check")
    refused = await live.rotate()
    live.driver("a").fault("clear")
    assert ("rolled back", True) == (refused.end, "check values differ" in refused.why)
    assert before == lost(live.streams())
    assert done.memo["key_ids"]["a"]["tx"] == live.driver("a").read().key_of_tx()

    # Fault b: right value reported, other key in hardware. Found by counters, one direction loses, rolled back.
    known = await live.known()
    live.driver("a").fault("wrong_key", direction="tx")
    await live.conductor.rotate(live.link.name, "the test")
    wrong = await live.next_end(known)
    live.driver("a").fault("clear")
    assert ("rolled back", True) == (wrong.end, "counted errors" in wrong.why), wrong.why
    after = lost(live.streams())
    assert before["b>a"] == after["b>a"]
    assert done.memo["key_ids"]["a"]["tx"] == live.driver("a").read().key_of_tx()
    received = live.streams()
    await live.until(
        lambda: all(live.streams()[way]["received"] > received[way]["received"] + 50 for way in received),
        "traffic after the rollback",
    )
    assert after == lost(live.streams())

    # And the next one is whole again.
    assert "complete" == (await live.rotate()).end
    assert after == lost(live.streams())
    assert_nothing_in_clear(live)


async def test_deaths_in_mid_rotation_end_lawfully(live: Live) -> None:
    """The conductor dies; then the key store; then a data plane. No clear frame, the link works after each."""
    await live.open_with_traffic()

    # The conductor dies right after the switch at A was ordered; another one takes over from the journal.
    known = await live.known()
    await live.conductor.rotate(live.link.name, "the test")
    await live.until(lambda: live.driver("a").read().revert_pending, "the switch at a")
    await live.stop_conductor()
    live.run_conductor()
    taken = await live.next_end(known)
    assert taken.end in {"complete", "rolled back"}, taken.why

    # The key store is killed: links stay up on the present key, a rotation does not start or turns back.
    assert live.bao.pid is not None
    key = live.driver("a").read().key_of_tx()
    pid = live.bao.pid
    import os
    import signal

    os.kill(pid, signal.SIGKILL)
    without = await live.rotate()
    assert without.end in {"not started", "rolled back"}, without.end
    assert key == live.driver("a").read().key_of_tx()
    await live.until(live.bao.look, "the key store is active again")
    assert "complete" == (await live.rotate()).end

    # A data plane dies: its SecY with it. Keyed anew without being asked.
    known = await live.known()
    live.kill("dp-b")
    live.respawn_dataplane("b")
    again = await live.next_end(known, 40)
    assert "complete" == again.end, again.why
    assert again.reason.startswith(("rekey", "first keying"))
    assert_nothing_in_clear(live)
    logs = b"".join(path.read_bytes() for path in live.folder.rglob("*.log"))
    assert CANARY not in logs
