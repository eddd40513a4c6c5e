"""The system that the demo talks to: what `sluicegate up` runs, in data planes that accept faults.

This is the only place that allows fault injection. `up` has neither an option nor a setting for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

from policy_engine.embedded.up import run

PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def _end_with_the_driver() -> None:
    """Ask the kernel for SIGTERM when whoever started this process is gone: nothing is left running."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> int:
    """Entry point: the state folder."""
    _end_with_the_driver()
    overrides = dict.fromkeys(("admission_port", "api_port", "agents_port"), 0)
    timing = {"verdict_seconds": 5.0, "reconcile_seconds": 0.25}
    return run({"state": Path(sys.argv[1]), **overrides, **timing}, allow_faults=True)


if __name__ == "__main__":
    sys.exit(main())
