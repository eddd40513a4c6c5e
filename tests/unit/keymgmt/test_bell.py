"""Rings: remembered, bounded waits, and no cancellation is lost in them."""

import asyncio
import contextlib

import pytest

from keymgmt.bell import Bell


async def test_a_ring_is_remembered_until_somebody_waited() -> None:
    bell = Bell()
    bell.ring("link")
    assert await bell.wait("link", 5)
    bell.clear("link")
    assert not await bell.wait("link", 0.01)


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_meets_a_ring_is_not_lost(turns: int) -> None:
    bell, looks = Bell(), 0

    async def follow() -> None:
        nonlocal looks
        while looks < 50:
            bell.clear("link")
            looks += 1
            await bell.wait("link", 0.01)

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.005)
    bell.ring("link")
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
