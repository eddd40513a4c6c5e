"""What a change of declared state means.

Which links rotate or re-key, which namespaces gain or lose a region or data, and what is *widening*
(decide.md section 3): that takes effect only with approval.

    change = diff(old, new)        # pure; stable order
    change.widening                # True if anything in it widens

Doubt counts as widening: a field whose change could let more happen than before is listed in `widening.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from policy_engine.resources.resource_set import ResourceSet, manifest
from policy_engine.resources.widening import new_object_widens, why_widens

Action = Literal["added", "removed", "changed"]
# Fields of a profile whose change means new keys at once; the others take effect at the next rotation.
_REKEY_PROFILE: Final = frozenset({"cipherSuite", "vlan", "confidentialityOffset", "mustSecure"})
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        kind, name: of the object.
        action: what happened to the object or the field.
        path: field of the spec; "" for the whole object.
        old, new: JSON values; None where there is none.
        widening: why this widens; "" if it does not.
    """

    kind: str
    name: str
    action: Action
    path: str
    old: Any
    new: Any
    widening: str

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "kind": self.kind,
            "name": self.name,
            "action": self.action,
            "path": self.path,
            "old": self.old,
            "new": self.new,
            "widening": self.widening,
        }


@dataclass(frozen=True, slots=True)
class Access:
    """What a namespace may do, after everything that a binding refers to is followed.

    Attributes:
        regions: where its pods may run: the binding's, as far as its cluster has sites there.
        datasets: `name from region` for each region it may run in and each dataset it may read there.
        segments: names.
    """

    regions: frozenset[str]
    datasets: frozenset[str]
    segments: frozenset[str]


@dataclass(frozen=True, slots=True)
class NamespaceChange:
    """What one (cluster, namespace) gains and loses."""

    cluster: str
    namespace: str
    gains: Mapping[str, tuple[str, ...]]
    loses: Mapping[str, tuple[str, ...]]

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        gains = {k: list(v) for k, v in self.gains.items()}
        loses = {k: list(v) for k, v in self.loses.items()}
        return {"cluster": self.cluster, "namespace": self.namespace, "gains": gains, "loses": loses}


@dataclass(frozen=True, slots=True)
class Difference:
    """The meaning of a change from one set to another."""

    old_digest: str
    new_digest: str
    changes: tuple[Change, ...]
    links: Mapping[str, str]
    namespaces: tuple[NamespaceChange, ...]

    @property
    def widening(self) -> tuple[Change, ...]:
        """The changes that need approval."""
        return tuple(c for c in self.changes if c.widening)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "v": 1,
            "old": self.old_digest,
            "new": self.new_digest,
            "same": self.old_digest == self.new_digest,
            "widening": bool(self.widening),
            "links": dict(self.links),
            "namespaces": [n.as_dict() for n in self.namespaces],
            "changes": [c.as_dict() for c in self.changes],
        }


def diff(old: ResourceSet, new: ResourceSet) -> Difference:
    """What changes from `old` to `new`."""
    return Difference(
        old_digest=old.digest,
        new_digest=new.digest,
        changes=tuple(_changes(old, new)),
        links=dict(sorted(_links(old, new))),
        namespaces=tuple(_namespaces(old, new)),
    )


def _changes(old: ResourceSet, new: ResourceSet) -> Iterator[Change]:
    before = {(r.KIND, r.name): manifest(r)["spec"] for r in old.objects}
    after = {(r.KIND, r.name): manifest(r)["spec"] for r in new.objects}
    for kind, name in sorted({*before, *after}):
        a, b = before.get((kind, name)), after.get((kind, name))
        if a is None and b is not None:
            yield Change(kind, name, "added", "", None, b, new_object_widens(kind, b))
        elif b is None and a is not None:
            yield Change(kind, name, "removed", "", a, None, why_widens(kind, "", a, None))
        elif a is not None and b is not None:
            for path, x, y in _fields(a, b):
                yield Change(kind, name, "changed", path, x, y, why_widens(kind, path, x, y))


def _fields(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Differing fields of two specs; nested maps and lists of maps are followed, plain lists are not."""
    for key in sorted({*a, *b}):
        x, y = a.get(key, _ABSENT), b.get(key, _ABSENT)
        path = f"{prefix}{key}"
        if x == y:
            continue
        if isinstance(x, dict) and isinstance(y, dict):
            yield from _fields(x, y, f"{path}.")
        elif _maps(x) and _maps(y) and len(x) == len(y):
            for i, (m, n) in enumerate(zip(x, y, strict=True)):
                yield from _fields(m, n, f"{path}[{i}].")
        else:
            yield path, None if x is _ABSENT else x, None if y is _ABSENT else y


def _maps(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _links(old: ResourceSet, new: ResourceSet) -> Iterator[tuple[str, str]]:
    """What happens to each link whose declaration changed, by itself or through its profile."""
    for name in {*old.links, *new.links}:
        a, b = old.links.get(name), new.links.get(name)
        if a is None and b is not None:
            yield name, "new: first keying, closed until it is proved" if b.keyed else "new: not keyed"
        elif b is None:
            yield name, "removed: agents close the path and keys are destroyed"
        elif a is not None and (meaning := _link(old, new, name)):
            yield name, meaning


def _link(old: ResourceSet, new: ResourceSet, name: str) -> str:
    a, b = old.links[name], new.links[name]
    if a.keyed and not b.keyed:
        return "no longer keyed: nothing encrypts it"
    if b.keyed and not a.keyed:
        return "first keying, closed until it is proved"
    ends = [
        i
        for i, (x, y) in enumerate(zip(a.endpoints, b.endpoints, strict=True))
        if (x.sci, x.agent, x.driver) != (y.sci, y.agent, y.driver)
    ]
    if ends and b.keyed:
        return f"re-keys: end {', '.join(map(str, ends))} is another device or agent (first keying)"
    before, after = manifest(old.profiles[a.profile])["spec"], manifest(new.profiles[b.profile])["spec"]
    fields = {path for path, _, _ in _fields(before, after)}
    if b.keyed and fields & _REKEY_PROFILE:
        return f"rotates at once: {', '.join(sorted(fields & _REKEY_PROFILE))} changes"
    if b.keyed and fields:
        return f"keeps its key; from the next rotation: {', '.join(sorted(fields))}"
    return "declared anew; keys stay" if a != b else ""


def _namespaces(old: ResourceSet, new: ResourceSet) -> Iterator[NamespaceChange]:
    for cluster, namespace in sorted({*old.bindings, *new.bindings}):
        before, after = access(old, cluster, namespace), access(new, cluster, namespace)
        gains = _minus(after, before)
        loses = _minus(before, after)
        if gains or loses:
            yield NamespaceChange(cluster, namespace, gains, loses)


def access(resources: ResourceSet, cluster: str, namespace: str) -> Access:
    """What a namespace may do under a set; nothing if it is not bound."""
    binding = resources.bindings.get((cluster, namespace))
    if binding is None:
        return Access(frozenset(), frozenset(), frozenset())
    here = {resources.sites[s].region for s in resources.clusters[cluster].sites}
    regions = here & set(binding.regions)
    datasets = {
        f"{name} from {region}"
        for name in binding.datasets
        for region in regions & set(resources.datasets[name].regions)
    }
    return Access(frozenset(regions), frozenset(datasets), frozenset(binding.segments))


def _minus(a: Access, b: Access) -> dict[str, tuple[str, ...]]:
    pairs: Iterable[tuple[str, frozenset[str]]] = (
        ("regions", a.regions - b.regions),
        ("datasets", a.datasets - b.datasets),
        ("segments", a.segments - b.segments),
    )
    return {name: tuple(sorted(values)) for name, values in pairs if values}
