"""Shared cases: data that `opa test`, the Wasm driver and an OPA server all run, with one expectation.

``rego/<pack>/cases/*.yaml`` is a list of::

    - note: what is shown, unique in the file
      input:
        base: name of a whole input in rego/cases.yaml      (or: facts, context, now in full)
        set: {/context/links/a-b/state: closed, ...}        JSON pointers (RFC 6901); "/-" appends
        drop: [/facts/pods/0/path]                          pointers to remove, after `set`
      want: [{rule, subject, path, params}]                 in any order; or `no_result`
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from policy_engine.errors import BuildRefused
from policy_engine.rules.engine import EngineInput, engine_input

NO_RESULT: Final = "no_result"
BASES: Final = "cases.yaml"
_DEFAULT_NOW: Final = "1790000000000000000"


@dataclass(frozen=True, slots=True)
class Case:
    """One expanded case.

    Attributes:
        name: ``<pack>/<file>: <note>``.
        input: What the engine is given: bytes and digests.
        want: Violations in any order, or ``None`` for no result.
        facts, context, now_ns: The parts of the input.
    """

    name: str
    input: EngineInput
    want: list[dict[str, Any]] | None
    facts: dict[str, Any]
    context: dict[str, Any]
    now_ns: int


def load(root: Path) -> list[Case]:
    """Every case below a rego folder.

    Raises:
        BuildRefused: A file is unreadable, a note repeats, or a pointer leads nowhere.
    """
    bases = _yaml(root / BASES)
    cases = [case for file in sorted(root.glob("*/cases/*.yaml")) for case in _file(file, bases)]
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BuildRefused(f"notes of cases repeat: {'; '.join(twice)}")
    return cases


def _file(file: Path, bases: Mapping[str, Any]) -> Iterator[Case]:
    for raw in _yaml(file):
        name = f"{file.parent.parent.name}/{file.stem}: {raw['note']}"
        try:
            yield _case(name, raw, bases)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BuildRefused(f"case {name}: cannot be put together ({error})") from None


def _case(name: str, raw: Mapping[str, Any], bases: Mapping[str, Any]) -> Case:
    given = raw["input"]
    whole = copy.deepcopy(bases[given["base"]] if "base" in given else given)
    for pointer, value in (given.get("set") or {}).items():
        _put(whole, pointer, copy.deepcopy(value))
    for pointer in given.get("drop") or []:
        _drop(whole, pointer)
    facts, context = whole["facts"], whole["context"]
    now_ns = int(whole.get("now", _DEFAULT_NOW))
    want = None if raw["want"] == NO_RESULT else list(raw["want"])
    return Case(name, engine_input(facts, context, now_ns), want, facts, context, now_ns)


def _walk(whole: Any, pointer: str) -> tuple[Any, str]:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    for step in steps[:-1]:
        whole = whole[int(step)] if isinstance(whole, list) else whole[step]
    return whole, steps[-1]


def _put(whole: Any, pointer: str, value: Any) -> None:
    parent, last = _walk(whole, pointer)
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    else:
        parent[int(last)] = value


def _drop(whole: Any, pointer: str) -> None:
    parent, last = _walk(whole, pointer)
    del parent[int(last) if isinstance(parent, list) else last]


def _yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BuildRefused(f"{file.name} cannot be read: {error}") from None
