"""Any order of appends, failures, crashes, ticks and key changes keeps the ledger's promises.

A model remembers what was acknowledged. After each run: every acknowledged record stands in the ledger exactly
once, numbers of each source are gapless, every head ever committed proves, and the whole tick log is one history.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from ledger_world import ORIGIN, accepted_keys

from evidence import merkle, scopemap
from evidence.checkpoint import LocalSigner, open_checkpoint, verifier_of
from evidence.database import Database
from evidence.errors import StoreUnavailable
from evidence.ledger import Ledger
from evidence.outbox import put
from evidence.records import Draft, encode
from evidence.sequencer import Sequencer
from evidence.spool import Spool

SCOPES = ("acme", "globex", "estate")


class LedgerMachine(RuleBasedStateMachine):
    """Drives one database, one spool and one sequencer."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.db = Database(Path(self.folder.name) / "e.db")
        self.db.start()
        self.db.create_all()
        self.ledger = Ledger.open(self.db, ORIGIN)
        self.ids = self.ledger.ensure_scopes(*SCOPES)
        self.signer = self.first_signer = LocalSigner("key-0")
        self.acknowledged: list[str] = []
        self.count = 0
        self.open()

    def open(self) -> None:
        self.spool = Spool(self.folder.name, "webhook-0")
        self.spool.start()
        self.sequencer = Sequencer(self.db, self.ledger, [self.spool])

    @rule(scope=st.sampled_from(SCOPES), times=st.integers(1, 5))
    def spool_records(self, scope: str, times: int) -> None:
        for _ in range(times):
            name, seq = self.name(), self.spool.next_seq
            draft = Draft("decision", scope, "webhook-0", None, {"decision_id": name})
            fields = {"scope_id": self.ids[scope], "source_seq": seq, "boot_id": "b", "received_time_ns": 1}
            self.spool.append_sync(seq, encode(draft, **fields, salts=bytes(48)).frame)
            self.acknowledged.append(name)

    @rule(scope=st.sampled_from(SCOPES), source=st.sampled_from(["conductor", "gate"]))
    def put_into_the_outbox(self, scope: str, source: str) -> None:
        name = self.name()
        self.db.write_sync(
            lambda conn: put(conn, Draft("decision", scope, source, None, {"decision_id": name}))
        )
        self.acknowledged.append(name)

    @rule()
    def step(self) -> None:
        self.sequencer.step_sync()

    @rule(committed=st.booleans())
    def step_that_is_not_answered(self, committed: bool) -> None:
        """The commit fails, or succeeds without the sequencer hearing of it."""
        real = self.db.write_sync

        def lost(run):
            if committed:
                real(run)
            raise StoreUnavailable("no answer")

        self.db.write_sync = lost
        try:
            self.sequencer.step_sync()
        except StoreUnavailable:
            pass
        finally:
            del self.db.write_sync

    @rule()
    def crash(self) -> None:
        self.spool.stop()
        self.open()

    @rule()
    def tick(self) -> None:
        self.sequencer.tick_sync(1, self.signer)

    @rule()
    def change_the_key(self) -> None:
        if self.ledger.signing_key() is not None:
            new = LocalSigner(f"key-{self.count}")
            self.count += 1
            self.ledger.announce_key(self.signer, new, 1)
            self.signer = new

    @invariant()
    def the_database_is_never_ahead_of_the_model(self) -> None:
        if hasattr(self, "ledger"):
            assert set(self.found()) <= set(self.acknowledged)

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        try:
            self.crash()
            self.tick()
            self.check()
        finally:
            self.spool.stop()
            self.db.stop()
            self.folder.cleanup()

    def check(self) -> None:
        found = self.found()
        assert sorted(self.acknowledged) == sorted(found)
        self.check_sources()
        estate = self.ledger.records(self.ids["estate"], kind="signing_key")
        history = [one.parts.public_fields() for one in estate]
        keys = accepted_keys(verifier_of(self.first_signer), history, ORIGIN)
        ticks = self.ledger.ticks()
        last = open_checkpoint(self.ledger.checkpoint(ticks[-1].tick), keys, ORIGIN)
        for tick in ticks:
            checkpoint = open_checkpoint(self.ledger.checkpoint(tick.tick), keys, ORIGIN)
            proof = self.ledger.tick_consistency(checkpoint.size, last.size)
            merkle.verify_consistency(checkpoint.size, last.size, checkpoint.root, last.root, proof)
            leaf, path = (
                scopemap.tick_leaf(tick.map_root, tick.tick),
                self.ledger.tick_proof(tick.tick, last.size),
            )
            merkle.verify_inclusion(leaf, tick.tick, last.size, path, last.root)
        for scope_id in self.ids.values():
            first, final = (self.ledger.map_proof(one.tick, scope_id) for one in (ticks[0], ticks[-1]))
            scopemap.verify_map(scope_id, first.head, first.siblings, ticks[0].map_root)
            scopemap.verify_map(scope_id, final.head, final.siblings, ticks[-1].map_root)
            begin, leaves = (
                self.ledger.frontier(scope_id, first.head.size),
                self.ledger.leaves(scope_id, first.head.size, final.head.size),
            )
            merkle.verify_range(begin, leaves, first.head.root, final.head.size, final.head.root)

    def check_sources(self) -> None:
        by_source: dict[str, list[int]] = {}
        for scope_id in self.ids.values():
            for record in self.ledger.records(scope_id):
                header = record.parts.header_fields()
                by_source.setdefault(header["source"], []).append(int(header["source_seq"]))
        for numbers in by_source.values():
            assert list(range(len(numbers))) == sorted(numbers)

    def found(self) -> list[str]:
        return [
            record.parts.public_fields()["decision_id"]
            for scope_id in self.ids.values()
            for record in self.ledger.records(scope_id, kind="decision")
        ]

    def name(self) -> str:
        self.count += 1
        return f"d{self.count}"


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
