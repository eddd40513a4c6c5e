"""Migrations give exactly the declared tables, and can go back and forth."""

import sqlite3

import pytest

from policy_engine import migrations
from policy_engine.migrations import check


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'm.db'}"


def schema(url):
    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        rows = db.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
        ).fetchall()
    return [row for row in rows if row[1] != "alembic_version"]


def test_migrations_give_the_declared_tables():
    assert 0 == check.main()


def test_upgrade_downgrade_upgrade(url):
    migrations.upgrade(url)
    first = schema(url)
    assert first
    assert migrations.head() == migrations.current(url)
    migrations.downgrade(url, "base")
    assert [] == schema(url)
    migrations.upgrade(url)
    assert first == schema(url)


def test_upgrading_twice_changes_nothing(url):
    migrations.upgrade(url)
    before = schema(url)
    migrations.upgrade(url)
    assert before == schema(url)


def test_every_constraint_has_a_name(url):
    migrations.upgrade(url)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        sql = [row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE type='table'") if row[0]]
    unnamed = [
        line.strip()
        for text in sql
        if "alembic_version" not in text
        for line in text.splitlines()
        if line.strip().startswith(("PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY"))
    ]
    assert [] == unnamed


def test_a_database_that_was_never_migrated_says_so(url):
    assert migrations.current(url) is None
