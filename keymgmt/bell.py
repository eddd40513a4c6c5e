"""Wake-ups inside one process: an acknowledgement wakes the conductor, an operation wakes the waiting poll.

Only a shortening of waits: every waiter also looks at the journal by itself, so a missing ring (another
replica wrote) costs time and nothing else. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib


class Bell:
    """Named events; a ring is remembered until somebody waited for it."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def ring(self, name: str) -> None:
        """Wake whoever waits for `name`, or the next who will."""
        self._event(name).set()

    def clear(self, name: str) -> None:
        """Forget earlier rings; call before looking at what the ring announces."""
        self._event(name).clear()

    async def wait(self, name: str, seconds: float) -> bool:
        """Wait for a ring; False when the time passed."""
        # Not `wait_for`: before Python 3.12 it swallows a cancellation that meets a ring, and the task stays.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._event(name).wait()
            return True
        return False

    def _event(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())
