"""Tables of key management: lease, links, rotations, operations, requests, agents.

Times are nanoseconds in signed 64 bits; documents are JSON text. A column never holds key material: the one
ciphertext there is (in the parameters of `install` and the state of its rotation) is purged when its wrapping
version is destroyed (rotation.md section 1.4).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Text
from sqlmodel import Field, SQLModel

from evidence.store import metadata


class LeaseRow(SQLModel, table=True):
    """Who conducts. The token only ever rises; `writes` is touched by every fenced transaction."""

    __tablename__ = "conductor_lease"
    __table_args__ = (CheckConstraint("token >= 0", name="token"),)

    name: str = Field(primary_key=True)
    token: int = Field(sa_type=BigInteger)
    holder: str
    expires_ns: int = Field(sa_type=BigInteger)
    writes: int = Field(sa_type=BigInteger)


class KeyedLinkRow(SQLModel, table=True):
    """One link: the key pair in use as JSON, the sequence of its operations, failures in a row."""

    __tablename__ = "keyed_link"
    __table_args__ = (CheckConstraint("op_seq >= 0 AND failures >= 0", name="counts"),)

    link: str = Field(primary_key=True)
    op_seq: int = Field(sa_type=BigInteger)
    live: str | None = Field(default=None, sa_type=Text)
    failures: int
    retry_ns: int = Field(sa_type=BigInteger)
    last_end: str | None = Field(default=None)
    last_why: str | None = Field(default=None, sa_type=Text)


class RotationRow(SQLModel, table=True):
    """One rotation. `open_link` is its link while it is open, NULL after: at most one open per link."""

    __tablename__ = "rotation"
    __table_args__ = (
        CheckConstraint(
            "ended IS NULL OR ended IN ('complete','rolled back','rekeyed','not started')", name="ended"
        ),
        CheckConstraint("(ended IS NULL) = (open_link IS NOT NULL)", name="open_link"),
    )

    rotation: str = Field(primary_key=True)
    link: str = Field(index=True)
    open_link: str | None = Field(default=None, unique=True)
    kind: str
    step: str
    state: str = Field(sa_type=Text)
    ended: str | None = Field(default=None)
    started_ns: int = Field(sa_type=BigInteger)
    updated_ns: int = Field(sa_type=BigInteger)
    token: int = Field(sa_type=BigInteger)


class OperationRow(SQLModel, table=True):
    """One operation: journalled, then delivered, then acknowledged."""

    __tablename__ = "operation"
    __table_args__ = (
        CheckConstraint("status IN ('pending','done','failed','refused','cancelled')", name="status"),
        CheckConstraint("side IN ('a','b')", name="side"),
    )

    op_id: str = Field(primary_key=True)
    link: str = Field(index=True)
    agent: str = Field(index=True)
    side: str
    rotation: str | None = Field(default=None, index=True)
    kind: str
    params: str = Field(sa_type=Text)
    token: int = Field(sa_type=BigInteger)
    holder: str
    op_seq: int = Field(sa_type=BigInteger)
    status: str = Field(index=True)
    result: str | None = Field(default=None, sa_type=Text)
    why: str = Field(default="", sa_type=Text)
    created_ns: int = Field(sa_type=BigInteger)
    acked_ns: int | None = Field(default=None, sa_type=BigInteger)


class RotateRequestRow(SQLModel, table=True):
    """A rotation somebody asked for; its id becomes the rotation's."""

    __tablename__ = "rotate_request"
    __table_args__ = (CheckConstraint("answer IN ('waiting','started','refused')", name="answer"),)

    rotation: str = Field(primary_key=True)
    link: str = Field(index=True)
    asked_by: str
    asked_ns: int = Field(sa_type=BigInteger)
    answer: str


class AgentRow(SQLModel, table=True):
    """The certificate under which an agent was last seen, so that a new one is recorded once."""

    __tablename__ = "agent"

    agent: str = Field(primary_key=True)
    link: str
    endpoint: str
    certificate_digest: str
    not_after_ns: int = Field(sa_type=BigInteger)
    first_seen_ns: int = Field(sa_type=BigInteger)


__all__ = [
    "AgentRow",
    "KeyedLinkRow",
    "LeaseRow",
    "OperationRow",
    "RotateRequestRow",
    "RotationRow",
    "metadata",
]
