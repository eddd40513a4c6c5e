"""What the control plane says of its health: readiness as a floor, the ledger's signatures, warnings.

Not ready is only what affects decisions: bundle, declared state, postures, spool. A key store that is away
holds up rotations and signatures, never decisions; it shows in status and its ``warnings``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from evidence.database import Database
from evidence.errors import StoreUnavailable
from policy_engine.embedded.contact import Contact

POSTURE_AGE_SECONDS: Final = 5.0  # the gate looks four times a second; a sample is good for 5 s at least
LATE_SECONDS: Final = 5.0  # a tick is signed within a fraction of a second
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
    """Whether the ledger's ticks get signed, read from the ledger itself.

    Args:
        database: Holds the ledger.
        tick_seconds: Time between two ticks.
    """

    def __init__(self, database: Database, tick_seconds: float) -> None:
        self._database = database
        self._late_ns = int((tick_seconds + LATE_SECONDS) * 1e9)
        self.last_ns: int | None = None

    def state(self, failure: str, contact: Contact, now_ns: int) -> str:
        """``appends``, or what is wrong.

        Args:
            failure: Why the last step of the sequencer failed; empty when it did not.
            contact: When the key store, which signs, last answered.
            now_ns: Wall clock.
        """
        try:
            rows = self._database.read_sync(lambda conn: conn.exec_driver_sql(_LAST_TICKS).fetchall())
        except StoreUnavailable as error:
            return f"cannot be read: {error}"
        self.last_ns = max((int(at) for at, noted in rows if noted), default=self.last_ns)
        since, away = min((int(at) for at, noted in rows if not noted), default=None), contact.away
        if since is None and away:
            since = max(self.last_ns or 0, now_ns - int(contact.age_seconds * 1e9))
        late_ns = 0 if since is None else now_ns - since
        if since is None or late_ns <= self._late_ns:
            return failure or "appends"
        why = f"the key store is away: {away}" if away else failure or "the signer has not answered"
        return f"unsigned since {_utc(since)} ({late_ns / 1e9:.0f} s): {why}"


def _utc(ns: int) -> str:
    return dt.datetime.fromtimestamp(ns / 1e9, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
