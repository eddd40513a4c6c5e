"""Environment variables of one container: the connections that well-known names set.

A value may name variables that stand before it (`$(NAME)`), and the kubelet puts them in: so is it read here,
else `$(SCHEME)://host` would hide what it is. Values of other variables serve for this and never leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy_engine.facts.declared import WELL_KNOWN, endpoint
from policy_engine.facts.notes import Notes
from policy_engine.limits import LIMITS


def read_env(env: Any, name: str, path: str, endpoints: list[dict[str, Any]], notes: Notes) -> None:
    """Adds the connections that well-known variables of the container `name` set."""
    if type(env) is not list:
        notes.bad(path, "a list is due here")
        return
    expanded: list[Any] | None = None
    for index, entry in enumerate(env):
        if type(entry) is not dict:
            notes.bad(path, "a list of variables is due here")
            continue
        variable = entry.get("name")
        if type(variable) is not str or variable not in WELL_KNOWN:
            continue
        value = entry.get("value")
        if type(value) is str and "$(" in value:
            expanded = _expanded(env, path, notes) if expanded is None else expanded
            value = expanded[index]
        found = endpoint(name, variable, value)
        if found is not None:
            endpoints.append(found)


def _expanded(env: list[Any], path: str, notes: Notes) -> list[Any]:
    """Every value as the process will see it, as far as the object says."""
    known: dict[str, str] = {}
    out: list[Any] = []
    left = LIMITS.env_chars
    for entry in env:
        value = entry.get("value") if type(entry) is dict else None
        if type(value) is str:
            value = _expand(value, known) if left > 0 else value
            left -= len(value)
            if type(entry.get("name")) is str:
                known[entry["name"]] = value[: LIMITS.env_value_chars]
        out.append(value)
    if left < 0:
        notes.bad(path, "variables that name each other are too long to be followed")
    return out


def _expand(value: str, known: Mapping[str, str]) -> str:
    """`$(NAME)` replaced where it is known, `$$` is a dollar sign: the rules of the kubelet."""
    parts: list[str] = []
    start = 0
    while (at := value.find("$", start)) >= 0:
        mark = value[at + 1 : at + 2]
        end = value.find(")", at) if mark == "(" else -1
        if mark == "(" and end < 0:
            break
        if mark == "(":
            parts += (value[start:at], known.get(value[at + 2 : end], value[at : end + 1]))
            start = end + 1
        else:
            parts.append(value[start : at + 1])
            start = at + (2 if mark == "$" else 1)
    return "".join([*parts, value[start:]])
