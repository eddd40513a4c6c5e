"""The proof API over a stored ledger: every proof verifies, tampering shows, snapshots hold."""

from __future__ import annotations

import pytest
from ledger_world import ORIGIN, frame_of, note

from evidence import merkle
from evidence.append import append_frames
from evidence.database import Database
from evidence.errors import NotInLedger, ProofInvalid
from evidence.ledger import Ledger
from evidence.outbox import put
from evidence.scope import EMPTY_HEAD, Head
from evidence.sequencer import Sequencer
from evidence.trees import KEPT, StoredTree, grow, pack_frontier, unpack_frontier

SIZE = 700  # two kept nodes and a rest


@pytest.fixture
def scope_id(db: Database, ledger: Ledger) -> str:
    """A scope with records, appended in batches of awkward sizes."""
    identity, seq = ledger.ensure_scopes()["acme"], 0
    for count in (1, 254, 2, 300, 143):
        frames = [(seq + at, frame_of(identity, seq + at, f"n{seq + at}")) for at in range(count)]
        db.write_sync(lambda conn, frames=frames: append_frames(conn, "webhook-0", frames))
        seq += count
    assert SIZE == seq
    return identity


def test_heads_leaves_frontiers_and_records_agree(ledger, scope_id):
    leaves = ledger.leaves(scope_id, 0, SIZE)
    assert [one.parts.leaf_hash() for one in ledger.records(scope_id)] == leaves
    for size in (0, 1, 2, 255, 256, 257, 511, 512, 513, 699, SIZE):
        assert Head(size, merkle.root(leaves[:size])) == ledger.head(scope_id, size)
        assert merkle.Frontier().extend(leaves[:size]) == ledger.frontier(scope_id, size)
    assert ledger.head(scope_id) == ledger.head(scope_id, SIZE)


def test_proofs_verify(ledger, scope_id):
    leaves, root = ledger.leaves(scope_id, 0, SIZE), ledger.head(scope_id).root
    for index in (0, 1, 255, 256, 500, 511, 512, 698, 699):
        merkle.verify_inclusion(leaves[index], index, SIZE, ledger.inclusion(scope_id, index, SIZE), root)
    for old in (1, 255, 256, 257, 512, 640, SIZE):
        old_root = ledger.head(scope_id, old).root
        merkle.verify_consistency(old, SIZE, old_root, root, ledger.consistency(scope_id, old, SIZE))


def test_a_range_verifies_between_any_two_sizes(ledger, scope_id):
    for low, high in ((0, 0), (0, SIZE), (100, 101), (255, 600), (256, 512), (700, 700)):
        begin, end = ledger.head(scope_id, low), ledger.head(scope_id, high)
        leaves = ledger.leaves(scope_id, low, high)
        merkle.verify_range(ledger.frontier(scope_id, low), leaves, begin.root, high, end.root)


def test_a_record_changed_in_the_database_no_longer_verifies(db, ledger, scope_id):
    head = ledger.head(scope_id)

    def tamper(conn):
        row = conn.exec_driver_sql("SELECT id, frame FROM ledger_record ORDER BY id LIMIT 1 OFFSET 42").one()
        frame = bytes(row.frame).replace(b'"text":"n42"', b'"text":"n43"')
        conn.exec_driver_sql("UPDATE ledger_record SET frame = ? WHERE id = ?", (frame, row.id))

    db.write_sync(tamper)
    with pytest.raises(ProofInvalid):
        merkle.verify_range(
            merkle.Frontier(), ledger.leaves(scope_id, 0, SIZE), EMPTY_HEAD.root, head.size, head.root
        )


def test_a_removed_record_is_missed(db, ledger, scope_id):
    db.write_sync(lambda conn: conn.exec_driver_sql("DELETE FROM ledger_record WHERE spool_seq = 42"))
    with pytest.raises(NotInLedger):
        ledger.inclusion(scope_id, 43, SIZE)


def test_records_are_found_by_place_and_kind(ledger, scope_id):
    found = ledger.records(scope_id, 10, 13)
    assert [(10, "n10"), (11, "n11"), (12, "n12")] == [
        (r.seq, r.parts.public_fields()["text"]) for r in found
    ]
    assert 2 == len(ledger.records(scope_id, 698, 9999, kind="note"))
    assert [] == ledger.records(scope_id, kind="decision")


def test_a_view_is_one_snapshot(db, ledger, scope_id):
    def read(view):
        before = view.size(scope_id)
        db.write_sync(lambda conn: append_frames(conn, "webhook-0", [(SIZE, frame_of(scope_id, SIZE))]))
        return before, view.size(scope_id), len(list(view.records(scope_id)))

    assert (SIZE, SIZE, SIZE) == ledger.read(read)
    assert SIZE + 1 == ledger.head(scope_id).size


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger, known: ledger.head("0" * 32),
        lambda ledger, known: ledger.head(known, SIZE + 1),
        lambda ledger, known: ledger.head(known, -1),
        lambda ledger, known: ledger.inclusion(known, SIZE, SIZE),
        lambda ledger, known: ledger.inclusion(known, 0, SIZE + 1),
        lambda ledger, known: ledger.consistency(known, 0, SIZE),
        lambda ledger, known: ledger.consistency(known, 5, 4),
        lambda ledger, known: ledger.map_proof(0, known),
        lambda ledger, known: ledger.checkpoint(0),
        lambda ledger, known: ledger.tick_proof(0, 1),
        lambda ledger, known: ledger.read(lambda view: view.find_scope("nobody")),
    ],
)
def test_what_does_not_exist_is_not_in_the_ledger(ledger, scope_id, ask):
    with pytest.raises(NotInLedger):
        ask(ledger, scope_id)


def test_a_database_without_a_ledger_says_so(db):
    with pytest.raises(NotInLedger, match="no ledger"):
        Ledger(db).origin()


def test_opening_again_changes_nothing(db, ledger):
    before = ledger.ensure_scopes()
    again = Ledger.open(db, "sluicegate.io/another")
    assert (ORIGIN, before) == (again.origin(), again.ensure_scopes())


def test_scope_ids_are_random_and_stable(db, ledger):
    ids = ledger.ensure_scopes("acme", "globex", "third")
    assert {"estate", "acme", "globex", "third"} == set(ids)
    assert 4 == len(set(ids.values()))
    assert ids["acme"] == db.write_sync(lambda conn: ledger.scope_id(conn, "acme"))


def test_scopes_do_not_mix(db, ledger):
    for scope in ("acme", "globex", "acme"):
        db.write_sync(lambda conn, scope=scope: put(conn, note(scope=scope, text=scope)))
    Sequencer(db, ledger).drain_sync()
    ids = ledger.ensure_scopes()
    assert (2, 1) == (ledger.head(ids["acme"]).size, ledger.head(ids["globex"]).size)
    assert ["globex"] == [one.parts.public_fields()["text"] for one in ledger.records(ids["globex"])]


class Synthetic(StoredTree):
    """A stored tree whose leaves are computed, so that tall trees cost no records."""

    def leaves(self, low: int, high: int) -> list[bytes]:
        return [merkle.leaf_hash(number.to_bytes(4, "big")) for number in range(low, high)]


def test_tall_trees_are_proved_from_every_eighth_level(db, ledger):
    size = 66_000  # one node of level 16
    assert {8, 16} <= KEPT
    leaves = [merkle.leaf_hash(number.to_bytes(4, "big")) for number in range(size)]

    def build(conn):
        frontier = merkle.Frontier()
        for at in range(0, size, 9_999):
            frontier = grow(conn, 7, frontier, leaves[at : at + 9_999])
            assert frontier == unpack_frontier(frontier.size, pack_frontier(frontier))
        return frontier

    assert merkle.root(leaves) == db.write_sync(build).root()

    def check(conn):
        tree = Synthetic(conn, 7)
        count = conn.exec_driver_sql("SELECT count(*) FROM ledger_node WHERE scope_no = 7").scalar()
        assert size // 256 + 1 == count
        for index in (0, 255, 30_000, 65_535, 65_536, 65_999):
            proof = merkle.inclusion_proof(index, size, tree)
            merkle.verify_inclusion(leaves[index], index, size, proof, merkle.root(leaves))
        proof = merkle.consistency_proof(40_001, size, tree)
        merkle.verify_consistency(40_001, size, merkle.root(leaves[:40_001]), merkle.root(leaves), proof)

    db.read_sync(check)
