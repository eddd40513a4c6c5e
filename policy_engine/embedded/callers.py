"""Who may call: API servers of clusters (certificate or path token), and the first token of the API."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr
from sqlalchemy import Connection

from evidence.database import Database
from evidence.errors import StoreUnavailable
from evidence.logs import get_logger
from policy_engine import grants
from policy_engine.admission.identities import ClusterIdentity, Identities
from policy_engine.embedded.ca import Authority, Pair
from policy_engine.resources.resource_set import ResourceSet

LOCAL: Final = "local"
ADMIN: Final = "admin"
ROLES: Final = ("admin", "operator", "auditor", "viewer")
ADMIN_DAYS: Final = 365
PATH_TOKEN_DAYS: Final = 365
REFRESH_SECONDS: Final = 10.0
log = get_logger("policy_engine.callers")


def cluster_authorities(
    resources: ResourceSet, folder: Path, now: dt.datetime
) -> Mapping[str, tuple[Authority, Pair]]:
    """An authority and an API server's client certificate for each cluster that declares none.

    Embedded only: in production a Cluster names the authority of its own API server.
    """
    made: dict[str, tuple[Authority, Pair]] = {}
    for name, cluster in resources.clusters.items():
        if cluster.identity.client_ca is None and cluster.identity.client_ca_file is None:
            authority = Authority.open(folder / name, f"{name} API server CA (embedded)", now)
            made[name] = (authority, authority.client("kube-apiserver", now))
    return made


def identities(
    conn: Connection, resources: ResourceSet, authorities: Mapping[str, tuple[Authority, Pair]], now_ns: int
) -> Identities:
    """The webhook's table of callers."""
    tokens = grants.path_token_hashes(conn, now_ns)
    entries = []
    for name, cluster in resources.clusters.items():
        declared = cluster.identity.client_ca
        cas = (declared.encode(),) if declared else ()
        if name in authorities:
            cas = (authorities[name][0].ca_file.read_bytes(),)
        hashes = tokens.get(name, {}) if cluster.identity.path_token else {}
        entries.append(ClusterIdentity(name, client_cas=cas, token_hashes=hashes))
    return Identities(entries)


class Callers:
    """The webhook's table of callers, as the database has it."""

    def __init__(
        self,
        database: Database,
        resources: ResourceSet,
        authorities: Mapping[str, tuple[Authority, Pair]],
        clock: Callable[[], int],
    ) -> None:
        self._database, self._resources, self._authorities = database, resources, authorities
        self._clock = clock
        self._reading = asyncio.Lock()  # an older table must not replace a newer one
        self.table = Identities()  # knows nobody, until the first `read`

    async def read(self) -> None:
        """Put what the database has into force.

        Raises:
            StoreUnavailable: It could not be read; the table of before stays.
        """
        async with self._reading:
            now = self._clock()
            self.table = await self._database.read(
                lambda conn: identities(conn, self._resources, self._authorities, now)
            )

    async def refresh(self) -> None:
        """The same from time to time: a change that was committed and could not be read then is in force."""
        try:
            await self.read()
        except StoreUnavailable as error:
            log.warning("callers_not_read", reason=str(error), fix=error.fix)


def first_tokens(
    conn: Connection, resources: ResourceSet, folder: Path, now_ns: int
) -> Mapping[Path, SecretStr]:
    """Issue the administrator's token and each cluster's path token where their files are missing.

    Returns:
        File -> its token, to be written once the transaction is committed: a file whose token is in no
        database would never be issued again.
    """
    issued: dict[Path, SecretStr] = {}
    admin = folder / "admin.token"
    if not admin.exists():
        for role in ROLES:
            grants.add_grant(conn, LOCAL, ADMIN, role, "*", by="set-up", now_ns=now_ns)
        token = grants.issue_token(
            conn, LOCAL, ADMIN, label="set-up", by="set-up", now_ns=now_ns, days=ADMIN_DAYS
        )
        issued[admin] = SecretStr(token.token)
    for name, cluster in resources.clusters.items():
        file = folder / f"{name}.path-token"
        if cluster.identity.path_token and not file.exists():
            path = grants.issue_path_token(conn, name, by="set-up", now_ns=now_ns, days=PATH_TOKEN_DAYS)
            issued[file] = SecretStr(path.token)
    return issued
