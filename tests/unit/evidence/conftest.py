"""A database with a ledger, and drafts of a kind that only tests declare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_world import ORIGIN

from evidence.checkpoint import LocalSigner
from evidence.database import Database
from evidence.kinds import KINDS, Kind
from evidence.ledger import Ledger


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "evidence.db")
    database.start()
    database.create_all()
    yield database
    database.stop()


@pytest.fixture
def ledger(db: Database, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setitem(KINDS, "note", Kind(1, frozenset({"text"}), frozenset({"secret_text"})))
    opened = Ledger.open(db, ORIGIN)
    opened.ensure_scopes("acme", "globex")
    return opened


@pytest.fixture
def signer() -> LocalSigner:
    return LocalSigner("sluicegate.io/test")
