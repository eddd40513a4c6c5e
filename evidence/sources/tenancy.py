"""Whose data, whose hand: from the names in a log to tenants, by declared tables only.

Decides the scopes of a row. An access goes to the scope of the data's owner and to the scope of the actor;
with neither established, to the estate. `-` and names not declared are no tenant (ledger.md section 3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from evidence.errors import SourceRefused
from evidence.scope import ESTATE
from evidence.sources.base import Row

_ARN_ACCOUNT = re.compile(r"arn:aws[a-z-]*:(?:iam|sts)::(\d{12}):.*")
_PARTS = ("buckets", "principals", "accounts")


@dataclass(frozen=True, slots=True)
class TenantMap:
    """Declared tables, all to tenant names.

    Attributes:
        buckets: bucket name.
        principals: an ARN or canonical id; an ARN prefix that ends in `/`; or a 12-digit account id.
        accounts: Slurm account, as `cluster/account` or plain `account`.
    """

    buckets: Mapping[str, str] = field(default_factory=dict)
    principals: Mapping[str, str] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: bytes) -> TenantMap:
        """Read `{"buckets": {...}, "principals": {...}, "accounts": {...}}`.

        Raises:
            SourceRefused: any other shape.
        """
        try:
            value = orjson.loads(data)
        except ValueError:
            raise SourceRefused("the tenant tables are no JSON") from None
        tables = value if isinstance(value, dict) else None
        if tables is None or set(tables) - set(_PARTS) or not all(map(_is_table, tables.values())):
            raise SourceRefused(
                "the tenant tables are out of form",
                fix='write {"buckets": {name: tenant}, "principals": {...}, "accounts": {...}}',
            )
        return cls(**tables)

    def owner(self, bucket: str | None) -> str | None:
        """Tenant that owns a bucket."""
        return None if bucket is None else self.buckets.get(bucket)

    def actor(self, requester: str | None) -> str | None:
        """Tenant of a requester: exact name, then the longest declared prefix, then the account."""
        if requester is None:
            return None
        if requester in self.principals:
            return self.principals[requester]
        prefixes = [p for p in self.principals if p.endswith("/") and requester.startswith(p)]
        if prefixes:
            return self.principals[max(prefixes, key=len)]
        account = _ARN_ACCOUNT.fullmatch(requester)
        return self.principals.get(account[1]) if account else None

    def of_job(self, cluster: str, account: str | None) -> str | None:
        """Tenant of a Slurm account."""
        if account is None:
            return None
        return self.accounts.get(f"{cluster}/{account}", self.accounts.get(account))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) and v for v in value.values())


def scopes_of_access(row: Row, tenants: TenantMap) -> list[str]:
    """Scope names that an access row is written to, sorted."""
    bucket, requester = row.get("bucket"), row.get("requester")
    owner = tenants.owner(None if bucket is None else str(bucket))
    actor = tenants.actor(None if requester is None else str(requester))
    return sorted({t for t in (owner, actor) if t is not None}) or [ESTATE]


def scopes_of_job(row: Row, tenants: TenantMap) -> list[str]:
    """Scope names that a job row is written to: the tenant of its account, else the estate."""
    account = row.get("account")
    return [tenants.of_job(str(row["cluster"]), None if account is None else str(account)) or ESTATE]
