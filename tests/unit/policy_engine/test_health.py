"""Health tells the truth: the key store by its last answer, the ledger by its last signature."""

import asyncio

import pytest

from evidence.database import Database
from evidence.errors import StoreUnavailable
from keymgmt.errors import CustodyRefused, CustodyUnavailable
from policy_engine.embedded.ask import lines
from policy_engine.embedded.contact import Contact
from policy_engine.embedded.health import SignedTicks, floor, warnings

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def contact(clock):
    return Contact(clock)


@pytest.fixture
def ticks(tmp_path, clock):
    database = Database(tmp_path / "a.db")
    database.start()
    database.create_all()

    def put(tick, at_ns, note):
        row = (tick, at_ns, b"m" * 32, b"r" * 32, note)
        sql = "INSERT INTO ledger_tick (tick, time_ns, map_root, root, note) VALUES (?, ?, ?, ?, ?)"
        database.write_sync(lambda conn: conn.exec_driver_sql(sql, row) and None)
        asyncio.run(signed.look())

    signed = SignedTicks(database, 1.0, clock)
    signed.put = put
    asyncio.run(signed.look())
    yield signed
    database.stop()


def fail(error):
    raise error


def test_silence_alone_makes_the_key_store_away(contact, clock):
    assert "" == contact.away
    clock.now += 32
    assert "no answer for 32 s" == contact.away
    contact.answered()
    assert "" == contact.away


def test_an_error_makes_it_away_at_once_and_an_answer_ends_it(contact):
    with pytest.raises(CustodyUnavailable):
        contact.call(lambda: fail(CustodyUnavailable("sealed")))
    assert "no answer for 0 s (sealed)" == contact.away
    with pytest.raises(CustodyRefused):
        contact.call(lambda: fail(CustodyRefused("no")))
    assert "" == contact.away
    assert 7 == contact.call(lambda: 7)


def test_a_ledger_that_signs_appends(ticks, contact):
    assert "appends" == ticks.state("", contact, NOW)
    ticks.put(0, NOW - 60 * SECOND, b"note")
    assert "appends" == ticks.state("", contact, NOW)
    assert NOW - 60 * SECOND == ticks.last_ns


def test_a_tick_that_stays_unsigned_is_told_with_its_time_and_cause(ticks, contact, clock):
    ticks.put(0, NOW - 33 * SECOND, b"note")
    ticks.put(1, NOW - 32 * SECOND, None)
    clock.now += 32
    asyncio.run(ticks.look())
    told = ticks.state("", contact, NOW)
    assert told.startswith("unsigned since 2027-01-15T07:59:28Z (32 s): the key store is away: no answer")
    contact.answered()
    assert "disk full" in ticks.state("disk full", contact, NOW)
    assert "the signer has not answered" in ticks.state("", contact, NOW)


def test_an_away_store_is_told_though_no_tick_waits(ticks, contact, clock):
    ticks.put(0, NOW - 600 * SECOND, b"note")
    clock.now += 32
    asyncio.run(ticks.look())
    assert "(32 s)" in ticks.state("", contact, NOW)


def test_a_failing_sequencer_is_told(ticks, contact):
    assert "no" == ticks.state("no", contact, NOW)


def test_a_ledger_that_cannot_be_read_is_told(ticks, contact, clock):
    clock.now += 6
    assert "cannot be read: no answer for 6 s" == ticks.state("", contact, NOW)
    asyncio.run(ticks.look())
    assert "appends" == ticks.state("", contact, NOW)
    ticks._database.read_sync = lambda _run: fail(StoreUnavailable("disk I/O error"))
    asyncio.run(ticks.look())
    assert "cannot be read: disk I/O error" == ticks.state("", contact, NOW)


def test_readiness_is_a_floor():
    good = {"trusted": True, "generation": 1, "posture_age_s": 0.3, "spool": None}
    assert {} == floor(**good)
    for name, bad in {
        "bundle": {"trusted": False},
        "context": {"generation": 0},
        "postures": {"posture_age_s": 12.0},
        "spool": {"spool": "No space left on device"},
    }.items():
        assert {name} == set(floor(**good | bad))


def test_warnings_name_what_is_not_well():
    assert [] == warnings({"ledger": "appends", "key_store": "active"}, {})
    told = warnings({"ledger": "appends", "key_store": "away: no answer for 9 s"}, {"spool": "full"})
    assert ["not ready: spool: full", "key store: away: no answer for 9 s"] == told


def test_status_shows_each_warning_once():
    told = {
        "missing": {"spool": "disk full"},
        "status": {
            "ledger": "unsigned since noon",
            "key_store": "active",
            "warnings": [
                "not ready: spool: disk full",
                "ledger: unsigned since noon",
                "declared state: 1 change that widens took effect unapproved",
            ],
        },
        "links": [],
    }
    assert [
        "  ready      NO: spool: disk full",
        "  ledger     unsigned since noon",
        "  key store  active",
        "  links      ",
        "  warning    declared state: 1 change that widens took effect unapproved",
    ] == lines(told)
