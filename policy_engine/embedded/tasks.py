"""The long-running parts of one event loop: kept by reference, watched, and ended in a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from evidence.logs import get_logger

END_SECONDS: Final = 10.0
log = get_logger("policy_engine.embedded")


class Tasks:
    """Make and use it inside the loop.

    Attributes:
        failed: Gets the name and error of the first part that ends by an exception.
    """

    def __init__(self) -> None:
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a part."""
        task = self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)

    async def cancel(self, *, but: str) -> None:
        """Cancel every part but one; one that does not end within `END_SECONDS` is named and left behind."""
        others = {task for name, task in self._tasks.items() if name != but}
        for task in others:
            task.cancel()
        await self._wait(others, END_SECONDS)

    async def join(self, name: str, seconds: float) -> None:
        """Wait for a part that was told to end."""
        await self._wait({task for key, task in self._tasks.items() if key == name}, seconds)

    @staticmethod
    async def _wait(tasks: set[asyncio.Task[None]], seconds: float) -> None:
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            log.error("part_does_not_end", part=task.get_name(), after_s=seconds)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that ends by an exception ends the system: half a control plane is worse than none."""
        if task.cancelled() or task.exception() is None or self.failed.done():
            return
        error = task.exception()
        log.error("part_failed", part=task.get_name(), error=type(error).__name__, reason=str(error)[:256])
        self.failed.set_result(f"{task.get_name()}: {type(error).__name__}")
