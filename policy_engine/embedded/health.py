"""What the control plane says of its health: readiness as a floor, the ledger's signatures, warnings.

Not ready is only what affects decisions: bundle, declared state, postures, spool. A key store that is away
holds up rotations and signatures, never decisions; it shows in status and its ``warnings``.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from evidence.database import Database
from evidence.errors import StoreUnavailable
from policy_engine.embedded.contact import Contact

POSTURE_AGE_SECONDS: Final = 5.0  # the gate looks four times a second; evidence ends by itself besides
LATE_SECONDS: Final = 5.0  # a tick is signed within a fraction of a second
LOOK_SECONDS: Final = 1.0  # between two looks at the ticks
_LAST_TICKS: Final = "SELECT time_ns, note IS NOT NULL FROM ledger_tick ORDER BY tick DESC LIMIT 2"
_HEALTHY: Final = {"ledger": "appends", "key_store": "active"}


def floor(*, trusted: bool, generation: int, posture_age_s: float, spool: str | None) -> dict[str, str]:
    """What keeps decisions from being made or being right: check name -> reason; empty means ready."""
    found: dict[str, str] = {}
    if not trusted:
        found["bundle"] = "the bundle that decides is not the accepted one"
    if generation < 1:
        found["context"] = "no declared state has been accepted"
    if posture_age_s > POSTURE_AGE_SECONDS:
        found["postures"] = f"the gate has judged no link for {posture_age_s:.0f} s"
    if spool is not None:
        found["spool"] = spool
    return found


def warnings(parts: Mapping[str, Any], not_ready: Mapping[str, str]) -> list[str]:
    """A sentence for each part that is not as it should be."""
    return [f"not ready: {name}: {why}" for name, why in not_ready.items()] + [
        f"{name.replace('_', ' ')}: {parts[name]}"
        for name, good in _HEALTHY.items()
        if parts.get(name, good) != good
    ]


class SignedTicks:
    """Whether the ledger's ticks get signed, read from the ledger itself by `look`.

    Args:
        database: Holds the ledger.
        tick_seconds: Time between two ticks.
        monotonic: Seconds; how old the last look is.
    """

    def __init__(
        self, database: Database, tick_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._late_ns = int((tick_seconds + LATE_SECONDS) * 1e9)
        self._monotonic = monotonic
        self._looked = monotonic()
        self._trouble = ""
        self._rows: Sequence[tuple[int, bool]] = ()
        self.last_ns: int | None = None

    async def look(self) -> None:
        """Read the last ticks, in a thread: whoever asks for the state never waits for the database."""
        try:
            rows = await self._database.read(lambda conn: conn.exec_driver_sql(_LAST_TICKS).fetchall())
        except StoreUnavailable as error:
            self._trouble = str(error)
        else:
            self._trouble = ""
            self._rows = [(int(at), bool(noted)) for at, noted in rows]
            self.last_ns = max((at for at, noted in self._rows if noted), default=self.last_ns)
        self._looked = self._monotonic()

    def state(self, failure: str, contact: Contact, now_ns: int) -> str:
        """``appends``, or what is wrong.

        Args:
            failure: Why the last step of the sequencer failed; empty when it did not.
            contact: When the key store, which signs, last answered.
            now_ns: Wall clock.
        """
        age_s = self._monotonic() - self._looked
        if self._trouble or age_s > LATE_SECONDS:
            return f"cannot be read: {self._trouble or f'no answer for {age_s:.0f} s'}"
        since, away = min((at for at, noted in self._rows if not noted), default=None), contact.away
        if since is None and away:
            since = max(self.last_ns or 0, now_ns - int(contact.age_seconds * 1e9))
        late_ns = 0 if since is None else now_ns - since
        if since is None or late_ns <= self._late_ns:
            return failure or "appends"
        why = f"the key store is away: {away}" if away else failure or "the signer has not answered"
        return f"unsigned since {_utc(since)} ({late_ns / 1e9:.0f} s): {why}"


def _utc(ns: int) -> str:
    return dt.datetime.fromtimestamp(ns / 1e9, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
