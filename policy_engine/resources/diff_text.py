"""The text of `sluicegate diff`: stable, so that it can be compared and quoted in a review."""

from __future__ import annotations

import json
from typing import Any, Final

from policy_engine.resources.diff import Change, Difference

_SHOWN: Final = 80  # characters of one value
_MARKS: Final = {"added": "+", "removed": "-", "changed": "~"}


def render(difference: Difference) -> str:
    """What changes, what it means, what needs approval."""
    if difference.old_digest == difference.new_digest:
        return "no change"
    lines = [_head(difference)]
    if difference.links:
        lines.append("links")
        lines += [f"  {name}: {meaning}" for name, meaning in difference.links.items()]
    if difference.namespaces:
        lines.append("namespaces")
        for space in difference.namespaces:
            lines.append(f"  {space.cluster}/{space.namespace}")
            lines += [f"    gains {what}: {', '.join(names)}" for what, names in space.gains.items()]
            lines += [f"    loses {what}: {', '.join(names)}" for what, names in space.loses.items()]
    lines.append("changes")
    for change in difference.changes:
        lines += _change(change)
    return "\n".join(lines)


def _head(difference: Difference) -> str:
    count, widening = len(difference.changes), len(difference.widening)
    changes = f"{count} change{'s' if count != 1 else ''}"
    if not widening:
        return f"{changes}, none widens"
    return f"{changes}, {widening} of them widening: needs approval over digest {difference.new_digest}"


def _change(change: Change) -> list[str]:
    line = f"  {_MARKS[change.action]} {change.kind} {change.name}"
    if change.path:
        line += f" {change.path}: {_value(change.old)} -> {_value(change.new)}"
    return [line, f"      WIDENING: {change.widening}"] if change.widening else [line]


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
