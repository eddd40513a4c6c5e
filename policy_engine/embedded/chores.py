"""Small loops beside the system: verdict records, spool, permit key, certificates, trust file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from evidence import durable, outbox
from evidence.checkpoint import Signer, verifier_of
from evidence.database import Database
from evidence.errors import StoreUnavailable
from evidence.ledger import Ledger
from evidence.limits import LIMITS
from evidence.logs import get_logger
from evidence.package.trust import Trust
from evidence.records import Draft
from evidence.spool import Spool
from keymgmt.errors import KeymgmtError
from policy_engine.gate import signer as signers
from policy_engine.gate.verdicts import VerdictBatch
from policy_engine.listeners import Listeners

SIGNER_CHECK_SECONDS: Final = 60.0
CERTIFICATE_CHECK_SECONDS: Final = 1.0
SPOOL_CHECK_SECONDS: Final = 0.5
TRUST_CHECK_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 2.0
VERDICTS_KEPT: Final = 20_000  # records: a day of 23 links of two tenants at 300 s; the oldest make room
log = get_logger("policy_engine.embedded")


class Verdicts:
    """Writes the verdict records of each interval; those that the database did not take wait for the next."""

    def __init__(self, database: Database, batch: VerdictBatch, clock: Callable[[], int]) -> None:
        self._database, self._batch, self._clock = database, batch, clock
        self._waiting: list[Draft] = []

    async def flush(self, links: Iterable[str]) -> None:
        """End the interval and write what waits."""
        now = self._clock()
        drafts, self._waiting = self._waiting + self._batch.flush(links, now), []
        write = self._database.write(lambda conn: [outbox.put(conn, draft, now_ns=now) for draft in drafts])
        try:
            await asyncio.shield(write)  # a stop in between must not lose an interval
        except StoreUnavailable as error:
            self._waiting = (drafts + self._waiting)[-VERDICTS_KEPT:]
            log.warning("verdicts_wait", records=len(drafts), reason=str(error), fix=error.fix)


class SpoolWatch:
    """Whether decisions can be made durable; logs once when they no longer can, once when they can again."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._said = False

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written now; ``None`` when it can."""
        limit = LIMITS.spool_bytes
        if self._spool.failure is None and self._spool.octets > limit:
            return f"full: {self._spool.octets} octets wait for the ledger, the limit is {limit}"
        return self._spool.failure

    async def look(self) -> None:
        """Log a change."""
        trouble = self.trouble
        if (trouble is not None) == self._said:
            return
        self._said = trouble is not None
        if trouble is not None:
            log.error("spool_unwritable", reason=trouble, fix="free disk space; every request is refused")
        else:
            log.info("spool_writable_again")


async def every(seconds: float, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Repeat until cancelled; the first time after one interval."""
    while True:
        await asyncio.sleep(seconds)
        await work()


class PermitKey:
    """The delegated signer in force, renewed at half of its life; the old one serves until then."""

    def __init__(
        self, custody: signers.PermitCustody, epoch: int, clock: Callable[[], int], longest_ns: int
    ) -> None:
        self._custody, self._epoch, self._clock = custody, epoch, clock
        self._life_ns = signers.lifetime_ns(longest_ns, 0)
        self.signer = self._obtain()

    def _obtain(self) -> signers.DelegatedSigner:
        return signers.obtain(self._custody, self._epoch, self._clock(), self._life_ns)

    async def renew(self) -> None:
        """Renew it when it is due; a key store that is away is no harm before its end."""
        if not self.signer.due(self._clock()):
            return
        try:
            self.signer = await asyncio.to_thread(self._obtain)
        except KeymgmtError as error:
            log.warning("permit_signer_not_renewed", reason=str(error), fix=error.fix)


async def reload_certificates(listeners: Listeners) -> None:
    """Look at TLS material on disk for ever."""
    await every(CERTIFICATE_CHECK_SECONDS, listeners.reload)


async def write_trust(ledger: Ledger, key: Signer, scopes: Mapping[str, str], file: Path) -> None:
    """Write the trust file once the ledger has announced its key. Hand it over by another way."""
    while True:
        try:
            if ledger.signing_key() is not None:
                verifier = await asyncio.to_thread(verifier_of, key)
                break
        except (StoreUnavailable, KeymgmtError) as error:
            log.warning("trust_file_waits", reason=str(error), fix=error.fix)
            await asyncio.sleep(RETRY_SECONDS)
        await asyncio.sleep(TRUST_CHECK_SECONDS)
    durable.replace(file, (Trust(ledger.origin(), (verifier,), None, scopes).encode(),), 0o644)
