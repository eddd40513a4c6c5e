"""Landing: the sites that a pod may be put in, from its placement and its cluster's site map. Pure.

A node's site is the value of the Cluster's site label, a `node-restriction.kubernetes.io/` label that a
kubelet may not set. Candidates are every mapped value, and "no label": a node without it may stand in any
site of the cluster. So a selector narrows only when it demands a value. What other labels say is not
believed. A value that the Cluster does not map, or a selector that nothing can match, may land anywhere:
it is some node of this cluster, and which site that is nobody has declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from policy_engine.resources.model import Cluster


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
    if len(cluster.sites) == 1 or (wanted is None and not required and node is None):
        return {"pod": path, "sites": sorted(cluster.sites), "unmapped": []}
    candidates = _candidates(placement, label, cluster)
    values: set[str | None] = {v for v in candidates if wanted is None or v == wanted}
    if required:
        nodes = placement.get("nodes", {})
        values = {v for v in values if any(_term(term, v, label, nodes) for term in required)}
    if node is not None:
        labels = placement.get("nodes", {}).get(node)
        if labels is not None:  # an unknown node may carry any value; facts call it unresolved
            values &= {labels.get(label)}
    return {"pod": path, **_sites(values, cluster)}


def _candidates(placement: Mapping[str, Any], label: str, cluster: Cluster) -> set[str | None]:
    """Mapped values, "no label", and every value that the placement itself names."""
    values: set[str | None] = {*cluster.site_labels, None, placement["nodeSelector"].get(label)}
    for term in placement["required"]:
        for expression in term:
            if expression["key"] == label and "field" not in expression:
                values.update(expression["values"])
    values.update(labels.get(label) for labels in placement.get("nodes", {}).values())
    return values


def _sites(values: Iterable[str | None], cluster: Cluster) -> dict[str, Any]:
    sites: set[str] = set()
    unmapped = set()
    for value in values:
        if value is None:
            sites.update(cluster.sites)
        elif value in cluster.site_labels:
            sites.add(cluster.site_labels[value])
        else:
            unmapped.add(value)
    anywhere = unmapped or not sites
    return {"sites": sorted(cluster.sites if anywhere else sites), "unmapped": sorted(unmapped)}


def _term(
    term: Iterable[Mapping[str, Any]], value: str | None, label: str, nodes: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether a node with this site label may match the term. An empty term matches nothing."""
    expressions = list(term)
    return bool(expressions) and all(_matches(e, value, label, nodes) for e in expressions)


def _matches(
    expression: Mapping[str, Any], value: str | None, label: str, nodes: Mapping[str, Mapping[str, str]]
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
    return _holds(operator, value, tuple(values))


@lru_cache(maxsize=1024)
def _holds(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    """Kubernetes' meaning: NotIn and DoesNotExist match a node without the label."""
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or len(values) != 1 or not (_is_int(value) and _is_int(values[0])):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _is_int(value: str) -> bool:
    return value.lstrip("-").isdecimal() and value.isascii() and len(value) < 19
