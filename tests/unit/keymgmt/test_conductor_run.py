"""The conductor as it runs: one task per link, none left behind, a stop that comes at once, a lease given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from control_rig import Rig
from modelled_ends import SECOND, A, B

from evidence.errors import StoreUnavailable
from keymgmt.conductor import Conductor
from keymgmt.lease import Lease, Term
from keymgmt.limits import Limits

QUICK = Limits(lease_renew_ms=20, lease_ttl_ms=10_000, reconcile_ms=10)


class Running(Rig):
    """Two links that differ in name only, and a conductor whose intervals are short."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        other = replace(
            self.link,
            name="l2",
            a=replace(self.link.a, agent="l2-a", sci="0200000000000003"),
            b=replace(self.link.b, agent="l2-b", sci="0200000000000004"),
        )
        self.links = {"l1": self.link, "l2": other}
        self.conductor._links = lambda: self.links
        self.conductor._limits = QUICK

    @asynccontextmanager
    async def conducting(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.conductor.run())
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    made.stop()


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not ready():
            await asyncio.sleep(0.005)


def link_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("link-")}


def looks_of(conductor: Conductor, instead: Callable[[str], Awaitable[int]] | None = None) -> list[str]:
    """The links that were looked at, in order."""
    looked: list[str] = []
    reconcile = instead or conductor.reconcile

    async def noted(link: str) -> int:
        looked.append(link)
        return await reconcile(link)

    conductor.reconcile = noted  # type: ignore[method-assign]
    return looked


async def test_a_bug_on_one_link_stops_neither_the_others_nor_its_own_next_look(rig: Running) -> None:
    async def broken(link: str) -> int:
        if link == "l2":
            raise ZeroDivisionError
        return 10

    looked = looks_of(rig.conductor, broken)
    async with rig.conducting():
        await until(lambda: min(looked.count("l1"), looked.count("l2")) >= 3)


async def test_every_keyed_link_has_one_task_and_one_that_is_no_longer_declared_has_none(
    rig: Running,
) -> None:
    async with rig.conducting():
        await until(lambda: link_tasks() == {"link-l1", "link-l2"})
        rig.links = {"l1": rig.link, "l2": replace(rig.links["l2"], encryption="none")}
        await until(lambda: link_tasks() == {"link-l1"})


@pytest.mark.parametrize("after_turns", range(0, 40, 5))
async def test_a_stop_at_any_moment_comes_at_once_leaves_no_task_and_gives_the_lease_back(
    rig: Running, after_turns: int
) -> None:
    async with rig.conducting() as running:
        await until(lambda: rig.conductor.term is not None)
        for turn in range(after_turns):
            rig.bell.ring(f"link:l{turn % 2 + 1}")
            await asyncio.sleep(0)
        running.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert set() == link_tasks()
    assert [(0,)] == [tuple(row) for row in rig.rows("SELECT expires_ns FROM conductor_lease")]


async def test_a_stop_while_the_database_is_away_is_a_stop(rig: Running) -> None:
    async def away(_term: Term) -> None:
        raise StoreUnavailable("the database did not commit")

    rig.conductor._lease.release = away  # type: ignore[method-assign]
    async with rig.conducting() as running:
        await until(lambda: rig.conductor.term is not None)
    assert running.cancelled()


async def test_a_conductor_that_was_followed_stops_its_links_and_waits_for_the_lease(rig: Running) -> None:
    looked = looks_of(rig.conductor)
    async with rig.conducting():
        await until(lambda: link_tasks() == {"link-l1", "link-l2"})
        rig.world.now += 11 * SECOND
        successor = Lease(rig.database, holder="second", ttl_ns=10 * SECOND, clock=lambda: rig.world.now)
        term = await successor.take()
        assert term is not None
        await until(lambda: rig.conductor.term is None)
        assert set() == link_tasks()
        looked.clear()
        await asyncio.sleep(0.1)
        assert [] == looked, "it does not even look while another leads"
        await successor.release(term)
        await until(lambda: rig.conductor.term is not None and len(looked) >= 2)
        assert rig.conductor.term.token > term.token


async def test_a_journal_that_is_away_for_a_while_costs_looks_and_nothing_else(rig: Running) -> None:
    load, failures = rig.conductor.journal.load, [3]

    async def flaky(link: str) -> Any:
        if failures[0] > 0:
            failures[0] -= 1
            raise StoreUnavailable("the database did not read")
        return await load(link)

    rig.conductor.journal.load = flaky  # type: ignore[method-assign]
    rig.links = {"l1": rig.link}
    async with rig.conducting():
        async with asyncio.timeout(20):
            while not [state for state in await rig.ended() if state.end == "complete"]:
                for side in (A, B):
                    await rig.serve(side)
                rig.bell.ring("link:l1")
                rig.world.now += SECOND // 4
                await asyncio.sleep(0.01)
    assert 0 == failures[0]
