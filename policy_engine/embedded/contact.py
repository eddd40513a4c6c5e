"""When the key store last answered, told by whoever talked to it: the truth behind ``key_store`` in status.

A store that hangs gives no error for many seconds. So its state is the *age* of the last real answer,
computed when it is asked for, never a word that somebody set when something returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from keymgmt.errors import CustodyRefused, CustodyUnavailable

AWAY_SECONDS: Final = 3.0  # health is asked each half second, the ledger signs each second
_T = TypeVar("_T")


class Contact:
    """Last answer and last error of the key store. Safe between threads.

    Args:
        clock: Seconds that never go back.
        away_seconds: Silence for so long means away.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, away_seconds: float = AWAY_SECONDS
    ) -> None:
        self._clock, self._away = clock, away_seconds
        self._lock = threading.Lock()
        self._answered = clock()
        self._error = ""

    def answered(self) -> None:
        """It answered just now, as an active store does."""
        with self._lock:
            self._answered, self._error = self._clock(), ""

    def failed(self, error: str) -> None:
        """It did not, or not as an active store; an error alone makes it away at once."""
        with self._lock:
            self._error = error[:200]

    def call(self, do: Callable[[], _T]) -> _T:
        """Run one call and note how it went; a refusal is an answer too."""
        try:
            result = do()
        except CustodyRefused:
            self.answered()
            raise
        except CustodyUnavailable as error:
            self.failed(str(error))
            raise
        self.answered()
        return result

    @property
    def age_seconds(self) -> float:
        """Seconds since the last answer."""
        with self._lock:
            return self._clock() - self._answered

    @property
    def away(self) -> str:
        """Why it counts as away, with the age of the last answer; empty while it is active."""
        with self._lock:
            age, error = self._clock() - self._answered, self._error
        if not error and age <= self._away:
            return ""
        return f"no answer for {age:.0f} s" + (f" ({error})" if error else "")
