"""Who conducts: one lease row with a monotone fencing token (rotation.md section 4).

The token names one term of one holder. It never falls, whoever's clock is wrong: a wrong clock may take a
lease too early, and then the former holder's next write is refused in its own transaction (`fence`) and its
operations are refused by the agents. Safety never depends on the expiry, only liveness does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, TextClause, text

from evidence import outbox
from evidence.database import Database
from evidence.records import Draft
from keymgmt.errors import StaleLease

_TAKE = text(
    "UPDATE conductor_lease SET token = token + 1, holder = :holder, expires_ns = :until"
    " WHERE name = :name AND (expires_ns < :now OR holder = :holder"
    " OR substr(holder, 1, :length) = :owner) RETURNING token"
)
_RENEW = text(
    "UPDATE conductor_lease SET expires_ns = :until"
    " WHERE name = :name AND token = :token AND holder = :holder RETURNING token"
)
_RAISE = text(
    "UPDATE conductor_lease SET token = :above, expires_ns = :until"
    " WHERE name = :name AND token = :token AND holder = :holder RETURNING token"
)
_RELEASE = text(
    "UPDATE conductor_lease SET expires_ns = 0 WHERE name = :name AND token = :token AND holder = :holder"
)
_FENCE = text(
    "UPDATE conductor_lease SET writes = writes + 1"
    " WHERE name = :name AND token = :token AND holder = :holder"
)
_CREATE = text(
    "INSERT INTO conductor_lease (name, token, holder, expires_ns, writes)"
    " VALUES (:name, 0, '', 0, 0) ON CONFLICT (name) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of one holder: what every journal write and every operation quotes."""

    name: str
    token: int
    holder: str
    until_ns: int


def fence(conn: Connection, term: Term) -> None:
    """Make the present transaction conditional on `term` still leading. First statement of each write.

    Raises:
        StaleLease: another term began; the transaction must not commit.
    """
    params = {"name": term.name, "token": term.token, "holder": term.holder}
    if conn.execute(_FENCE, params).rowcount != 1:
        raise StaleLease(f"lease {term.name}: token {term.token} no longer leads")


class Lease:
    """Takes, renews and gives back one lease for one holder. The clock is passed in.

    A holder is "owner/life": the owner stays over restarts (and is one process at a time), the life does not.
    """

    def __init__(self, database: Database, *, holder: str, ttl_ns: int, clock: Callable[[], int]) -> None:
        self._db = database
        self._holder = holder
        owner, slash, _life = holder.rpartition("/")
        self._owner = owner + slash
        self._ttl_ns = ttl_ns
        self._clock = clock

    async def take(self, name: str = "conductor") -> Term | None:
        """A new term when the lease is free, expired, or of an earlier life of this owner; else None.

        A restarted process that keeps its owner's name need not wait for the expiry: the token rises all
        the same, so that writes and operations of the earlier life are refused. The life in the holder's
        name keeps "equal token of another holder" meaningful after a restore of the database.
        """
        now = self._clock()
        return await self._db.write(lambda conn: self._take(conn, name, now))

    def _take(self, conn: Connection, name: str, now: int) -> Term | None:
        until = now + self._ttl_ns
        conn.execute(_CREATE, {"name": name})
        # Without an owner the prefix is as long as no holder: it matches nothing.
        params = {"name": name, "holder": self._holder, "until": until, "now": now}
        params |= {"owner": self._owner or "/", "length": len(self._owner) or 1}
        row = conn.execute(_TAKE, params).first()
        if row is None:
            return None
        term = Term(name, int(row[0]), self._holder, until)
        outbox.put(conn, _draft(term, "taken", now))
        return term

    async def renew(self, term: Term) -> Term:
        """The same term, living longer.

        Raises:
            StaleLease: another term began.
        """
        until = self._clock() + self._ttl_ns
        return await self._db.write(lambda conn: self._change(conn, _RENEW, replace(term, until_ns=until)))

    async def raise_above(self, term: Term, reported: int) -> Term:
        """A term whose token is above one that an agent reported (after a restore of the database).

        Only the database says who leads: the write is conditional on the present term like every other.

        Raises:
            StaleLease: another term began.
        """
        now = self._clock()

        def change(conn: Connection) -> Term:
            above = max(reported, term.token) + 1
            found = self._change(conn, _RAISE, replace(term, until_ns=now + self._ttl_ns), above)
            outbox.put(conn, _draft(found, "raised", now))
            return found

        return await self._db.write(change)

    async def release(self, term: Term) -> None:
        """Give the lease back, so that a successor need not wait for its expiry."""
        now = self._clock()

        def change(conn: Connection) -> None:
            done = conn.execute(
                _RELEASE, {"name": term.name, "token": term.token, "holder": term.holder}
            ).rowcount
            if done:
                outbox.put(conn, _draft(term, "released", now))

        await self._db.write(change)

    @staticmethod
    def _change(conn: Connection, statement: TextClause, term: Term, above: int | None = None) -> Term:
        params = {"name": term.name, "token": term.token, "holder": term.holder, "until": term.until_ns}
        if above is not None:
            params["above"] = above
        row = conn.execute(statement, params).first()
        if row is None:
            raise StaleLease(f"lease {term.name}: token {term.token} no longer leads")
        return replace(term, token=int(row[0]))


def _draft(term: Term, action: str, now_ns: int) -> Draft:
    public = {"name": term.name, "token": term.token, "action": action, "since": str(now_ns)}
    return Draft(
        "lease",
        "estate",
        "conductor",
        now_ns,
        public | {"until": str(term.until_ns)},
        {"holder": term.holder},
    )
