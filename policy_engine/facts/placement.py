"""Where a pod may be put: nodeName, nodeSelector and required node affinity. Preferences bind nobody.

Labels of named nodes are kept only under `node-restriction.kubernetes.io/`: a kubelet may set the others
of its own node (decide.md section 5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from policy_engine.facts.notes import Notes, items, mapping

RESTRICTED: Final = "node-restriction.kubernetes.io/"
_NODE_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})


def placement_facts(spec: Mapping[str, Any], path: str, notes: Notes) -> dict[str, Any]:
    """The `placement` of a PodSpec, which stands at `path`."""
    get = spec.get
    selector = get("nodeSelector")
    placement: dict[str, Any] = {
        "nodeSelector": _labels(selector, f"{path}.nodeSelector", notes) if selector else {},
        "required": [],
    }
    named: list[str] = []
    node = get("nodeName")
    if node:
        if type(node) is not str or _NODE_NAME.fullmatch(node) is None:
            notes.bad(f"{path}.nodeName", "a node name is due here")
        else:
            placement["nodeName"] = node
            named.append(node)
    affinity = get("affinity")
    if affinity:
        placement["required"] = _required(affinity, f"{path}.affinity", named, notes)
    if named:
        placement["nodes"] = _nodes(named, path, notes)
    return placement


def _labels(value: Any, path: str, notes: Notes) -> dict[str, str]:
    out: dict[str, str] = {}
    for key, label in mapping(value, path, notes).items():
        if type(label) is str and key.isascii():
            out[key] = label
        else:
            notes.bad(path, "a map of label names to strings is due here")
    return out


def _required(affinity: Any, path: str, named: list[str], notes: Notes) -> list[list[dict[str, Any]]]:
    node = mapping(mapping(affinity, path, notes).get("nodeAffinity"), f"{path}.nodeAffinity", notes)
    at = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    required = mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"), at, notes)
    at = f"{at}.nodeSelectorTerms"
    terms = []
    for value in items(required.get("nodeSelectorTerms"), at, notes):
        term = mapping(value, at, notes)
        expressions = [
            *_expressions(term.get("matchExpressions"), f"{at}.matchExpressions", notes),
            *[
                {**e, "field": True}
                for e in _expressions(term.get("matchFields"), f"{at}.matchFields", notes)
            ],
        ]
        named += [n for e in expressions if "field" in e for n in e["values"] if _NODE_NAME.fullmatch(n)]
        terms.append(expressions)
    return terms


def _expressions(value: Any, path: str, notes: Notes) -> list[dict[str, Any]]:
    out = []
    for part in items(value, path, notes):
        entry = mapping(part, path, notes)
        key, operator = entry.get("key"), entry.get("operator")
        values = items(entry.get("values"), path, notes)
        texts = type(key) is str and type(operator) is str and all(type(v) is str for v in values)
        if not texts or operator not in _OPERATORS:
            notes.bad(path, "a node selector needs key, operator and a list of strings")
            continue
        out.append({"key": key, "op": operator, "values": list(values)})
    return out


def _nodes(named: list[str], path: str, notes: Notes) -> dict[str, dict[str, str]]:
    nodes = {}
    for name in dict.fromkeys(named):
        labels = notes.lookup.node_labels(name)
        if labels is None:
            notes.missing("Node", name, f"{path}.nodeName")
        else:
            nodes[name] = {k: v for k, v in labels.items() if k.startswith(RESTRICTED) and k.isascii()}
    return nodes
