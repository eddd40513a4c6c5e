"""One container: its image, the connections that its well-known variables name, its extended resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from policy_engine.facts.images import image_fields
from policy_engine.facts.notes import Notes, text
from policy_engine.facts.variables import read_env

_SUFFIX: Final = {
    "": Fraction(1),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("num kMGTPE", start=-3) if unit != " "},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,24}(?:\.[0-9]{0,24})?|\.[0-9]{1,24})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?", re.ASCII
)


def container_facts(
    container: Mapping[str, Any], path: str, role: str, pod: dict[str, Any], notes: Notes
) -> tuple[str, bool, dict[str, int]] | None:
    """Reads one container into `pod`; returns (role, is a sidecar, extended resources) if it asks for any."""
    get = container.get
    name = text(get("name"))
    ref = get("image")
    if type(ref) is str and ref:
        add_image(ref, pod, notes, name=name, role=role, path=f"{path}.image")
    elif notes.strict or ref is not None:
        notes.bad(f"{path}.image", "an image reference is due here")
    env = get("env")
    if env is not None:
        read_env(env, name, f"{path}.env", pod["endpoints"], notes)
    resources = get("resources")
    if not resources:
        return None
    if type(resources) is not dict:
        notes.bad(f"{path}.resources", "a map is due here")
        return None
    found = _extended(resources, f"{path}.resources", notes)
    return (role, get("restartPolicy") == "Always", found) if found else None


def add_image(ref: str, pod: dict[str, Any], notes: Notes, *, name: str, role: str, path: str) -> None:
    """Adds one image as written, parsed or marked invalid (which is also noted as unreadable)."""
    parsed = image_fields(ref)
    pod["images"].append({"container": name, "role": role, **parsed})
    notes.images.add(parsed["ref"])
    if "invalid" in parsed:
        notes.bad(path, f"the image reference {parsed['invalid']}")


def _extended(resources: Mapping[str, Any], path: str, notes: Notes) -> dict[str, int]:
    """Extended resources (a domain that is not Kubernetes' own) of one container."""
    found: dict[str, int] = {}
    for part in ("limits", "requests"):
        amounts = resources.get(part)
        if amounts is None:
            continue
        if type(amounts) is not dict:
            notes.bad(f"{path}.{part}", "a map is due here")
            continue
        for key, value in amounts.items():
            if "/" not in key or key.partition("/")[0].endswith("kubernetes.io"):
                continue
            amount = quantity(value) if key.isascii() else None
            if amount is None:
                notes.bad(f"{path}.{part}", "an extended resource needs a whole number")
            elif amount > found.get(key, -1):
                found[key] = amount
    return found


def quantity(value: Any) -> int | None:
    """A whole Kubernetes quantity below 2**53 (`8`, "8", "1k", "8000m", "1e1"), else None."""
    if type(value) is int:
        return value if 0 <= value < 2**53 else None
    if type(value) is str and value.isdecimal() and value.isascii() and len(value) < 16:
        return int(value)
    match = _QUANTITY.fullmatch(value) if type(value) is str else None
    if match is None:
        return None
    unit = match[2] or ""
    amount = Fraction(match[1]) * (_SUFFIX.get(unit) or Fraction(10) ** int(unit[1:]))
    return int(amount) if amount.denominator == 1 and amount < 2**53 else None


def accelerators(need: list[tuple[str, bool, dict[str, int]]]) -> dict[str, int]:
    """What the pod needs at once: containers and sidecars together, or the largest init container."""
    total: dict[str, int] = {}
    for entry in need:
        if entry[0] != "init" or entry[1]:
            for key, amount in entry[2].items():
                total[key] = min(total.get(key, 0) + amount, 2**53 - 1)
    for entry in need:
        if entry[0] == "init":
            for key, amount in entry[2].items():
                total[key] = max(total.get(key, 0), amount)
    return total
