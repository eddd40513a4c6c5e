"""Deadlines of decisions that wait for the spool: one timer for all of them.

A frame whose time is up may still become durable: its decision is then in the ledger, but was answered as
late (and is named in the next `decision_summary`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from evidence.spool import Spool
from policy_engine.errors import DecisionLate

_SWEEP_S: Final = 0.05  # seconds between two looks at deadlines while frames wait


class DurableQueue:
    """Appends to one spool from one event loop."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def append(self, seq: int, frame: bytes, left_s: float) -> asyncio.Future[None]:
        """Queue a frame under the spool's `next_seq`.

        Args:
            seq: The number that the record carries.
            frame: Its octets.
            left_s: Seconds after which the answer would come too late.

        Returns:
            Done when the frame is durable; fails with SpoolUnwritable or DecisionLate.

        Raises:
            SpoolUnwritable: At once, when the spool takes no frame.
        """
        future = self._spool.submit(seq, frame)
        self._waiting.append((future, self._loop.time() + left_s))
        if self._timer is None:
            self._timer = self._loop.call_later(_SWEEP_S, self._sweep)
        return future

    def _sweep(self) -> None:
        now, waiting = self._loop.time(), self._waiting
        # Frames end in order, so what is done stands at the left.
        while waiting and waiting[0][0].done():
            waiting.popleft()
        for future, deadline in waiting:
            if deadline <= now and not future.done():
                future.set_exception(DecisionLate("the record was not durable in time"))
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep) if waiting else None
