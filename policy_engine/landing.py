"""Landing: the sites that a pod may be put in, from its placement and its cluster's site map. Pure.

A node's site is the value of the Cluster's site label, a `node-restriction.kubernetes.io/` label that a
kubelet may not set. Candidates are every mapped value, "another value", and "no label": such nodes may stand
in any site of the cluster. So a selector narrows only when it demands one of some values. What other labels
say is not believed. A value that the Cluster does not map, or a selector that nothing can match, may land
anywhere: it is some node of this cluster, and which site that is nobody has declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from policy_engine.limits import LIMITS
from policy_engine.resources.model import Cluster

_INT: Final = re.compile(r"([+-]?)([0-9]+)", re.ASCII)
_INT64_DIGITS: Final = 19


class _Other(Enum):
    """A value of the site label that neither the Cluster nor the placement names."""

    VALUE = "other"


_Value: TypeAlias = str | _Other | None  # None: a node without the label


def landing(path: str, placement: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """`{pod, sites, unmapped}` of one pod.

    Args:
        path: of the pod in its object.
        placement: as facts give it.
        cluster: whose site label and map apply.
    """
    label = cluster.site_label
    wanted = placement["nodeSelector"].get(label)
    required = placement["required"]
    node = placement.get("nodeName")
    free = (wanted is None and not required and node is None) or _endless(required)
    if len(cluster.sites) == 1 or free:
        return {"pod": path, "sites": sorted(cluster.sites), "unmapped": []}
    candidates = _candidates(placement, label, cluster)
    values: set[_Value] = {v for v in candidates if wanted is None or v == wanted}
    if required:
        nodes = placement.get("nodes", {})
        values = {v for v in values if any(_term(term, v, label, nodes) for term in required)}
    if node is not None:
        labels = placement.get("nodes", {}).get(node)
        if labels is not None:  # an unknown node may carry any value; facts call it unresolved
            values &= {labels.get(label)}
    return {"pod": path, **_sites(values, cluster)}


def _endless(required: Iterable[Iterable[Mapping[str, Any]]]) -> bool:
    """Whether there is more to compare than a question may cost (each value meets each expression)."""
    return sum(1 + len(e["values"]) for term in required for e in term) > LIMITS.placement_values


def _candidates(placement: Mapping[str, Any], label: str, cluster: Cluster) -> set[_Value]:
    """Mapped values, "another value", "no label", and every value that the placement itself names."""
    values: set[_Value] = {*cluster.site_labels, _Other.VALUE, None, placement["nodeSelector"].get(label)}
    for term in placement["required"]:
        for expression in term:
            if expression["key"] == label and "field" not in expression:
                values.update(expression["values"])
    values.update(labels.get(label) for labels in placement.get("nodes", {}).values())
    return values


def _sites(values: Iterable[_Value], cluster: Cluster) -> dict[str, Any]:
    sites: set[str] = set()
    unmapped = set()
    for value in values:
        if value is None or isinstance(value, _Other):
            sites.update(cluster.sites)
        elif value in cluster.site_labels:
            sites.add(cluster.site_labels[value])
        else:
            unmapped.add(value)
    anywhere = unmapped or not sites
    return {"sites": sorted(cluster.sites if anywhere else sites), "unmapped": sorted(unmapped)}


def _term(
    term: Iterable[Mapping[str, Any]], value: _Value, label: str, nodes: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether a node with this site label may match the term. An empty term matches nothing."""
    expressions = list(term)
    return bool(expressions) and all(_matches(e, value, label, nodes) for e in expressions)


def _matches(
    expression: Mapping[str, Any], value: _Value, label: str, nodes: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether the expression lets such a node through; about other labels it might."""
    operator, values = expression["op"], expression["values"]
    if "field" in expression:
        # metadata.name: the named nodes decide. A node that is not known may carry any value.
        if operator != "In" or expression["key"] != "metadata.name":
            return True
        return any(n not in nodes or nodes[n].get(label) == value for n in values)
    if expression["key"] != label:
        return True
    return _holds(operator, value, values)


def _holds(operator: str, value: _Value, values: Sequence[str]) -> bool:
    """Kubernetes' meaning: NotIn and DoesNotExist match a node without the label."""
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    bound = _int64(values[0]) if len(values) == 1 else None
    if bound is None or value is None:
        return False
    if not isinstance(value, str):
        return True
    number = _int64(value)
    return number is not None and (number > bound if operator == "Gt" else number < bound)


def _int64(text: str) -> int | None:
    """As the scheduler reads it: a sign, decimal digits, within 64 bits; else None and nothing matches."""
    match = _INT.fullmatch(text)
    digits = match[2].lstrip("0") if match else ""
    if match is None or len(digits) > _INT64_DIGITS:
        return None
    number = int(match[1] + (digits or "0"))
    return number if -(2**63) <= number < 2**63 else None
