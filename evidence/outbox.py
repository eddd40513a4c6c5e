"""The outbox: a record put in the caller's own transaction, appended to the ledger later, exactly once.

Rotation journal, lease and gate write their rows and `put` in one transaction; so there is no state without
its record and no record without its state (decide.md section 4). The record is complete when it is put:
refused drafts fail the caller's transaction.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.engine import Connection

from evidence.database import Database
from evidence.errors import PutBefore
from evidence.records import SALTS_OCTETS, Draft, encode
from evidence.store import scope_id

BOOT_ID = secrets.token_hex(8)  # this start of the process
PREFIX = "outbox:"  # a source's name in `ledger_spool` is this prefix and the source


def put(conn: Connection, draft: Draft, *, now_ns: int | None = None) -> str:
    """Put a record into the outbox inside the caller's write transaction.

    Args:
        conn: Connection of `Database.write`.
        draft: What to record; its header may bring an `event_id`, else one is made.
        now_ns: Time of receipt; None is now.

    Returns:
        The event id.

    Raises:
        RecordRefused: Unknown kind or field.
        NotCanonical: A value outside the canonical domain.
    """
    event_id = str(draft.header.get("event_id") or secrets.token_hex(16))
    encoded = encode(
        replace(draft, header={**draft.header, "event_id": event_id}),
        scope_id=scope_id(conn, draft.scope),
        source_seq=(seq := _next_seq(conn, draft.source)),
        boot_id=BOOT_ID,
        received_time_ns=time.time_ns() if now_ns is None else now_ns,
        salts=os.urandom(SALTS_OCTETS),
    )
    conn.execute(_INSERT, {"source": draft.source, "seq": seq, "frame": encoded.frame})
    return event_id


def put_once(conn: Connection, drafts: Sequence[Draft], work: str, *, now_ns: int | None = None) -> None:
    """Put the records of one piece of work, and that it was done, in one transaction: exactly once.

    Args:
        conn: Connection of `Database.write`.
        drafts: What to record.
        work: Key of the work, derived from what went into it.
        now_ns: Time of receipt; None is now.

    Raises:
        PutBefore: The work was committed before; nothing was put.
    """
    if was_put(conn, work):
        raise PutBefore("these records were committed before")
    conn.execute(_DONE, {"work": work})
    for draft in drafts:
        put(conn, draft, now_ns=now_ns)


class Inbox:
    """Where a log's import or an attribution run commits its records, each piece of work once.

    Args:
        db: Started database with a ledger.
        now_ns: Time of receipt; None is now.
    """

    def __init__(self, db: Database, now_ns: int | None = None) -> None:
        self._db = db
        self._now_ns = now_ns

    def has(self, work: str) -> bool:
        """Whether a piece of work was committed."""
        return self._db.read_sync(lambda conn: was_put(conn, work))

    def commit(self, drafts: Sequence[Draft], work: str) -> None:
        """Commit a piece of work: its records and its key in one transaction.

        Raises:
            PutBefore: It was committed before.
        """
        self._db.write_sync(lambda conn: put_once(conn, drafts, work, now_ns=self._now_ns))


def was_put(conn: Connection, work: str) -> bool:
    """Whether a piece of work was committed by `put_once`."""
    return conn.execute(_WAS_DONE, {"work": work}).first() is not None


def _next_seq(conn: Connection, source: str) -> int:
    """Take the next gapless number of a source; the row is locked until the transaction ends."""
    taken = conn.execute(_TAKE, {"source": source}).scalar()
    if taken is not None:
        return int(taken) - 1
    conn.execute(_BEGIN, {"source": source})
    return 0


_DONE = text("INSERT INTO outbox_work (work) VALUES (:work)")
_WAS_DONE = text("SELECT work FROM outbox_work WHERE work = :work")
_INSERT = text("INSERT INTO outbox_entry (source, source_seq, frame) VALUES (:source, :seq, :frame)")
_TAKE = text("UPDATE outbox_source SET next_seq = next_seq + 1 WHERE source = :source RETURNING next_seq")
_BEGIN = text("INSERT INTO outbox_source (source, next_seq) VALUES (:source, 1)")
