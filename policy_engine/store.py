"""Tables of the control plane: who may use it (grants, tokens). Secrets are stored as SHA-256 only.

Times are 64-bit nanoseconds and fit SQLite's signed integer until the year 2262.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, LargeBinary, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from evidence.store import metadata

ROLES = ("viewer", "operator", "auditor", "admin")


class GrantRow(SQLModel, table=True):
    """One role of one subject over one tenant, or over `*`."""

    __tablename__ = "grant_entry"
    __table_args__ = (
        UniqueConstraint("issuer", "sub", "role", "tenant"),
        CheckConstraint(
            "role IN ('viewer','operator','auditor','admin') OR role LIKE 'approver:_%'", name="role"
        ),
        CheckConstraint("length(tenant) > 0", name="tenant"),
    )

    id: str = Field(primary_key=True)
    issuer: str
    sub: str
    role: str
    tenant: str
    created_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_by: str


class ApiTokenRow(SQLModel, table=True):
    """A bearer token of a subject: its digest, never the token."""

    __tablename__ = "api_token"
    __table_args__ = (
        CheckConstraint("length(digest) = 32", name="digest"),
        CheckConstraint("expires_ns > created_ns", name="expires"),
    )

    id: str = Field(primary_key=True)
    digest: bytes = Field(sa_column=Column(LargeBinary(32), nullable=False, unique=True))
    issuer: str
    sub: str
    label: str
    created_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_by: str
    expires_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    revoked_ns: int | None = Field(default=None, sa_column=Column(BigInteger))


class PathTokenRow(SQLModel, table=True):
    """A path token by which one cluster's API server calls the webhook: its digest, never the token."""

    __tablename__ = "path_token"
    __table_args__ = (
        CheckConstraint("length(digest) = 32", name="digest"),
        CheckConstraint("expires_ns > created_ns", name="expires"),
    )

    id: str = Field(primary_key=True)
    digest: bytes = Field(sa_column=Column(LargeBinary(32), nullable=False, unique=True))
    cluster: str = Field(index=True)
    created_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_by: str
    expires_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    revoked_ns: int | None = Field(default=None, sa_column=Column(BigInteger))


class PostureRow(SQLModel, table=True):
    """What the gate last judged of one link, and the order that stands. A permit locks this row."""

    __tablename__ = "link_posture"
    __table_args__ = (
        CheckConstraint("state IN ('open','closed','none')", name="state"),
        CheckConstraint("posture IN ('encrypted','violation','unknown')", name="posture"),
        CheckConstraint("standing IN ('open','closed')", name="standing"),
        CheckConstraint("generation > 0", name="generation"),
    )

    link: str = Field(primary_key=True)
    generation: int
    state: str
    posture: str
    reason: str
    message: str
    since_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    fresh_until_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    judged_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    last_encrypted_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    standing: str
    standing_reason: str
    standing_since_ns: int = Field(sa_column=Column(BigInteger, nullable=False))


class PermitOrderRow(SQLModel, table=True):
    """The highest order (epoch, seq) given to one end of a link."""

    __tablename__ = "permit_order"
    __table_args__ = (
        CheckConstraint("seq >= 0 AND epoch >= 0", name="order"),
        CheckConstraint("kind IN ('permit','close','reopen')", name="kind"),
    )

    link: str = Field(primary_key=True)
    endpoint: str = Field(primary_key=True)
    kind: str
    epoch: int = Field(sa_column=Column(BigInteger, nullable=False))
    seq: int = Field(sa_column=Column(BigInteger, nullable=False))


class AcceptedResourcesRow(SQLModel, table=True):
    """A set of declared state that took effect: its digest, and its objects as JSON to compare with."""

    __tablename__ = "accepted_resources"
    __table_args__ = (CheckConstraint("accepted_as IN ('bootstrap','change','widened')", name="accepted_as"),)

    generation: int = Field(primary_key=True)
    digest: str
    accepted_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    accepted_as: str
    folder: str
    body: str = Field(sa_column=Column(Text, nullable=False))


class AcceptedBundleRow(SQLModel, table=True):
    """A policy bundle that took effect; the highest version accepted is never undercut."""

    __tablename__ = "accepted_bundle"

    sequence: int = Field(primary_key=True)
    bundle_digest: str
    policy_digest: str
    version: int
    accepted_ns: int = Field(sa_column=Column(BigInteger, nullable=False))
    trusted_by: str


__all__ = [
    "ROLES",
    "AcceptedBundleRow",
    "AcceptedResourcesRow",
    "ApiTokenRow",
    "GrantRow",
    "PathTokenRow",
    "PermitOrderRow",
    "PostureRow",
    "metadata",
]
