"""Answering many waiters of one group commit from the thread that made it durable."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future

Waiting = asyncio.Future[None] | Future[None]


def answer(futures: list[Waiting], error: Exception | None) -> None:
    """End futures from the worker thread: one wake-up for each event loop, however many wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for future in futures:
        if isinstance(future, Future):
            _end(future, error)
        else:
            by_loop.setdefault(future.get_loop(), []).append(future)
    for loop, waiting in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_end_all, waiting, error)


def _end_all(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if not future.done():  # a waiter that was cancelled
            _end(future, error)


def _end(future: Waiting, error: Exception | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
