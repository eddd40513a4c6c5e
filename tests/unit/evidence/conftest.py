"""A database with a ledger, drafts of a kind that only tests declare, and what is synced to disk."""

from __future__ import annotations

import os
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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Paths of all that is synced, in order."""
    seen: list[Path] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen
