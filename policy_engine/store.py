"""Tables of the control plane: who may use it (grants, tokens). Secrets are stored as SHA-256 only.

Times are 64-bit nanoseconds and fit SQLite's signed integer until the year 2262.
"""

from sqlalchemy import BigInteger, CheckConstraint, Column, LargeBinary, UniqueConstraint
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


__all__ = ["ROLES", "ApiTokenRow", "GrantRow", "PathTokenRow", "metadata"]
