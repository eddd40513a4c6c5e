"""The wish to stop, told by a signal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Set by signals, waited for by the main thread.

    A handler runs in the main thread between two of its instructions, also inside `threading.Event.wait`:
    an event that is set there waits for ever for the lock that its own thread holds. This takes no lock.
    """

    def __init__(self) -> None:
        self._set = False
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def on_signals(self, told: Callable[[], None]) -> None:
        """Ctrl-C, SIGTERM and SIGHUP (not under nohup) set it; the first calls `told`, in its handler."""

        def handler(*_: object) -> None:
            if not self._set:
                told()
            self.set()

        for number in _SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def set(self) -> None:
        """Set it, from anywhere."""
        self._set = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"\0")  # nobody reads it: each later wait returns at once

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, or for so long; whether it is set."""
        if not self._set:
            select.select([self._reader], [], [], seconds)
        return self._set
