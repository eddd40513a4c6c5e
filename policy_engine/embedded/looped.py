"""The event loop in its own thread, and the few questions that the main thread asks of it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

import uvloop

from policy_engine.embedded import accept
from policy_engine.embedded.system import Parts, System
from policy_engine.errors import StartError

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


class LoopThread:
    """Runs a `System`; every method may be called from the main thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started: Future[System] = Future()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="event-loop")
        self._stop_error: Exception | None = None

    def start(self) -> None:
        """Start and wait until the doors are open.

        Raises:
            Exception: Whatever stopped the start.
        """
        self._thread.start()
        try:
            self._started.result(START_SECONDS)
        except TimeoutError:
            raise StartError("the control plane did not start in time", fix="see the log") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            ports = ", ".join(f"{name} {port}" for name, port in self._parts.ports.items())
            raise StartError(
                f"a port is taken (wanted: {ports})", fix="stop who has it, or use --ports auto"
            ) from None

    def stop(self) -> None:
        """Stop cleanly and end the thread; harmless when it never started."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def links(self) -> list[str]:
        """Names of keyed links."""
        return sorted(self._system.links)

    def waiting_links(self) -> list[str]:
        """Keyed links that are not yet proved encrypted and open."""
        postures = self._system.gate.postures()
        return [
            name
            for name in self.links()
            if name not in postures or (postures[name].posture, postures[name].state) != ("encrypted", "open")
        ]

    def unapproved(self) -> list[str]:
        """A line about declared state that allows more than before and was not approved; none otherwise."""
        return accept.warning(self._system.unapproved)

    def ports(self) -> Mapping[str, int]:
        """Listener name -> TCP port."""
        return {name: self._system.listeners.port(name) for name in ("admission", "api", "agents")}

    def failure(self) -> str | None:
        """Why a part of the system ended, ``None`` while all run."""
        failed = self._system.tasks.failed
        if failed.done():
            return failed.result()
        return None if self._thread.is_alive() else "the event loop ended"

    @property
    def system(self) -> System:
        """The running system, for its immutable parts."""
        return self._system

    @property
    def _system(self) -> System:
        return self._started.result(0)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        system = System(self._parts)
        try:
            await system.start()
        except BaseException as error:  # whatever it is, the main thread waits for it and raises it
            self._started.set_exception(error)
            return
        self._started.set_result(system)
        await self._stop.wait()
        await system.stop()
