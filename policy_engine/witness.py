"""Witness: that the control itself was there, all the time, and in which shape.

Every minute one ``heartbeat`` per component, with a digest of what it serves: declared state, bundle.
A gap of heartbeats is a gap of the control; a changed digest dates a change.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from evidence import outbox
from evidence.canonical import canonical
from evidence.database import Database
from evidence.errors import EvidenceError
from evidence.logs import get_logger
from evidence.records import Draft

SOURCE: Final = "witness"
PERIOD_SECONDS: Final = 60.0
Snapshot = Mapping[str, Any]
log = get_logger("policy_engine.witness")


class Witness:
    """Writes heartbeats.

    Args:
        database: Where the outbox is.
        instance: Name of this process's start.
        components: Name -> what it serves now, JSON-able; ``status`` in it is ``ok`` or a reason.
        clock: Wall clock in nanoseconds.
        period: Seconds between two beats.
    """

    def __init__(
        self,
        database: Database,
        instance: str,
        components: Mapping[str, Callable[[], Snapshot]],
        clock: Callable[[], int],
        period: float = PERIOD_SECONDS,
    ) -> None:
        self._database = database
        self._instance = instance
        self._components = components
        self._clock = clock
        self._period = period

    def drafts(self, now_ns: int) -> list[Draft]:
        """One heartbeat per component. A component that cannot say its state beats as such."""
        made = []
        for name, snapshot in self._components.items():
            try:
                shown = dict(snapshot())
            except Exception as error:  # whatever ails a component, its beat says so and the others beat
                shown = {"status": f"could not tell: {type(error).__name__}"}
            status = str(shown.pop("status", "ok"))
            generation = shown.pop("generation", None)
            public = {
                "component": name,
                "instance": self._instance,
                "generation": generation,
                "status": status,
                "digest": hashlib.sha256(canonical(shown)).hexdigest(),
                "versions": shown.get("versions"),
            }
            made.append(Draft("heartbeat", "estate", SOURCE, now_ns, public))
        return made

    async def beat(self) -> None:
        """Write one beat of every component in one transaction."""
        now = self._clock()
        drafts = self.drafts(now)
        await self._database.write(lambda conn: [outbox.put(conn, draft, now_ns=now) for draft in drafts])

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            try:
                await self.beat()
            except EvidenceError as error:
                log.warning("heartbeat_failed", reason=str(error), fix=error.fix)
            await asyncio.sleep(self._period)
