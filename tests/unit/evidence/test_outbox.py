"""The outbox: a record stands or falls with the caller's transaction, and reaches the ledger once."""

from __future__ import annotations

import pytest
from ledger_world import note

from evidence.errors import NotCanonical, RecordRefused
from evidence.outbox import put
from evidence.records import Draft
from evidence.sequencer import Sequencer


def drained(db, ledger, scope="acme"):
    Sequencer(db, ledger).drain_sync()
    return ledger.records(ledger.ensure_scopes()[scope])


def test_a_record_arrives_once_with_its_event_id(db, ledger):
    event_id = db.write_sync(lambda conn: put(conn, note(), now_ns=77))
    (record,) = drained(db, ledger)
    (same,) = drained(db, ledger)
    assert record == same
    header = record.parts.header_fields()
    assert (event_id, "0", "77", "webhook-0", "note") == (
        header["event_id"],
        header["source_seq"],
        header["received_time"],
        header["source"],
        header["kind"],
    )
    assert {"text": "x"} == record.parts.public_fields()
    assert {"secret_text": "s"} == record.parts.sensitive_fields()


def test_two_scopes_can_share_one_event(db, ledger):
    given = Draft("note", "acme", "s", None, {"text": "a"}, header={"event_id": "e-1"})
    other = Draft("note", "globex", "s", None, {"text": "a"}, header={"event_id": "e-1"})
    assert ["e-1", "e-1"] == db.write_sync(lambda conn: [put(conn, given), put(conn, other)])
    found = [drained(db, ledger, scope)[0].parts for scope in ("acme", "globex")]
    assert ["e-1", "e-1"] == [one.header_fields()["event_id"] for one in found]
    assert found[0].salts != found[1].salts


def test_a_transaction_that_fails_leaves_no_record_and_no_gap(db, ledger):
    db.write_sync(lambda conn: put(conn, note(text="one")))

    def fails(conn):
        put(conn, note(text="never"))
        raise KeyError

    with pytest.raises(KeyError):
        db.write_sync(fails)
    db.write_sync(lambda conn: put(conn, note(text="two")))
    records = drained(db, ledger)
    assert ["one", "two"] == [one.parts.public_fields()["text"] for one in records]
    assert ["0", "1"] == [one.parts.header_fields()["source_seq"] for one in records]


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (Draft("nosuch", "acme", "s", None, {}), RecordRefused),
        (Draft("note", "acme", "s", None, {"text": 0.5}), NotCanonical),
    ],
)
def test_a_refused_draft_fails_the_callers_transaction(db, ledger, draft, error):
    def both(conn):
        put(conn, note())
        put(conn, draft)

    with pytest.raises(error):
        db.write_sync(both)
    assert [] == drained(db, ledger)


def test_each_source_counts_by_itself(db, ledger):
    for source in ("a", "b", "a", "a", "b"):
        db.write_sync(lambda conn, source=source: put(conn, note(source=source)))
    found = [one.parts.header_fields() for one in drained(db, ledger)]
    by_source = {s: [one["source_seq"] for one in found if one["source"] == s] for s in "ab"}
    assert {"a": ["0", "1", "2"], "b": ["0", "1"]} == by_source


def test_a_new_scope_is_created_by_its_first_record(db, ledger):
    db.write_sync(lambda conn: put(conn, note(scope="fresh")))
    assert 1 == len(drained(db, ledger, "fresh"))


@pytest.mark.parametrize("name", ["", "x" * 254, "a\nb"])
def test_unusable_scope_names_are_refused(db, ledger, name):
    with pytest.raises(RecordRefused):
        db.write_sync(lambda conn: put(conn, note(scope=name)))
