"""Who may do what: grants are (subject = issuer + sub, role, tenant or `*`); tokens prove a subject.

A token is 256 random bits, shown once, stored as its SHA-256; it expires and can be revoked. A query never
asks "may I?": it takes a `Reach`, the tenants that a role covers, and filters by it in the store layer.
Functions that take a `Connection` run inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from policy_engine.errors import Forbidden, InvalidGrant, NotFound, Unauthenticated
from policy_engine.limits import LIMITS
from policy_engine.store import ApiTokenRow, GrantRow, PathTokenRow

EVERY: Final = "*"
PREFIX: Final = "sgt_"  # lets secret scanners recognise a leaked token
_ROLE: Final = re.compile(r"viewer|operator|auditor|admin|approver:[a-z][a-z0-9-]{0,40}")
_SUBJECT: Final = re.compile(r"[!-~]{1,200}")
_TOKEN: Final = re.compile(r"sgt_[A-Za-z0-9_-]{43}")
_DAY_NS: Final = 86_400 * 1_000_000_000

# SQLModel gives classes their Table at run time; these aliases name it once.
_grants: Final[Any] = GrantRow.__table__  # type: ignore[attr-defined]
_tokens: Final[Any] = ApiTokenRow.__table__  # type: ignore[attr-defined]
_paths: Final[Any] = PathTokenRow.__table__  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Reach:
    """The tenants a query may see. `every` includes what belongs to no tenant (the estate)."""

    every: bool
    tenants: frozenset[str] = frozenset()

    def covers(self, tenant: str | None) -> bool:
        """Whether things of `tenant` (None: of the estate) are inside."""
        return self.every or (tenant is not None and tenant in self.tenants)

    def covers_scope(self, scope: str) -> bool:
        """The same for a scope name, where `estate` belongs to no tenant."""
        return self.covers(None if scope == "estate" else scope)


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant of a subject."""

    role: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from and what was granted."""

    issuer: str
    sub: str
    grants: tuple[Grant, ...]
    token_id: str = ""

    @property
    def name(self) -> str:
        """`issuer#sub`: how records name a person."""
        return f"{self.issuer}#{self.sub}"

    def reach(self, *roles: str) -> Reach:
        """The tenants over which any of `roles` was granted.

        Raises:
            Forbidden: None of the roles was granted over anything.
        """
        tenants = {grant.tenant for grant in self.grants if grant.role in roles}
        if not tenants:
            raise Forbidden(
                f"this needs the role {' or '.join(roles)}", reason="role", fix="ask an admin for a grant"
            )
        return Reach(EVERY in tenants, frozenset(tenants - {EVERY}))

    def require_estate(self, *roles: str) -> None:
        """For what all tenants share.

        Raises:
            Forbidden: None of the roles was granted over `*`.
        """
        if not self.reach(*roles).every:
            raise Forbidden(
                f"this needs the role {' or '.join(roles)} over every tenant",
                reason="tenant",
                fix="ask an admin for a grant over *",
            )


@dataclass(frozen=True, slots=True)
class Issued:
    """A token at the only moment when it is known. Its text is kept out of `repr`."""

    id: str
    token: str
    expires_ns: int

    def __repr__(self) -> str:
        return f"Issued(id={self.id!r}, expires_ns={self.expires_ns})"


def issue_token(
    conn: Connection, issuer: str, sub: str, *, label: str, by: str, now_ns: int, days: int
) -> Issued:
    """A new bearer token for a subject.

    Args:
        conn: Inside a write transaction.
        issuer: Who vouches for `sub`; `local` for people whom this estate names itself.
        sub: The subject within the issuer.
        label: What it is for; shown in lists.
        by: Name of the person who issues it.
        now_ns: Present time.
        days: Validity.

    Raises:
        InvalidGrant: Subject, label or validity out of range.
    """
    _check_subject(issuer, sub)
    if len(label) > 200 or not label.isprintable():
        raise InvalidGrant("a label has at most 200 printable characters")
    issued = _new_token(now_ns, days)
    row = {"digest": _digest(issued.token), "issuer": issuer, "sub": sub, "label": label}
    conn.execute(insert(_tokens).values(**row, **_life(issued, by, now_ns)))
    return issued


def principal_of(conn: Connection, token: str, now_ns: int) -> Principal:
    """The subject of a bearer token, with its grants.

    Raises:
        Unauthenticated: Unknown, expired or revoked: one text for all.
    """
    row = None
    if _TOKEN.fullmatch(token):
        # Looked up by the digest of a 256-bit secret: timing tells nothing about the secret.
        row = conn.execute(select(_tokens).where(_tokens.c.digest == _digest(token))).one_or_none()
    if row is None or row.revoked_ns is not None or row.expires_ns <= now_ns:
        raise Unauthenticated("the token is not valid", reason="token", fix="ask an admin for a new token")
    grants = conn.execute(
        select(_grants.c.role, _grants.c.tenant)
        .where(_grants.c.issuer == row.issuer, _grants.c.sub == row.sub)
        .order_by(_grants.c.role, _grants.c.tenant)
    )
    return Principal(row.issuer, row.sub, tuple(Grant(g.role, g.tenant) for g in grants), row.id)


def list_tokens(conn: Connection, principal: Principal | None) -> Sequence[dict[str, Any]]:
    """Tokens (never their text) of one subject, or of all when None."""
    query = select(_tokens).order_by(_tokens.c.created_ns, _tokens.c.id)
    if principal is not None:
        query = query.where(_tokens.c.issuer == principal.issuer, _tokens.c.sub == principal.sub)
    shown = ("id", "issuer", "sub", "label", "created_ns", "created_by", "expires_ns", "revoked_ns")
    return [_shown(row, shown) for row in conn.execute(query)]


def revoke_token(conn: Connection, token_id: str, *, owner: Principal | None, now_ns: int) -> None:
    """Revoke a token; `owner` limits it to that subject's own.

    Raises:
        NotFound: No such token within reach.
    """
    query = update(_tokens).where(_tokens.c.id == token_id, _tokens.c.revoked_ns.is_(None))
    if owner is not None:
        query = query.where(_tokens.c.issuer == owner.issuer, _tokens.c.sub == owner.sub)
    if conn.execute(query.values(revoked_ns=now_ns)).rowcount != 1:
        raise NotFound("no such token")


def add_grant(
    conn: Connection, issuer: str, sub: str, role: str, tenant: str, *, by: str, now_ns: int
) -> str:
    """Grant a role over a tenant or `*`; the grant's id. Granting again gives the same id.

    Raises:
        InvalidGrant: Unknown role, or a subject or tenant that is out of range.
    """
    _check_subject(issuer, sub)
    if not _ROLE.fullmatch(role):
        raise InvalidGrant("no such role", fix="viewer, operator, auditor, admin or approver:<kind>")
    if tenant != EVERY and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", tenant):
        raise InvalidGrant("a tenant is a resource name, or * for all")
    key = {"issuer": issuer, "sub": sub, "role": role, "tenant": tenant}
    there = conn.execute(select(_grants.c.id).filter_by(**key)).scalar_one_or_none()
    if there is not None:
        return str(there)
    grant_id = secrets.token_hex(8)
    conn.execute(insert(_grants).values(id=grant_id, created_ns=now_ns, created_by=by, **key))
    return grant_id


def list_grants(conn: Connection, reach: Reach) -> Sequence[dict[str, Any]]:
    """Grants over the tenants in reach."""
    query = select(_grants).order_by(_grants.c.issuer, _grants.c.sub, _grants.c.role, _grants.c.tenant)
    shown = ("id", "issuer", "sub", "role", "tenant", "created_ns", "created_by")
    return [_shown(row, shown) for row in conn.execute(_within(query, reach))]


def remove_grant(conn: Connection, grant_id: str, reach: Reach) -> None:
    """Take a grant away.

    Raises:
        NotFound: No such grant within reach.
    """
    if conn.execute(_within(delete(_grants).where(_grants.c.id == grant_id), reach)).rowcount != 1:
        raise NotFound("no such grant")


def issue_path_token(conn: Connection, cluster: str, *, by: str, now_ns: int, days: int) -> Issued:
    """A new path token for a cluster's API server; older ones go on until revoked (rotation).

    Raises:
        InvalidGrant: Validity out of range.
    """
    issued = _new_token(now_ns, days)
    token = Issued(issued.id, issued.token.removeprefix(PREFIX), issued.expires_ns)
    row = {"digest": _digest(token.token), "cluster": cluster}
    conn.execute(insert(_paths).values(**row, **_life(token, by, now_ns)))
    return token


def revoke_path_token(conn: Connection, token_id: str, now_ns: int) -> None:
    """Revoke a path token.

    Raises:
        NotFound: No such token that is still valid.
    """
    query = update(_paths).where(_paths.c.id == token_id, _paths.c.revoked_ns.is_(None))
    if conn.execute(query.values(revoked_ns=now_ns)).rowcount != 1:
        raise NotFound("no such path token")


def list_path_tokens(conn: Connection) -> Sequence[dict[str, Any]]:
    """All path tokens, never their text."""
    shown = ("id", "cluster", "created_ns", "created_by", "expires_ns", "revoked_ns")
    query = select(_paths).order_by(_paths.c.cluster, _paths.c.created_ns, _paths.c.id)
    return [_shown(row, shown) for row in conn.execute(query)]


def path_token_hashes(conn: Connection, now_ns: int) -> dict[str, dict[bytes, int]]:
    """Digests of the path tokens valid now and when each expires, by cluster (for `ClusterIdentity`)."""
    query = select(_paths.c.cluster, _paths.c.digest, _paths.c.expires_ns).where(
        _paths.c.revoked_ns.is_(None), _paths.c.expires_ns > now_ns
    )
    found: dict[str, dict[bytes, int]] = {}
    for row in conn.execute(query):
        found.setdefault(row.cluster, {})[bytes(row.digest)] = row.expires_ns
    return found


def _new_token(now_ns: int, days: int) -> Issued:
    if not 1 <= days <= LIMITS.token_days:
        raise InvalidGrant(f"a token is valid for 1 to {LIMITS.token_days} days")
    return Issued(secrets.token_hex(8), PREFIX + secrets.token_urlsafe(32), now_ns + days * _DAY_NS)


def _life(issued: Issued, by: str, now_ns: int) -> dict[str, Any]:
    return {"id": issued.id, "created_ns": now_ns, "created_by": by, "expires_ns": issued.expires_ns}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("ascii")).digest()


def _check_subject(issuer: str, sub: str) -> None:
    if not (_SUBJECT.fullmatch(issuer) and _SUBJECT.fullmatch(sub)):
        raise InvalidGrant("issuer and sub have 1 to 200 printable ASCII characters without spaces")


def _within(query: Any, reach: Reach) -> Any:
    return query if reach.every else query.where(_grants.c.tenant.in_(sorted(reach.tenants)))


def _shown(row: Any, names: Sequence[str]) -> dict[str, Any]:
    """Columns by name; times as decimal strings, as everywhere in JSON."""
    return {
        name: str(value) if name.endswith("_ns") and value is not None else value
        for name, value in ((name, getattr(row, name)) for name in names)
    }
