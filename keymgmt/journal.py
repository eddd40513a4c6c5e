"""The journal: what was intended, written before anything is done (rotation.md section 4).

Every write is one transaction that is conditional on the writer's lease term, holds the rotation's new state,
the operations that it orders and the records that evidence it, or nothing at all. What is delivered was
journalled; what was journalled is delivered by any replica until it is acknowledged or cancelled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Connection, RowMapping

from evidence import outbox
from evidence.database import Database
from evidence.records import Draft
from keymgmt import journal_rows as sql
from keymgmt.errors import RotationRefused
from keymgmt.journal_rows import Loaded, Request, Save
from keymgmt.lease import Term, fence
from keymgmt.operations import Ack, Operation, OpKind
from keymgmt.rotation import Rotation


class Journal:
    """Reads and conditional writes over the tables of key management."""

    def __init__(self, database: Database, *, time_to_act_ms: int) -> None:
        self.database = database
        self._time_to_act_ms = time_to_act_ms

    async def load(self, link: str) -> Loaded:
        """One link's rows as one snapshot."""
        return await self.database.read(lambda conn: sql.load(conn, link))

    async def save(self, term: Term, save: Save, now_ns: int) -> None:
        """Write one step.

        Raises:
            StaleLease: `term` no longer leads; nothing was written.
            RotationRefused: a rotation began on the diverse partner; nothing was written.
        """
        await self.database.write(lambda conn: self._save(conn, term, save, now_ns))

    def _save(self, conn: Connection, term: Term, save: Save, now_ns: int) -> None:
        fence(conn, term)
        for link in sorted(save.apart):
            if conn.execute(sql.OPEN, {"link": link}).first() is not None:
                raise RotationRefused(f"a rotation is open on the diverse partner {link}")
        sql.put_rotation(conn, term, save.state, now_ns)
        if save.entry is not None:
            sql.put_entry(conn, save.entry)
        for op_id in save.cancel:
            conn.execute(sql.CANCEL, {"op_id": op_id})
        for entry in save.operations:
            sql.put_operation(conn, term, entry, save.state.rotation, now_ns)
        # What polling steps have read is in the state already; only the present step's is still looked at.
        present = save.state.command_id("")
        conn.execute(sql.PRUNE, {"rotation": save.state.rotation, "present": present, "length": len(present)})
        if save.purge:
            conn.execute(sql.PURGE, {"rotation": save.state.rotation})
        if save.request is not None:
            conn.execute(sql.ANSWER, {"rotation": save.request, "answer": "started"})
        for draft in save.drafts:
            outbox.put(conn, draft, now_ns=now_ns)

    async def adopt(self, term: Term) -> int:
        """Take over pending operations of an earlier term: same id, new token, new place in the sequence."""

        def change(conn: Connection) -> int:
            fence(conn, term)
            return sql.adopt(conn, term)

        return await self.database.write(change)

    async def reopen(self, term: Term, op_ids: Sequence[str]) -> None:
        """Order anew what an agent's fence or clock turned away unseen: same id, new place."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            for op_id in op_ids:
                link = conn.execute(sql.REOPEN, {"op_id": op_id}).scalar()
                if link is not None:
                    params = {"op_id": op_id, "token": term.token, "holder": term.holder}
                    conn.execute(sql.ADOPT, params | {"op_seq": sql.next_seq(conn, link)})

        await self.database.write(change)

    async def raise_sequence(self, term: Term, link: str, above: int) -> None:
        """Continue a link's sequence above what an agent reported, and give pending operations new places."""

        def change(conn: Connection) -> None:
            fence(conn, term)
            sql.ensure(conn, link)
            conn.execute(sql.RAISE_SEQ, {"link": link, "above": above})
            sql.renumber(conn, term, link)

        await self.database.write(change)

    async def ask(self, request: Request, now_ns: int) -> bool:
        """Note a demanded rotation; False when one already waits or is open on this link."""

        def change(conn: Connection) -> bool:
            sql.ensure(conn, request.link)
            conn.execute(sql.LOCK, {"link": request.link})
            waiting = conn.execute(sql.WAITING, {"link": request.link}).first()
            busy = conn.execute(sql.OPEN, {"link": request.link}).first()
            if waiting is not None or busy is not None:
                return False
            conn.execute(sql.ASK, asdict(request) | {"asked_ns": now_ns})
            return True

        return await self.database.write(change)

    async def pending(self, agent: str, poll_nonce: str, most: int, *, held_ms: int = 0) -> list[Operation]:
        """Operations of the present term for an agent, oldest first, each quoting the poll that it answers.

        Args:
            agent: whose.
            poll_nonce: of the poll.
            most: how many.
            held_ms: how long the poll was held: the agent counts its time to act from when it sent it.
        """
        rows = await self.database.read(
            lambda conn: conn.execute(sql.PENDING, {"agent": agent, "most": most}).mappings().all()
        )
        return [self._operation(row, poll_nonce, self._time_to_act_ms + held_ms) for row in rows]

    @staticmethod
    def _operation(row: RowMapping, poll_nonce: str, time_to_act_ms: int) -> Operation:
        return Operation(
            op_id=row["op_id"],
            link=row["link"],
            kind=OpKind(row["kind"]),
            token=row["token"],
            holder=row["holder"],
            op_seq=row["op_seq"],
            poll_nonce=poll_nonce,
            time_to_act_ms=time_to_act_ms,
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
                link = sql.store_ack(conn, agent, ack, now_ns)
                if link is not None:
                    taken.append((link, ack))
            return taken

        return await self.database.write(change) if acks else []

    async def note_agent(
        self, *, agent: str, link: str, endpoint: str, digest: str, not_after_ns: int, now_ns: int
    ) -> None:
        """Record an agent's certificate the first time it is seen."""

        def change(conn: Connection) -> None:
            known = conn.execute(sql.AGENT, {"agent": agent}).scalar()
            if known == digest:
                return
            row = {"agent": agent, "link": link, "endpoint": endpoint, "digest": digest}
            conn.execute(sql.PUT_AGENT, row | {"not_after_ns": not_after_ns, "now_ns": now_ns})
            public = {"agent": agent, "link": link, "endpoint": endpoint, "certificate_digest": digest}
            public |= {"method": "approle" if known is None else "renewal", "not_after": str(not_after_ns)}
            outbox.put(conn, Draft("agent_enrolled", "estate", "hub", now_ns, public), now_ns=now_ns)

        await self.database.write(change)

    async def recent(self, link: str, most: int = 10) -> list[Rotation]:
        """The newest rotations of a link, newest first."""
        rows = await self.database.read(
            lambda conn: conn.execute(sql.RECENT, {"link": link, "most": most}).scalars().all()
        )
        return [Rotation.from_json(json.loads(row)) for row in rows]
