"""Tables of the evidence package, and the naming convention of all tables.

Every table of the product stands in one metadata (`metadata`), whose constraints are named by convention so
that migrations can name them. 64-bit unsigned values are text; nanosecond times fit a signed BIGINT.

A record's id is `scope_no * 2^40 + seq`: one B-tree, in the order in which proofs read it. Leaf hashes are
not stored: they are computed from the stored octets whenever they are needed, so that a changed record can
never hide behind its old hash. Of the trees only every eighth level is kept.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, LargeBinary, UniqueConstraint
from sqlalchemy.engine import Connection
from sqlmodel import Field, SQLModel

from evidence.errors import NotInLedger, RecordRefused
from evidence.scope import new_scope_id

metadata = SQLModel.metadata
metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
SEQ_BITS = 40  # a scope holds up to 2^40 records
_BIG = BigInteger().with_variant(Integer(), "sqlite")  # INTEGER PRIMARY KEY is SQLite's row id


class LedgerLog(SQLModel, table=True):
    """The one tick log of this database: its origin, its signing key, its right edge."""

    __tablename__ = "ledger_log"
    __table_args__ = (CheckConstraint("id = 1", name="single"),)

    id: int = Field(default=1, primary_key=True)
    origin: str
    created_ns: int = Field(sa_type=BigInteger)
    size: int = Field(default=0, sa_type=BigInteger)
    frontier: bytes = Field(default=b"", sa_type=LargeBinary)
    key_name: str | None = None
    key_public: bytes | None = Field(default=None, sa_type=LargeBinary)


class LedgerScope(SQLModel, table=True):
    """A scope and the right edge of its tree. Number 0 is kept for the tick log."""

    __tablename__ = "ledger_scope"
    __table_args__ = (CheckConstraint("no > 0", name="positive"), CheckConstraint("size >= 0", name="size"))

    no: int | None = Field(default=None, primary_key=True)
    id: str = Field(unique=True)
    name: str = Field(unique=True)
    created_ns: int = Field(sa_type=BigInteger)
    size: int = Field(default=0, sa_type=BigInteger)
    frontier: bytes = Field(default=b"", sa_type=LargeBinary)


class LedgerSpool(SQLModel, table=True):
    """How far each spool (or outbox source) is in the ledger: the last sequence number, -1 for none."""

    __tablename__ = "ledger_spool"
    __table_args__ = (CheckConstraint("high_water >= -1", name="high_water"),)

    no: int | None = Field(default=None, primary_key=True)
    spool_id: str = Field(unique=True)
    high_water: int = Field(default=-1, sa_type=BigInteger)


class LedgerRecord(SQLModel, table=True):
    """A record: the frame as its author made it, and what queries need."""

    __tablename__ = "ledger_record"
    __table_args__ = (UniqueConstraint("spool_no", "spool_seq"),)

    id: int = Field(sa_column=Column(_BIG, primary_key=True, autoincrement=False))
    spool_no: int
    spool_seq: int = Field(sa_type=BigInteger)
    kind: str
    event_time: int | None = Field(default=None, sa_type=BigInteger)
    received_time: int = Field(sa_type=BigInteger)
    frame: bytes = Field(sa_type=LargeBinary)


class LedgerNode(SQLModel, table=True):
    """A kept tree node: root of a perfect subtree. `scope_no` 0 is the tick log."""

    __tablename__ = "ledger_node"

    scope_no: int = Field(primary_key=True)
    level: int = Field(primary_key=True)
    position: int = Field(primary_key=True, sa_type=BigInteger)
    hash: bytes = Field(sa_type=LargeBinary)


class LedgerTick(SQLModel, table=True):
    """A leaf of the tick log; `note` is null until the checkpoint is signed."""

    __tablename__ = "ledger_tick"

    tick: int = Field(sa_column=Column(_BIG, primary_key=True, autoincrement=False))
    time_ns: int = Field(sa_type=BigInteger)
    map_root: bytes = Field(sa_type=LargeBinary)
    root: bytes = Field(sa_type=LargeBinary)
    note: bytes | None = Field(default=None, sa_type=LargeBinary)


class LedgerTickHead(SQLModel, table=True):
    """A head that changed at a tick; unchanged heads are those of the latest earlier tick."""

    __tablename__ = "ledger_tick_head"

    scope_no: int = Field(primary_key=True, foreign_key="ledger_scope.no")
    tick: int = Field(primary_key=True, sa_type=BigInteger)
    size: int = Field(sa_type=BigInteger)
    root: bytes = Field(sa_type=LargeBinary)


class OutboxSource(SQLModel, table=True):
    """Next gapless number of each source that writes through the outbox."""

    __tablename__ = "outbox_source"

    source: str = Field(primary_key=True)
    next_seq: int = Field(default=0, sa_type=BigInteger)


class OutboxEntry(SQLModel, table=True):
    """A complete record that waits for the sequencer; deleted in the transaction that appends it."""

    __tablename__ = "outbox_entry"
    __table_args__ = (UniqueConstraint("source", "source_seq"),)

    id: int | None = Field(default=None, sa_column=Column(_BIG, primary_key=True, autoincrement=True))
    source: str
    source_seq: int = Field(sa_type=BigInteger)
    frame: bytes = Field(sa_type=LargeBinary)


class OutboxWork(SQLModel, table=True):
    """Pieces of work whose records were put, in the same transaction: none is put twice."""

    __tablename__ = "outbox_work"

    work: str = Field(primary_key=True)


def driver_sql(conn: Connection, statement: str) -> str:
    """Return a statement written with "?" marks in the driver's own parameter style."""
    return statement if conn.dialect.paramstyle == "qmark" else statement.replace("?", "%s")


def scope_id(conn: Connection, name: str) -> str:
    """Return the id of a scope by name, creating the scope at first use.

    Args:
        conn: Connection in a write transaction.
        name: `estate` or a tenant's name.

    Raises:
        RecordRefused: Not a usable name.
    """
    table: Any = LedgerScope.__table__  # type: ignore[attr-defined]
    found = conn.execute(table.select().where(table.c.name == name)).first()
    if found is not None:
        return str(found.id)
    if not name or len(name) > 253 or not name.isprintable():
        raise RecordRefused("a scope name is 1 to 253 printable characters")
    fresh = new_scope_id()
    conn.execute(table.insert().values(id=fresh, name=name, created_ns=time.time_ns(), size=0, frontier=b""))
    return fresh


def find_scope(conn: Connection, name: str) -> str:
    """Return the id of an existing scope by name.

    Raises:
        NotInLedger: No such scope.
    """
    table: Any = LedgerScope.__table__  # type: ignore[attr-defined]
    found = conn.execute(table.select().where(table.c.name == name)).first()
    if found is None:
        raise NotInLedger(f"no scope named {name!r} in this ledger")
    return str(found.id)


def scopes(conn: Connection) -> dict[str, str]:
    """Return all scopes, name -> id."""
    rows = conn.exec_driver_sql("SELECT name, id FROM ledger_scope ORDER BY no")
    return {str(name): str(identity) for name, identity in rows}
