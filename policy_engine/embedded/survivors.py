"""Agents and data planes that outlived their `up`: found by their records, for `sluicegate status`."""

from __future__ import annotations

from collections.abc import Sequence

from keymgmt.processes import Spawned, survivor
from policy_engine.embedded.state import StateFolder


def survivors(state: StateFolder) -> list[Spawned]:
    """Living processes that records of this state folder name. A reused pid never passes."""
    records = sorted((state.folder("run") / "processes").glob("*.json"))
    return [found for record in records if (found := survivor(record)) is not None]


def told(found: Sequence[Spawned], state: StateFolder) -> list[str]:
    """What `status` says of them: who they are, and both ways on."""
    if not found:
        return ["  start it with `sluicegate up`"]
    return [
        f"  {len(found)} agents and data planes of an `up` that was killed still run:",
        *(f"    {one.role + '/' + one.name:<28} pid {one.pid}" for one in found),
        "  their paths close by themselves when their permits end",
        f"  adopt them: sluicegate up --state {state.root}",
        f"  end them:   kill {' '.join(str(one.pid) for one in found)}",
    ]
