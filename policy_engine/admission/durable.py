"""Waiting for the spool: one future per frame, completed batch by batch, failed when its time is up.

The spool's worker completes frames in order, many per fdatasync. This wakes the loop once per batch instead
of once per frame, and keeps the deadlines of all waiting frames with one timer. A frame whose time is up may
still become durable: its decision is then in the ledger, but was answered as late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Final

from evidence.spool import Spool
from policy_engine.errors import DecisionLate

_SWEEP_S: Final = 0.05  # seconds between two looks at deadlines while frames wait


class DurableQueue:
    """Appends to one spool from one event loop."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Future[None], asyncio.Future[None], float]] = deque()
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None

    def append(self, seq: int, frame: bytes, deadline: float) -> asyncio.Future[None]:
        """Queue a frame under the spool's `next_seq`.

        Args:
            seq: The number that the record carries.
            frame: Its octets.
            deadline: Loop time after which the answer would come too late.

        Returns:
            Done when the frame is durable; fails with SpoolUnwritable or DecisionLate.

        Raises:
            SpoolUnwritable: At once, when the spool takes no frame.
        """
        done = self._loop.create_future()
        source = self._spool.submit(seq, frame)
        self._waiting.append((source, done, deadline))
        source.add_done_callback(self._wake)
        if self._timer is None:
            self._timer = self._loop.call_later(_SWEEP_S, self._sweep)
        return done

    def _wake(self, _source: Future[None]) -> None:
        # In the spool's worker. A lost update of the flag costs one more wake-up, never one too few: `_drain`
        # clears it before it looks.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        waiting = self._waiting
        while waiting and waiting[0][0].done():
            source, done, _ = waiting.popleft()
            if done.done():
                continue
            failure = source.exception()
            if failure is None:
                done.set_result(None)
            else:
                done.set_exception(failure)

    def _sweep(self) -> None:
        now = self._loop.time()
        for _, done, deadline in self._waiting:
            if deadline <= now and not done.done():
                done.set_exception(DecisionLate("the record was not durable in time"))
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep) if self._waiting else None
