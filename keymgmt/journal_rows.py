"""Rows of the journal: SQL that SQLite and PostgreSQL both take, and what its rows mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from evidence.canonical import canonical
from evidence.records import Draft
from keymgmt.lease import Term
from keymgmt.operations import Ack
from keymgmt.rotation import Rotation


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One journalled operation and what became of it."""

    op_id: str
    link: str
    agent: str
    side: str
    kind: str
    params: Mapping[str, Any] = field(repr=False)
    status: str = "pending"
    result: Mapping[str, Any] = field(default_factory=dict, repr=False)
    why: str = ""
    created_ns: int = 0


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """The standing of one link between rotations.

    Attributes:
        live: {"an", "key_ids": {side: {tx, rx}}, "secy": {side: id}, "born_ns", "rotation"}; None before the
            first key and after a SecY died.
    """

    link: str
    live: Mapping[str, Any] | None = None
    failures: int = 0
    retry_ns: int = 0
    last_end: str | None = None
    last_why: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A rotation that somebody asked for."""

    rotation: str
    link: str
    asked_by: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything one reconcile pass looks at, read in one snapshot.

    Attributes:
        operations: of the open rotation's present step; what it left pending is cancelled as it is left.
        open_elsewhere: the other links with an open rotation.
    """

    entry: LinkEntry
    open: Rotation | None
    operations: Mapping[str, OpEntry]
    request: Request | None
    open_elsewhere: frozenset[str]


@dataclass(frozen=True, slots=True)
class Save:
    """One journal write: all of it or nothing.

    Attributes:
        purge: take the ciphertext out of the operations.
        apart: links of which none may have an open rotation when this one begins.
    """

    state: Rotation
    entry: LinkEntry | None = None
    operations: Sequence[OpEntry] = ()
    cancel: Sequence[str] = ()
    drafts: Sequence[Draft] = ()
    request: str | None = None
    purge: bool = False
    apart: frozenset[str] = frozenset()


def load(conn: Connection, link: str) -> Loaded:
    """One link's rows."""
    row = conn.execute(OPEN, {"link": link}).scalar()
    state = Rotation.from_json(json.loads(row)) if row is not None else None
    operations = {}
    if state is not None:
        present = state.command_id("")
        params = {"rotation": state.rotation, "present": present, "length": len(present)}
        found = conn.execute(_LOOKED_AT, params).mappings()
        operations = {entry.op_id: entry for entry in map(_entry, found)}
    asked = conn.execute(WAITING, {"link": link}).mappings().first()
    request = Request(asked["rotation"], asked["link"], asked["asked_by"]) if asked is not None else None
    others = frozenset(conn.execute(_OPEN_LINKS).scalars().all()) - {link}
    return Loaded(_link_entry(conn, link), state, operations, request, others)


def _link_entry(conn: Connection, link: str) -> LinkEntry:
    row = conn.execute(_LINK, {"link": link}).mappings().first()
    if row is None:
        return LinkEntry(link)
    live = json.loads(row["live"]) if row["live"] is not None else None
    return LinkEntry(link, live, row["failures"], row["retry_ns"], row["last_end"], row["last_why"])


def _entry(row: RowMapping) -> OpEntry:
    return OpEntry(
        op_id=row["op_id"],
        link=row["link"],
        agent=row["agent"],
        side=row["side"],
        kind=row["kind"],
        params=json.loads(row["params"]),
        status=row["status"],
        result=json.loads(row["result"]) if row["result"] is not None else {},
        why=row["why"],
        created_ns=row["created_ns"],
    )


def put_rotation(conn: Connection, term: Term, state: Rotation, now_ns: int) -> None:
    """Write a rotation's state; its link is free again once it ended."""
    params = {
        "rotation": state.rotation,
        "link": state.link,
        "open_link": None if state.end is not None else state.link,
        "kind": state.kind,
        "step": state.step,
        "state": canonical(state.to_json()).decode(),
        "ended": state.end,
        "started_ns": state.started_ns,
        "updated_ns": now_ns,
        "token": term.token,
    }
    conn.execute(_UPSERT_ROTATION, params)


def put_entry(conn: Connection, entry: LinkEntry) -> None:
    """Write a link's standing."""
    ensure(conn, entry.link)
    params = {
        "link": entry.link,
        "live": canonical(dict(entry.live)).decode() if entry.live is not None else None,
        "failures": entry.failures,
        "retry_ns": entry.retry_ns,
        "last_end": entry.last_end,
        "last_why": entry.last_why,
    }
    conn.execute(_UPDATE_LINK, params)


def put_operation(conn: Connection, term: Term, entry: OpEntry, rotation: str, now_ns: int) -> None:
    """Insert an operation once: a repeated pass finds it there and changes nothing."""
    if conn.execute(_KNOWN, {"op_id": entry.op_id}).first() is not None:
        return
    params = {
        "op_id": entry.op_id,
        "link": entry.link,
        "agent": entry.agent,
        "side": entry.side,
        "rotation": rotation,
        "kind": entry.kind,
        "params": canonical(dict(entry.params)).decode(),
        "token": term.token,
        "holder": term.holder,
        "op_seq": next_seq(conn, entry.link),
        "created_ns": now_ns,
    }
    conn.execute(_INSERT_OPERATION, params)


def ensure(conn: Connection, link: str) -> None:
    """Make a link's row."""
    conn.execute(_CREATE_LINK, {"link": link})


def next_seq(conn: Connection, link: str) -> int:
    """The next place in a link's sequence."""
    ensure(conn, link)
    return int(conn.execute(_NEXT_SEQ, {"link": link}).scalar_one())


def adopt(conn: Connection, term: Term) -> int:
    """Give all pending operations to a new term."""
    links = conn.execute(_PENDING_LINKS).scalars().all()
    return sum(renumber(conn, term, link) for link in links)


def renumber(conn: Connection, term: Term, link: str) -> int:
    """Give a link's pending operations new places after all that was ever sent, in their order."""
    ids = conn.execute(_PENDING_OF, {"link": link}).scalars().all()
    for op_id in ids:
        seq = next_seq(conn, link)
        params = {"op_id": op_id, "token": term.token, "holder": term.holder, "op_seq": seq}
        conn.execute(ADOPT, params)
    return len(ids)


def store_ack(conn: Connection, agent: str, ack: Ack, now_ns: int) -> str | None:
    """Store a report; the link when it was awaited, else None."""
    why = "" if ack.error is None else f"{ack.error['code']}: {ack.error['detail']}"[:512]
    why = why.replace("\0", "?")  # PostgreSQL's TEXT holds none
    params = {
        "op_id": ack.op_id,
        "agent": agent,
        "status": str(ack.status),
        "result": canonical(dict(ack.result)).decode(),
        "why": why,
        "acked_ns": now_ns,
    }
    found = conn.execute(_ACK, params).scalar()
    return str(found) if found is not None else None


OPEN = text("SELECT state FROM rotation WHERE open_link = :link")
_OPEN_LINKS = text("SELECT open_link FROM rotation WHERE open_link IS NOT NULL")
RECENT = text("SELECT state FROM rotation WHERE link = :link ORDER BY started_ns DESC LIMIT :most")
_LOOKED_AT = text(
    "SELECT * FROM operation WHERE rotation = :rotation AND substr(op_id, 1, :length) = :present"
)
_LINK = text("SELECT * FROM keyed_link WHERE link = :link")
_CREATE_LINK = text(
    "INSERT INTO keyed_link (link, op_seq, failures, retry_ns) VALUES (:link, 0, 0, 0)"
    " ON CONFLICT (link) DO NOTHING"
)
_UPDATE_LINK = text(
    "UPDATE keyed_link SET live = :live, failures = :failures, retry_ns = :retry_ns, last_end = :last_end,"
    " last_why = :last_why WHERE link = :link"
)
_NEXT_SEQ = text("UPDATE keyed_link SET op_seq = op_seq + 1 WHERE link = :link RETURNING op_seq")
RAISE_SEQ = text("UPDATE keyed_link SET op_seq = :above WHERE link = :link AND op_seq < :above")
_UPSERT_ROTATION = text(
    "INSERT INTO rotation"
    " (rotation, link, open_link, kind, step, state, ended, started_ns, updated_ns, token)"
    " VALUES (:rotation, :link, :open_link, :kind, :step, :state, :ended, :started_ns, :updated_ns, :token)"
    " ON CONFLICT (rotation) DO UPDATE SET open_link = excluded.open_link, step = excluded.step,"
    " state = excluded.state, ended = excluded.ended, updated_ns = excluded.updated_ns,"
    " token = excluded.token"
)
_INSERT_OPERATION = text(
    "INSERT INTO operation (op_id, link, agent, side, rotation, kind, params, token, holder, op_seq, status,"
    " why, created_ns) VALUES (:op_id, :link, :agent, :side, :rotation, :kind, :params, :token, :holder,"
    " :op_seq, 'pending', '', :created_ns)"
)
_KNOWN = text("SELECT op_id FROM operation WHERE op_id = :op_id")
CANCEL = text("UPDATE operation SET status = 'cancelled' WHERE op_id = :op_id AND status = 'pending'")
PURGE = text(
    "UPDATE operation SET params = '{}' WHERE rotation = :rotation AND kind = 'install' AND params <> '{}'"
)
PENDING = text(
    "SELECT * FROM operation WHERE agent = :agent AND status = 'pending'"
    " AND token = (SELECT token FROM conductor_lease WHERE name = 'conductor')"
    " ORDER BY op_seq LIMIT :most"
)
PRUNE = text(
    "DELETE FROM operation WHERE rotation = :rotation AND kind = 'read' AND status <> 'pending'"
    " AND substr(op_id, 1, :length) <> :present"
)
_PENDING_LINKS = text("SELECT DISTINCT link FROM operation WHERE status = 'pending'")
_PENDING_OF = text("SELECT op_id FROM operation WHERE link = :link AND status = 'pending' ORDER BY op_seq")
ADOPT = text("UPDATE operation SET token = :token, holder = :holder, op_seq = :op_seq WHERE op_id = :op_id")
REOPEN = text(
    "UPDATE operation SET status = 'pending', result = NULL, why = '', acked_ns = NULL"
    " WHERE op_id = :op_id AND status = 'refused' RETURNING link"
)
_ACK = text(
    "UPDATE operation SET status = :status, result = :result, why = :why, acked_ns = :acked_ns"
    " WHERE op_id = :op_id AND agent = :agent AND status = 'pending' RETURNING link"
)
AGENT = text("SELECT certificate_digest FROM agent WHERE agent = :agent")
PUT_AGENT = text(
    "INSERT INTO agent (agent, link, endpoint, certificate_digest, not_after_ns, first_seen_ns)"
    " VALUES (:agent, :link, :endpoint, :digest, :not_after_ns, :now_ns)"
    " ON CONFLICT (agent) DO UPDATE SET link = excluded.link, endpoint = excluded.endpoint,"
    " certificate_digest = excluded.certificate_digest, not_after_ns = excluded.not_after_ns"
)
WAITING = text(
    "SELECT rotation, link, asked_by FROM rotate_request WHERE link = :link AND answer = 'waiting'"
    " ORDER BY asked_ns LIMIT 1"
)
ASK = text(
    "INSERT INTO rotate_request (rotation, link, asked_by, asked_ns, answer)"
    " VALUES (:rotation, :link, :asked_by, :asked_ns, 'waiting')"
)
LOCK = text("UPDATE keyed_link SET op_seq = op_seq WHERE link = :link")  # where writers are many
ANSWER = text("UPDATE rotate_request SET answer = :answer WHERE rotation = :rotation")
