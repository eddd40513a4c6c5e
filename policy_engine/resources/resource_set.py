"""`ResourceSet`: declared state, frozen, with the indexes that a decision needs and a digest of all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import orjson

from policy_engine.resources.model import (
    KINDS,
    Cluster,
    Dataset,
    Flow,
    Link,
    LinkProfile,
    NamespaceBinding,
    Resource,
    Segment,
    Site,
    Tenant,
)

_R = TypeVar("_R", bound=Resource)


def manifest(resource: Resource) -> dict[str, Any]:
    """A resource as JSON with every default filled in: `{kind, name, spec}`; durations as strings."""
    spec = resource.model_dump(mode="json", by_alias=True)
    return {"kind": resource.KIND, "name": spec.pop("name"), "spec": spec}


def restore(manifests: Iterable[Mapping[str, Any]], *, generation: int = 0) -> ResourceSet:
    """The set that `ResourceSet.manifests` wrote down, unchanged: same objects, same digest.

    For what this program stored itself. Cross checks are not repeated; input goes through `load` or `parse`.

    Raises:
        ValueError: an object does not fit this release's models.
    """
    objects = [KINDS[m["kind"]].model_validate({**m["spec"], "name": m["name"]}) for m in manifests]
    return ResourceSet(objects, generation=generation)


class ResourceSet:
    """All resources of an estate. Never changes after construction; a change is a new set.

    Does not check anything: `load` and `parse` do, and only they should build one from input.

    Attributes:
        sites, clusters, tenants, links, profiles, datasets, segments: by name.
        bindings: by (cluster, namespace).
        flows: by (from site, to site).
        digest: hex SHA-256 over the canonical JSON of every object, defaults filled in.
        generation: counts accepted sets; 0 for one that was only read.
    """

    __slots__ = (
        "binding_slices",
        "bindings",
        "clusters",
        "datasets",
        "digest",
        "flows",
        "generation",
        "links",
        "objects",
        "profiles",
        "segments",
        "site_slices",
        "sites",
        "tenants",
    )

    sites: Mapping[str, Site]
    clusters: Mapping[str, Cluster]
    tenants: Mapping[str, Tenant]
    bindings: Mapping[tuple[str, str], NamespaceBinding]
    profiles: Mapping[str, LinkProfile]
    links: Mapping[str, Link]
    datasets: Mapping[str, Dataset]
    segments: Mapping[str, Segment]
    flows: Mapping[tuple[str, str], Flow]
    objects: tuple[Resource, ...]
    digest: str
    generation: int
    site_slices: Mapping[str, Mapping[str, str]]
    binding_slices: Mapping[tuple[str, str], Mapping[str, Any]]

    def __init__(self, objects: Iterable[Resource], *, generation: int = 0) -> None:
        ordered = tuple(sorted(objects, key=lambda r: (r.KIND, r.name)))
        put = object.__setattr__
        put(self, "objects", ordered)
        put(self, "generation", generation)
        for attribute, kind in (
            ("sites", Site),
            ("clusters", Cluster),
            ("tenants", Tenant),
            ("profiles", LinkProfile),
            ("links", Link),
            ("datasets", Dataset),
            ("segments", Segment),
        ):
            put(self, attribute, _by_name(ordered, kind))
        bindings = {(b.cluster, b.namespace): b for b in ordered if isinstance(b, NamespaceBinding)}
        put(self, "bindings", MappingProxyType(bindings))
        flows = {(f.from_, f.to): f for f in ordered if isinstance(f, Flow)}
        put(self, "flows", MappingProxyType(flows))
        put(self, "digest", _digest(ordered))
        put(self, "site_slices", {s.name: _site_slice(s) for s in self.sites.values()})
        put(self, "binding_slices", {key: _binding_slice(b) for key, b in bindings.items()})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a ResourceSet is frozen: cannot set {name}")

    def __repr__(self) -> str:
        count, digest = len(self.objects), self.digest[:12]
        return f"ResourceSet({count} objects, digest {digest}, generation {self.generation})"

    def with_generation(self, generation: int) -> ResourceSet:
        """The same objects under another generation number."""
        return ResourceSet(self.objects, generation=generation)

    def manifests(self) -> list[dict[str, Any]]:
        """Every object as `{kind, name, spec}`, ordered by kind and name: what `digest` covers."""
        return [manifest(r) for r in self.objects]


def _by_name(objects: Iterable[Resource], kind: type[_R]) -> Mapping[str, _R]:
    return MappingProxyType({r.name: r for r in objects if isinstance(r, kind)})


def _digest(objects: Iterable[Resource]) -> str:
    # Values are strings, booleans, null and small integers with ASCII keys: the canonical domain.
    body = [manifest(r) for r in objects]
    return hashlib.sha256(
        orjson.dumps(body, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)
    ).hexdigest()


def _site_slice(site: Site) -> dict[str, str]:
    return {"region": site.region, "jurisdiction": site.jurisdiction, "provider": site.provider}


def _binding_slice(binding: NamespaceBinding) -> dict[str, Any]:
    return {
        "name": binding.name,
        "tenant": binding.tenant,
        "regions": list(binding.regions),
        "undeclared": binding.undeclared,
        "gate": binding.gate,
    }
