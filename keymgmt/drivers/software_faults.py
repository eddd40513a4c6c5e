"""Fault injection for drills and the demonstration, only in a data plane started with --allow-faults.

The active faults are part of every read-back, so that posture and package can say `faults enabled`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from keymgmt.checks import is_count
from keymgmt.drivers import SaInstall
from keymgmt.drivers.software_secy import SecY
from keymgmt.errors import DriverRefused

NAMES: Final = (
    "encrypt_off",  # frames leave the SecY with readable data
    "protect_off",  # frames leave the SecY without a tag
    "wrong_key",  # the next SAs hold another key than the one derived; their check value is right
    "wrong_check",  # the next check values read back differ
    "drop_tx",  # nothing reaches the wire
    "drop_rx",  # nothing is taken from the wire
    "stall",  # each control answer is late by `ms`
    "freeze",  # the whole data plane stands still once for `ms`
)
DIRECTIONS: Final = ("tx", "rx", "both")
LONGEST_MS: Final = 60_000


class Faults:
    """Active faults of one data plane, and their effects."""

    def __init__(self, secy: SecY) -> None:
        self._secy = secy
        self._active: dict[str, Mapping[str, Any]] = {}

    def active(self) -> tuple[str, ...]:
        """Return the names of active faults, sorted, after the marker `allowed`."""
        return ("allowed", *sorted(self._active))

    def inject(self, name: str, params: Mapping[str, Any]) -> None:
        """Switch a fault on. `direction` (tx, rx, both) narrows wrong_key; `ms` times stall and freeze."""
        if name not in NAMES:
            raise DriverRefused("EINVAL", f"unknown fault; known: {', '.join(NAMES)}")
        if not is_count(params.get("ms", 0)) or params.get("direction", "both") not in DIRECTIONS:
            raise DriverRefused("EINVAL", "ms is a number of milliseconds, direction is tx, rx or both")
        if name == "freeze":
            _stand_still(params)
            return
        self._active[name] = dict(params)
        self._apply()

    def clear(self) -> None:
        """Switch all faults off; keys that were installed wrong stay wrong."""
        self._active.clear()
        self._apply()

    def is_on(self, name: str) -> bool:
        """Whether a fault is active."""
        return name in self._active

    def key(self, sa: SaInstall, direction: str) -> SaInstall:
        """Return the SA as this data plane will really hold it."""
        wrong = self._active.get("wrong_key")
        if wrong is None or wrong.get("direction", "both") not in (direction, "both"):
            return sa
        return replace(sa, sak=bytes(octet ^ 0x5A for octet in sa.sak))

    def check(self, value: str) -> str:
        """Return the check value as this data plane reads it back."""
        return value[::-1] if self.is_on("wrong_check") and value != value[::-1] else value

    def delay(self) -> None:
        """Stand still for the length of a stall."""
        if (stall := self._active.get("stall")) is not None:
            _stand_still(stall)

    def _apply(self) -> None:
        self._secy.encrypt = not self.is_on("encrypt_off")
        self._secy.protect = not self.is_on("protect_off")


def _stand_still(params: Mapping[str, Any]) -> None:
    time.sleep(min(params.get("ms", 1000), LONGEST_MS) / 1000)
