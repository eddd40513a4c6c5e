"""Which builtins a policy may use: those that Wasm evaluates itself, and nothing that is not repeatable.

A builtin that the host would have to supply costs about 350 microseconds a call, and a wrong one lets
deny rules fall silent; so packs on the admission path use none. Which ones are native is not looked up
in a list: OPA compiles a module that calls every builtin, and the module itself names what it would ask
of its host. ``rego/capabilities.json`` is the answer, committed; `build --check` makes it again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from policy_engine.rules import opa
from policy_engine.rules.wasm import required_builtins

# Operators and what the compiler itself inserts; `print`, `trace`, test and metadata helpers stay out.
_CORE: Final = frozenset(
    {
        "and", "assign", "div", "eq", "equal", "gt", "gte", "internal.member_2", "internal.member_3",
        "lt", "lte", "minus", "mul", "neq", "or", "plus", "rem",
    }
)  # fmt: skip
_LEFT_OUT: Final = frozenset(
    {
        "all", "any", "cast_array", "cast_boolean", "cast_null", "cast_object", "cast_set", "cast_string",
        "internal.print", "internal.template_string", "internal.test_case", "net.cidr_overlap", "print",
        "re_match", "rego.metadata.chain", "rego.metadata.rule", "set_diff", "trace",
    }
)  # fmt: skip
_FEATURES: Final = ("keywords_in_refs", "rego_v1")


def generate() -> bytes:
    """The capabilities file: OPA's current ones, reduced; sorted, one builtin a line."""
    current = opa.run_json(["capabilities", "--current"])
    asked = [item for item in current["builtins"] if item["name"] not in _CORE | _LEFT_OUT]
    host = _host_builtins(asked)
    kept = [
        {"name": item["name"], "decl": _bare(item["decl"]), **_infix(item)}
        for item in current["builtins"]
        if item["name"] in _CORE or (item in asked and item["name"] not in host and not _varies(item))
    ]
    kept.sort(key=lambda item: str(item["name"]))
    lines = ",\n".join("    " + json.dumps(item, sort_keys=True) for item in kept)
    features = json.dumps(list(_FEATURES))
    text = f'{{\n  "allow_net": [],\n  "builtins": [\n{lines}\n  ],\n  "features": {features}\n}}\n'
    return text.encode("utf-8")


def _bare(node: Any) -> Any:
    """A declaration without its prose."""
    if isinstance(node, dict):
        return {name: _bare(value) for name, value in node.items() if name not in {"description", "name"}}
    return [_bare(value) for value in node] if isinstance(node, list) else node


def _infix(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("infix", "relation") if name in item}


def _varies(item: Mapping[str, Any]) -> bool:
    """Builtins whose answer depends on more than their arguments."""
    return bool(item.get("nondeterministic"))


def _host_builtins(items: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Names that a module compiled to Wasm would ask of its host."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe.rego").write_text(_probe(items), encoding="utf-8")
        return frozenset(required_builtins(opa.compile_wasm(Path(folder), "probe/all")))


def _probe(items: Iterable[Mapping[str, Any]]) -> str:
    """A module that calls every builtin with untyped arguments."""
    lines = ["package probe", ""]
    for item in items:
        count = len(item["decl"].get("args") or [])
        arguments = [f"input.a{index}" for index in range(count)]
        if item.get("relation"):  # `walk`: its last place is the result
            lines.append(f"all contains {json.dumps(item['name'])} if {item['name']}({arguments[0]}, _)")
        else:
            call = f"{item['name']}({', '.join(arguments)})"
            lines.append(f"all contains [{json.dumps(item['name'])}, x] if x := {call}")
    return "\n".join(lines) + "\n"
