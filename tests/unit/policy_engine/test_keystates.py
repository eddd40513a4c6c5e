"""The gate's memory of the journal: read at once where the conductor rang, and everything by and by."""

import asyncio
import contextlib
from types import SimpleNamespace

from evidence.errors import StoreUnavailable
from policy_engine.embedded import keystates
from policy_engine.embedded.keystates import KeyStates


class Journal:
    """`Journal.load` that counts; leaves out all but what a key state is made of."""

    def __init__(self):
        self.read, self.keyed, self.away = [], set(), False

    async def load(self, link):
        self.read.append(link)
        if self.away:
            raise StoreUnavailable("the database did not read")
        live = {"born_ns": "7"} if link in self.keyed else None
        return SimpleNamespace(entry=SimpleNamespace(live=live, last_end=None), open=None)


@contextlib.asynccontextmanager
async def running(states):
    task = asyncio.create_task(states.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds):
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_ring_reads_its_link_only():
    journal = Journal()
    states = KeyStates(lambda: journal, lambda: ("k", "l", "m"))
    async with running(states):
        await until(lambda: len(journal.read) == 3)
        journal.keyed.add("l")
        states.ring("l", object())
        await until(lambda: states.get("l").keyed)
    assert ["k", "l", "m", "l"] == journal.read


async def test_everything_is_read_again_however_often_one_link_rings(monkeypatch):
    """Other replicas write without a ring."""
    monkeypatch.setattr(keystates, "REFRESH_SECONDS", 0.05)
    journal = Journal()
    states = KeyStates(lambda: journal, lambda: ("k", "l"))

    def rung():
        states.ring("l")
        return states.get("k").keyed

    async with running(states):
        await until(lambda: len(journal.read) >= 2)
        journal.keyed.add("k")
        await until(rung)


async def test_what_was_known_stands_while_the_database_is_away(monkeypatch):
    monkeypatch.setattr(keystates, "REFRESH_SECONDS", 0.02)
    journal = Journal()
    journal.keyed.add("l")
    states = KeyStates(lambda: journal, lambda: ("l",))
    async with running(states):
        await until(lambda: states.get("l").keyed)
        journal.away, seen = True, len(journal.read)
        await until(lambda: len(journal.read) > seen + 2)
        assert (True, 7) == (states.get("l").keyed, states.get("l").key_since_ns)
