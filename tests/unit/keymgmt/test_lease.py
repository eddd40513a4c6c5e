"""The lease: one leader, a token that only rises, and writes of a former leader that change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modelled_ends import make_link
from sqlalchemy import text

from evidence.database import Database
from keymgmt import journal as journal_module
from keymgmt import rotation_sak
from keymgmt.errors import StaleLease
from keymgmt.journal import Journal
from keymgmt.journal_rows import Save
from keymgmt.lease import Lease, Term, fence
from keymgmt.rotation import Rotation, begin

SECOND = 1_000_000_000
TTL = 10 * SECOND


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "lease.db")
    made.start()
    made.create_all()
    yield made
    made.stop()


def lease(database: Database, clock: Clock, holder: str) -> Lease:
    return Lease(database, holder=holder, ttl_ns=TTL, clock=clock)


async def taken(of: Lease) -> Term:
    term = await of.take()
    assert term is not None
    return term


async def test_only_one_of_many_takes_it(database: Database, clock: Clock) -> None:
    terms = await asyncio.gather(*(lease(database, clock, f"c{n}").take() for n in range(16)))
    assert 1 == sum(term is not None for term in terms)


async def test_the_token_rises_with_every_term_and_expiry_decides_only_who_may_try(
    database: Database, clock: Clock
) -> None:
    first, second = lease(database, clock, "one"), lease(database, clock, "two")
    one = await taken(first)
    assert await second.take() is None
    clock.now += TTL - 1
    one = await first.renew(one)
    clock.now += TTL + 1
    two = await taken(second)
    assert (1, 2) == (one.token, two.token)
    with pytest.raises(StaleLease):
        await first.renew(one)


async def test_an_expired_holder_that_nobody_followed_may_renew(database: Database, clock: Clock) -> None:
    first = lease(database, clock, "one")
    one = await taken(first)
    clock.now += 100 * TTL
    assert one.token == (await first.renew(one)).token


async def test_a_restarted_holder_takes_over_from_itself_at_once_with_a_higher_token(
    database: Database, clock: Clock
) -> None:
    earlier = await taken(lease(database, clock, "one"))
    assert earlier.token + 1 == (await taken(lease(database, clock, "one"))).token
    with pytest.raises(StaleLease):
        await lease(database, clock, "one").renew(earlier)


async def test_a_released_lease_is_free_at_once(database: Database, clock: Clock) -> None:
    first, second = lease(database, clock, "one"), lease(database, clock, "two")
    await first.release(await taken(first))
    assert 2 == (await taken(second)).token


async def test_an_earlier_term_of_the_same_holder_does_not_release_the_present_one(
    database: Database, clock: Clock
) -> None:
    first, second = lease(database, clock, "one"), lease(database, clock, "two")
    earlier = await taken(first)
    await taken(first)
    await first.release(earlier)
    assert await second.take() is None


async def test_an_equal_token_of_another_holder_is_another_term(database: Database, clock: Clock) -> None:
    """A restored database may give a token a second time: then only the holder tells two terms apart."""
    first = lease(database, clock, "one")
    one = await taken(first)
    other = text("UPDATE conductor_lease SET holder = 'another'")
    await database.write(lambda conn: conn.execute(other) and None)
    for write in (lambda: first.renew(one), lambda: first.raise_above(one, 9), lambda: fenced(database, one)):
        with pytest.raises(StaleLease):
            await write()
    await first.release(one)
    assert await lease(database, clock, "two").take() is None


async def fenced(database: Database, term: Term) -> None:
    await database.write(lambda conn: fence(conn, term))


async def test_raising_goes_above_what_agents_report_and_only_for_the_leader(
    database: Database, clock: Clock
) -> None:
    first, second = lease(database, clock, "one"), lease(database, clock, "two")
    one = await taken(first)
    raised = await first.raise_above(one, 41)
    assert 42 == raised.token
    clock.now += 2 * TTL
    await taken(second)
    with pytest.raises(StaleLease):
        await first.raise_above(raised, 99)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 15)), max_size=20))
def test_with_any_clocks_tokens_rise_and_at_most_one_term_can_write(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int]]
) -> None:
    """Clocks may jump either way: safety does not depend on them."""
    database = Database(tmp_path_factory.mktemp("clocks") / "x.db")
    database.start()
    database.create_all()
    clock = Clock()

    async def play() -> None:
        terms: list[Term] = []
        leases = [lease(database, clock, f"c{n}") for n in range(3)]
        for who, jump in moves:
            clock.now += jump * SECOND
            term = await leases[who].take()
            if term is not None:
                assert all(term.token > earlier.token for earlier in terms)
                terms.append(term)
        writers = 0
        for term in terms:
            try:
                await database.write(lambda conn, term=term: fence(conn, term))
                writers += 1
            except StaleLease:
                pass
        assert min(1, len(terms)) == writers

    try:
        asyncio.run(play())
    finally:
        database.stop()


# --- a stale conductor changes nothing ----------------------------------------------------------------------


def rotation(number: int) -> Rotation:
    link = make_link()
    fields = {"kind": "sak", "first": rotation_sak.FIRST, "reason": "test", "now_ns": number}
    return begin(link, rotation=f"{number:032x}", **fields)  # type: ignore[arg-type]


async def stale_write_changes_nothing(database: Database, clock: Clock) -> None:
    """The invariant itself: it must hold in production and must not hold in the mutant."""
    journal = Journal(database, time_to_act_ms=1000)
    first, second = lease(database, clock, "one"), lease(database, clock, "two")
    one = await taken(first)
    await journal.save(one, Save(rotation(1)), clock.now)
    clock.now += 2 * TTL
    await taken(second)

    def rows() -> object:
        return database.read_sync(
            lambda conn: [
                conn.execute(text(f"SELECT * FROM {table}")).all()  # noqa: S608
                for table in ("rotation", "operation", "keyed_link", "outbox_entry")
            ]
        )

    before = rows()
    for write in (
        lambda: journal.save(one, Save(rotation(1)), clock.now + 5),
        lambda: journal.adopt(one),
        lambda: journal.raise_sequence(one, "l1", 99),
        lambda: journal.reopen(one, ["x"]),
    ):
        try:
            await write()
        except StaleLease:
            continue
        raise AssertionError("a stale write was accepted")
    assert before == rows()


async def test_a_stale_write_changes_nothing(database: Database, clock: Clock) -> None:
    await stale_write_changes_nothing(database, clock)


async def test_mutant_unfenced_journal_write_is_caught(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "fence", lambda conn, term: None)
    with pytest.raises(AssertionError, match="stale write was accepted"):
        await stale_write_changes_nothing(database, clock)
