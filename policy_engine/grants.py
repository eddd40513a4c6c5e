"""Who may do what: grants are (subject = issuer + sub, role, tenant or `*`).

A token is 256 random bits, shown once, stored as its SHA-256, expires and can be revoked. A query never asks
"may I?": it takes a `Reach`, the tenants that a role covers, and filters by it in the store layer.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select

from policy_engine.errors import Forbidden, InvalidGrant, Unauthenticated
from policy_engine.store import ApiTokenRow, GrantRow, PathTokenRow

EVERY: Final = "*"
PREFIX: Final = "sgt_"
_ROLE: Final = re.compile(r"viewer|operator|auditor|admin|approver:[a-z][a-z0-9-]{0,40}")


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
