"""The system that the demo talks to: what `sluicegate up` runs, in data planes that accept faults.

This is the only place that allows fault injection. `up` has neither an option nor a setting for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from policy_engine.embedded.up import run


def main() -> int:
    """Entry point: the state folder."""
    overrides = dict.fromkeys(("admission_port", "api_port", "agents_port"), 0)
    timing = {"verdict_seconds": 5.0, "reconcile_seconds": 0.25}
    return run({"state_dir": Path(sys.argv[1]), **overrides, **timing}, allow_faults=True)


if __name__ == "__main__":
    sys.exit(main())
