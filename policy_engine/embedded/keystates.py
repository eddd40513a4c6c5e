"""What the gate asks of the journal, kept in memory: whether a link is keyed, parked, since when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from evidence.errors import EvidenceError
from evidence.logs import get_logger
from keymgmt.journal import Journal
from policy_engine.gate.gather import KeyState

REFRESH_SECONDS: Final = 2.0  # other replicas write too; our own conductor rings
log = get_logger("policy_engine.keystates")


class KeyStates:
    """Refreshed when the conductor writes, and every two seconds."""

    def __init__(self, journal: Callable[[], Journal], links: Callable[[], Iterable[str]]) -> None:
        self._journal = journal
        self._links = links
        self._states: dict[str, KeyState] = {}
        self._changed: set[str] = set()
        self._rung = asyncio.Event()

    def get(self, link: str) -> KeyState:
        """The journal's word on a link; not keyed when nothing is known."""
        return self._states.get(link, KeyState())

    def ring(self, link: str, *_: Any) -> None:
        """The conductor wrote about a link: read it again soon. Call from the event loop."""
        self._changed.add(link)
        self._rung.set()

    async def refresh(self, links: Iterable[str] | None = None) -> None:
        """Read the rows of these links, of every link without."""
        for link in self._links() if links is None else links:
            loaded = await self._journal().load(link)
            live = loaded.entry.live
            self._states[link] = KeyState(
                keyed=live is not None or loaded.entry.last_end in {"complete", "rekeyed"},
                parked=loaded.open is not None and bool(loaded.open.parked),
                key_since_ns=int(live["born_ns"]) if live is not None else 0,
            )

    async def run(self) -> None:
        """Refresh until cancelled: what was rung for at once, everything every `REFRESH_SECONDS`."""
        all_due = time.monotonic()
        while True:
            self._rung.clear()
            changed, self._changed = self._changed, set()
            everything = time.monotonic() >= all_due
            if everything:
                all_due = time.monotonic() + REFRESH_SECONDS
            try:
                await self.refresh(None if everything else changed)
            except EvidenceError as error:
                log.warning("key_states_stale", reason=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(all_due - time.monotonic()):
                    await self._rung.wait()
