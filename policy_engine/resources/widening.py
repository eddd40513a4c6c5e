"""Which changes of declared state widen: let more happen, or prove less, than before (decide.md section 3).

A table of fields, each with the direction that widens. What is not listed does not widen; what is listed
and unclear counts as widening, because an approval too many is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from policy_engine.resources.values import parse_duration

Widens = Callable[[Any, Any], bool]


def _any(old: Any, new: Any) -> bool:
    return bool(old != new)


def _more(old: Any, new: Any) -> bool:
    return not set(_list(new)) <= set(_list(old))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _to(*worse: Any) -> Widens:
    """A scale from strict to loose: moving along it widens."""
    order = list(worse)

    def widens(old: Any, new: Any) -> bool:
        return new in order and (old not in order or order.index(new) > order.index(old))

    return widens


def _longer(old: Any, new: Any) -> bool:
    return old is None or new is None or parse_duration(new) > parse_duration(old)


def _later(old: Any, new: Any) -> bool:
    return new is not None and (old is None or new > old)


_WEAK_TO_STRONG: Final = ("GCM-AES-128", "GCM-AES-XPN-128", "GCM-AES-256", "GCM-AES-XPN-256")

FIELDS: Final[dict[tuple[str, str], tuple[Widens, str]]] = {
    ("Site", "region"): (_any, "what counts as this region changes for all data and pods"),
    ("Site", "jurisdiction"): (_any, "what counts as this country changes for all data and pods"),
    ("Cluster", "sites"): (_more, "its pods may land in more sites"),
    ("Cluster", "siteLabel"): (_any, "another label decides in which site a node stands"),
    ("Cluster", "siteLabels"): (_any, "other label values decide in which site a node stands"),
    ("Cluster", "identity"): (_any, "another credential speaks for this cluster"),
    ("Cluster", "unbound"): (_to("deny", "warn", "ignore"), "namespaces without a binding are judged less"),
    ("Cluster", "unboundUntil"): (_later, "namespaces without a binding are only warned about for longer"),
    ("Cluster", "warnNamespaces"): (_more, "more namespaces without a binding are only warned about"),
    ("Cluster", "platformNamespaces"): (_more, "more namespaces are exempt"),
    ("Tenant", "jurisdictions"): (_more, "the tenant may work in more countries"),
    ("NamespaceBinding", "cluster"): (_any, "the grants move to another cluster"),
    ("NamespaceBinding", "namespace"): (_any, "the grants move to another namespace"),
    ("NamespaceBinding", "tenant"): (_any, "the grants move to another tenant"),
    ("NamespaceBinding", "regions"): (_more, "its pods may run in more regions"),
    ("NamespaceBinding", "datasets"): (_more, "it may read more datasets"),
    ("NamespaceBinding", "segments"): (_more, "it may read more segments"),
    ("NamespaceBinding", "undeclared"): (_to("deny", "closed-world"), "undeclared workloads are let in"),
    ("NamespaceBinding", "gate"): (
        _to("required", "advisory"),
        "a closed or unproved link no longer refuses",
    ),
    ("LinkProfile", "cipherSuite"): (_to(*reversed(_WEAK_TO_STRONG)), "a weaker cipher suite"),
    ("LinkProfile", "confidentialityOffset"): (_any, "part of every frame becomes readable"),
    ("LinkProfile", "mustSecure"): (_to(True, False), "unsecured frames are let through"),
    ("LinkProfile", "clearTags"): (_more, "more kinds of clear frames are allowed"),
    ("LinkProfile", "replayWindow"): (lambda a, b: b > a, "more replayed frames are accepted"),
    ("LinkProfile", "rotateEvery"): (_longer, "keys live longer"),
    ("LinkProfile", "softAge"): (_longer, "old keys are reported later"),
    ("LinkProfile", "hardAge"): (_longer, "old keys are used longer"),
    ("LinkProfile", "onHardAge"): (_to("close", "hold"), "a path stays open on an old key"),
    ("LinkProfile", "onControlLoss"): (_to("close", "hold"), "a path stays open without control"),
    ("LinkProfile", "maxHold"): (_longer, "a path stays open longer without control"),
    ("LinkProfile", "ttl"): (_longer, "permits last longer"),
    ("LinkProfile", "arm"): (_longer, "a path stays open longer after its agent dies"),
    ("Link", "encryption"): (_to("required", "none"), "the link may run in the clear"),
    ("Link", "profile"): (_any, "other rules of encryption and closing apply"),
    ("Link", "endpoints"): (_any, "another device, agent or site is an end of the link"),
    ("Dataset", "owner"): (_any, "the data get another owner"),
    ("Dataset", "sites"): (_more, "the data rest in more sites"),
    ("Dataset", "regions"): (_more, "the data may be read from more regions"),
    ("Dataset", "classification"): (
        _to("restricted", "confidential", "internal", "public"),
        "the data count as less sensitive",
    ),
    ("Segment", "dataset"): (_any, "the segment holds other data"),
    ("Segment", "tenant"): (_any, "the segment serves another tenant"),
    ("Segment", "site"): (_any, "the data rest in another site"),
    ("Flow", "from"): (_any, "reads get another way"),
    ("Flow", "to"): (_any, "reads get another way"),
    ("Flow", "links"): (_any, "reads take other links"),
}


def why_widens(kind: str, path: str, old: Any, new: Any) -> str:
    """Why a change of a field widens, or "" if it does not.

    Args:
        kind: of the object.
        path: field in the spec (`regions`, `endpoints[0].sci`); "" when the object was removed.
        old: JSON value before, or None.
        new: JSON value after, or None.
    """
    if not path:
        return ""  # removing an object takes grants away; a dangling rest is refused by `check`
    top = path.split(".", 1)[0].split("[", 1)[0]
    rule = FIELDS.get((kind, top))
    if rule is None:
        return ""
    widens, why = rule
    if path != top:  # below a map or a list of maps: any change counts
        return why
    return why if widens(old, new) else ""


def new_object_widens(kind: str, spec: Mapping[str, Any]) -> str:
    """Why a new object widens, or "" if it lets nothing happen by itself."""
    if kind == "NamespaceBinding":
        return "a namespace is bound and gains its regions and data"
    if kind == "Flow":
        return "reads between two sites get a way"
    if kind == "Segment":
        return "data rest in another cache"
    if kind == "Cluster" and (spec["unbound"] != "deny" or spec["platformNamespaces"]):
        return "a cluster arrives in which some namespaces are not judged"
    return ""
