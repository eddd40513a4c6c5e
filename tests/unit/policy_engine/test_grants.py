"""Grants and tokens in a database: whose they are."""

import pytest

from evidence.database import Database
from policy_engine import grants
from policy_engine.errors import NotFound
from policy_engine.grants import Principal

NOW = 1_800_000_000_000_000_000


def test_the_same_name_of_another_issuer_is_somebody_else(tmp_path):
    database = Database(tmp_path / "grants.db")
    database.start()
    database.create_all()
    mine, other = (Principal(issuer, "ann", ()) for issuer in ("local", "https://login.example.com"))

    def listed(principal):
        return database.read_sync(lambda conn: [row["id"] for row in grants.list_tokens(conn, principal)])

    def revoke(token_id, owner):
        database.write_sync(lambda conn: grants.revoke_token(conn, token_id, owner=owner, now_ns=NOW))

    try:
        issued = database.write_sync(
            lambda conn: grants.issue_token(conn, "local", "ann", label="", by="t", now_ns=NOW, days=1)
        )
        assert ([issued.id], []) == (listed(mine), listed(other))
        with pytest.raises(NotFound):
            revoke(issued.id, other)
        revoke(issued.id, mine)
    finally:
        database.stop()
