"""The journal: what was intended, written before anything is done (rotation.md section 4).

Every write is one transaction that is conditional on the writer's lease term, holds the rotation's new state,
the operations that it orders and the records that evidence it, or nothing at all. What is delivered was
journalled; what was journalled is delivered by any replica until it is acknowledged or cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, text

from evidence import outbox
from evidence.canonical import canonical
from evidence.records import Draft
from evidence.store import Database
from keymgmt.lease import Term, fence
from keymgmt.operations import Ack, Operation, OpKind
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
    """Everything one reconcile pass looks at, read in one snapshot."""

    entry: LinkEntry
    open: Rotation | None
    operations: Mapping[str, OpEntry]
    request: Request | None
    open_elsewhere: frozenset[str]


@dataclass(frozen=True, slots=True)
class Save:
    """One journal write: all of it or nothing."""

    state: Rotation
    entry: LinkEntry | None = None
    operations: Sequence[OpEntry] = ()
    cancel: Sequence[str] = ()
    drafts: Sequence[Draft] = ()
    request: str | None = None
    purge: bool = False


class Journal:
    """Reads and conditional writes over the tables of key management."""

    def __init__(self, database: Database, *, time_to_act_ms: int) -> None:
        self.database = database
        self._time_to_act_ms = time_to_act_ms

    async def load(self, link: str) -> Loaded:
        """One link's rows as one snapshot."""
        return await self.database.read(lambda conn: _load(conn, link))

    async def save(self, term: Term, save: Save, now_ns: int) -> None:
        """Write one step.

        Raises:
            StaleLease: `term` no longer leads; nothing was written.
        """
        await self.database.write(lambda conn: self._save(conn, term, save, now_ns))

    def _save(self, conn: Connection, term: Term, save: Save, now_ns: int) -> None:
        fence(conn, term)
        _put_rotation(conn, term, save.state, now_ns)
        if save.entry is not None:
            _put_entry(conn, save.entry)
        for op_id in save.cancel:
            conn.execute(_CANCEL, {"op_id": op_id})
        for entry in save.operations:
            _put_operation(conn, term, entry, save.state.rotation, now_ns)
        if save.purge:
            conn.execute(_PURGE, {"rotation": save.state.rotation})
        if save.request is not None:
            conn.execute(_ANSWER, {"rotation": save.request, "answer": "started"})
        for draft in save.drafts:
            outbox.put(conn, draft, now_ns=now_ns)

    async def adopt(self, term: Term) -> int:
        """Take over pending operations of an earlier term: same id, new token, new place in the sequence."""
        return await self.database.write(lambda conn: _adopt(conn, term))

    async def reopen(self, term: Term, op_ids: Sequence[str]) -> None:
        """Order anew what an agent's fence or clock turned away unseen: same id, new place."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            for op_id in op_ids:
                link = conn.execute(_REOPEN, {"op_id": op_id}).scalar()
                if link is not None:
                    params = {"op_id": op_id, "token": term.token, "holder": term.holder}
                    conn.execute(_ADOPT, params | {"op_seq": _next_seq(conn, link)})

        await self.database.write(change)

    async def raise_sequence(self, term: Term, link: str, above: int) -> None:
        """Continue a link's sequence above what an agent reported, and give pending operations new places."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            _ensure(conn, link)
            conn.execute(_RAISE_SEQ, {"link": link, "above": above})
            _renumber(conn, term, link)

        await self.database.write(change)

    async def ask(self, request: Request, now_ns: int) -> bool:
        """Note a demanded rotation; False when one already waits or is open on this link."""

        def change(conn: Connection) -> bool:
            waiting = conn.execute(_WAITING, {"link": request.link}).first()
            busy = conn.execute(_OPEN, {"link": request.link}).first()
            if waiting is not None or busy is not None:
                return False
            conn.execute(_ASK, {"rotation": request.rotation, "link": request.link} | _asked(request, now_ns))
            return True

        return await self.database.write(change)

    async def refuse(self, term: Term, rotation: str) -> None:
        """Answer a demanded rotation that cannot start."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            conn.execute(_ANSWER, {"rotation": rotation, "answer": "refused"})

        await self.database.write(change)

    async def write_entry(self, term: Term, entry: LinkEntry) -> None:
        """Write a link's standing alone (a dead SecY noticed between rotations)."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            _put_entry(conn, entry)

        await self.database.write(change)

    async def pending(self, agent: str, poll_nonce: str, most: int) -> list[Operation]:
        """Operations to hand to an agent, oldest first, each quoting the poll that it answers."""
        rows = await self.database.read(
            lambda conn: conn.execute(_PENDING, {"agent": agent, "most": most}).mappings().all()
        )
        return [self._operation(row, poll_nonce) for row in rows]

    def _operation(self, row: RowMapping, poll_nonce: str) -> Operation:
        return Operation(
            op_id=row["op_id"],
            link=row["link"],
            kind=OpKind(row["kind"]),
            token=row["token"],
            holder=row["holder"],
            op_seq=row["op_seq"],
            poll_nonce=poll_nonce,
            time_to_act_ms=self._time_to_act_ms,
            rotation=row["rotation"],
            params=json.loads(row["params"]),
        )

    async def acknowledge(self, agent: str, acks: Sequence[Ack], now_ns: int) -> list[tuple[str, Ack]]:
        """Store what an agent reported; returns (link, ack) of those that were awaited.

        The id alone names the operation: a repeat after a change of conductor quotes the older token.
        """

        def change(conn: Connection) -> list[tuple[str, Ack]]:
            taken = []
            for ack in acks:
                link = _store_ack(conn, agent, ack, now_ns)
                if link is not None:
                    taken.append((link, ack))
            return taken

        return await self.database.write(change) if acks else []

    async def note_agent(
        self, *, agent: str, link: str, endpoint: str, digest: str, not_after_ns: int, now_ns: int
    ) -> None:
        """Record an agent's certificate the first time it is seen."""

        def change(conn: Connection) -> None:
            known = conn.execute(_AGENT, {"agent": agent}).scalar()
            if known == digest:
                return
            row = {"agent": agent, "link": link, "endpoint": endpoint, "digest": digest}
            conn.execute(_PUT_AGENT, row | {"not_after_ns": not_after_ns, "now_ns": now_ns})
            public = {"agent": agent, "link": link, "endpoint": endpoint, "certificate_digest": digest}
            public |= {"method": "approle" if known is None else "renewal", "not_after": str(not_after_ns)}
            outbox.put(conn, Draft("agent_enrolled", "estate", "hub", now_ns, public), now_ns=now_ns)

        await self.database.write(change)

    async def recent(self, link: str, most: int = 10) -> list[Rotation]:
        """The newest rotations of a link, newest first."""
        rows = await self.database.read(
            lambda conn: conn.execute(_RECENT, {"link": link, "most": most}).scalars().all()
        )
        return [Rotation.from_json(json.loads(row)) for row in rows]


def _load(conn: Connection, link: str) -> Loaded:
    row = conn.execute(_OPEN, {"link": link}).scalar()
    state = Rotation.from_json(json.loads(row)) if row is not None else None
    operations = {}
    if state is not None:
        found = conn.execute(_OF_ROTATION, {"rotation": state.rotation}).mappings()
        operations = {entry.op_id: entry for entry in map(_entry, found)}
    asked = conn.execute(_WAITING, {"link": link}).mappings().first()
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


def _put_rotation(conn: Connection, term: Term, state: Rotation, now_ns: int) -> None:
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


def _put_entry(conn: Connection, entry: LinkEntry) -> None:
    _ensure(conn, entry.link)
    params = {
        "link": entry.link,
        "live": canonical(dict(entry.live)).decode() if entry.live is not None else None,
        "failures": entry.failures,
        "retry_ns": entry.retry_ns,
        "last_end": entry.last_end,
        "last_why": entry.last_why,
    }
    conn.execute(_UPDATE_LINK, params)


def _put_operation(conn: Connection, term: Term, entry: OpEntry, rotation: str, now_ns: int) -> None:
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
        "op_seq": _next_seq(conn, entry.link),
        "created_ns": now_ns,
    }
    conn.execute(_INSERT_OPERATION, params)


def _ensure(conn: Connection, link: str) -> None:
    conn.execute(_CREATE_LINK, {"link": link})


def _next_seq(conn: Connection, link: str) -> int:
    _ensure(conn, link)
    return int(conn.execute(_NEXT_SEQ, {"link": link}).scalar_one())


def _adopt(conn: Connection, term: Term) -> int:
    fence(conn, term)
    links = conn.execute(_PENDING_LINKS).scalars().all()
    return sum(_renumber(conn, term, link) for link in links)


def _renumber(conn: Connection, term: Term, link: str) -> int:
    """Give a link's pending operations new places after all that was ever sent, in their order."""
    ids = conn.execute(_PENDING_OF, {"link": link}).scalars().all()
    for op_id in ids:
        seq = _next_seq(conn, link)
        params = {"op_id": op_id, "token": term.token, "holder": term.holder, "op_seq": seq}
        conn.execute(_ADOPT, params)
    return len(ids)


def _store_ack(conn: Connection, agent: str, ack: Ack, now_ns: int) -> str | None:
    why = "" if ack.error is None else f"{ack.error['code']}: {ack.error['detail']}"[:512]
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


def _asked(request: Request, now_ns: int) -> dict[str, Any]:
    return {"asked_by": request.asked_by, "asked_ns": now_ns}


_OPEN = text("SELECT state FROM rotation WHERE open_link = :link")
_OPEN_LINKS = text("SELECT open_link FROM rotation WHERE open_link IS NOT NULL")
_RECENT = text("SELECT state FROM rotation WHERE link = :link ORDER BY started_ns DESC LIMIT :most")
_OF_ROTATION = text("SELECT * FROM operation WHERE rotation = :rotation")
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
_RAISE_SEQ = text("UPDATE keyed_link SET op_seq = :above WHERE link = :link AND op_seq < :above")
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
_CANCEL = text("UPDATE operation SET status = 'cancelled' WHERE op_id = :op_id AND status = 'pending'")
_PURGE = text("UPDATE operation SET params = '{}' WHERE rotation = :rotation AND kind = 'install'")
_PENDING = text(
    "SELECT * FROM operation WHERE agent = :agent AND status = 'pending' ORDER BY op_seq LIMIT :most"
)
_PENDING_LINKS = text("SELECT DISTINCT link FROM operation WHERE status = 'pending'")
_PENDING_OF = text("SELECT op_id FROM operation WHERE link = :link AND status = 'pending' ORDER BY op_seq")
_ADOPT = text("UPDATE operation SET token = :token, holder = :holder, op_seq = :op_seq WHERE op_id = :op_id")
_REOPEN = text(
    "UPDATE operation SET status = 'pending', result = NULL, why = '', acked_ns = NULL"
    " WHERE op_id = :op_id AND status = 'refused' RETURNING link"
)
_ACK = text(
    "UPDATE operation SET status = :status, result = :result, why = :why, acked_ns = :acked_ns"
    " WHERE op_id = :op_id AND agent = :agent AND status = 'pending' RETURNING link"
)
_AGENT = text("SELECT certificate_digest FROM agent WHERE agent = :agent")
_PUT_AGENT = text(
    "INSERT INTO agent (agent, link, endpoint, certificate_digest, not_after_ns, first_seen_ns)"
    " VALUES (:agent, :link, :endpoint, :digest, :not_after_ns, :now_ns)"
    " ON CONFLICT (agent) DO UPDATE SET link = excluded.link, endpoint = excluded.endpoint,"
    " certificate_digest = excluded.certificate_digest, not_after_ns = excluded.not_after_ns"
)
_WAITING = text(
    "SELECT rotation, link, asked_by FROM rotate_request WHERE link = :link AND answer = 'waiting'"
    " ORDER BY asked_ns LIMIT 1"
)
_ASK = text(
    "INSERT INTO rotate_request (rotation, link, asked_by, asked_ns, answer)"
    " VALUES (:rotation, :link, :asked_by, :asked_ns, 'waiting')"
)
_ANSWER = text("UPDATE rotate_request SET answer = :answer WHERE rotation = :rotation")
