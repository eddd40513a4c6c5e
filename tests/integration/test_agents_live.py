"""An agent is killed at each stage of a rotation, under traffic: a lawful end, nothing lost, nothing in clear."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from live_rig import Live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(110)]


def stages(live: Live) -> dict[str, Callable[[], bool]]:
    """What read-back shows at the moment of death."""
    driver = live.driver("a")
    return {
        "receive is installed": lambda: len(driver.read().rx) == 2,
        "transmit is switched": lambda: driver.read().revert_pending,
        "both are confirmed": lambda: (
            len(driver.read().tx) == 2
            and driver.read().encoding_an == max(sa.an for sa in driver.read().tx)
            and not driver.read().revert_pending
        ),
    }


async def test_an_agent_killed_at_each_stage_ends_lawfully_and_loses_nothing(tmp_path: Path) -> None:
    async with Live(tmp_path) as live:
        await live.open_with_traffic()
        before = {way: figures["lost"] for way, figures in live.streams().items()}
        for name, reached in stages(live).items():
            known = await live.known()
            await live.conductor.rotate(live.link.name, "the test")
            await live.until(reached, name)
            live.kill("agent-a")
            await live.until(lambda: not live.spawned["agent-a"].alive(), "death")
            live.start_agent("a")
            ended = await live.next_end(known, 40)
            assert ended.end in {"complete", "rolled back"}, (name, ended.why)
            for side in ("a", "b"):
                reading = live.driver(side).read()
                assert ("open", False) == (reading.path, reading.revert_pending), name
            assert before == {way: figures["lost"] for way, figures in live.streams().items()}, name
        assert "complete" == (await live.rotate()).end
        for side in ("a", "b"):
            reading = live.driver(side).read()
            assert (1, 1) == (len(reading.tx), len(reading.rx))
            counters = reading.counters
            assert 0 == sum(counters[f"rxsc.InPkts{bad}"] for bad in ("NotValid", "NotUsingSA", "Late"))
            assert 0 == counters["guard.OutDropped"] == counters["guard.InClear"]
        assert {0} == {seen["clear"] + seen["canary_seen"] for seen in live.relay().values()}
