"""What one object cannot know alone: references between objects, and rules that need several of them.

Every check adds problems and goes on, so that one run shows everything. References to an object that is
written down but invalid are not reported as dangling: its own problem is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from policy_engine.errors import Problem
from policy_engine.resources.link_checks import check_links, check_profiles
from policy_engine.resources.model import (
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
from policy_engine.resources.objects import Located, Source, one_of
from policy_engine.resources.yaml_tree import Path

_R = TypeVar("_R", bound=Resource)


class Estate:
    """All objects under check, by kind; and all names that are written down, valid or not."""

    def __init__(self, found: Sequence[Located], sources: Sequence[Source]) -> None:
        self.found = found
        self.names: dict[str, dict[str, Source]] = defaultdict(dict)
        for source in sources:
            self.names[source.kind].setdefault(source.name, source)
        self.by_name: dict[tuple[str, str], Resource] = {
            (i.resource.KIND, i.resource.name): i.resource for i in found
        }

    def each(self, kind: type[_R]) -> Iterator[tuple[_R, Source]]:
        """Every valid object of a kind, with its place."""
        for item in self.found:
            if isinstance(item.resource, kind):
                yield item.resource, item.source

    def get(self, kind: type[_R], name: str) -> _R | None:
        """A valid object, or None."""
        resource = self.by_name.get((kind.KIND, name))
        return resource if isinstance(resource, kind) else None

    def region(self, site: str) -> str | None:
        """Region of a site, if the site is valid."""
        found = self.get(Site, site)
        return None if found is None else found.region


def check(found: Sequence[Located], sources: Sequence[Source]) -> list[Problem]:
    """Every problem that needs more than one object to see."""
    estate = Estate(found, sources)
    checks: tuple[Callable[[Estate], Iterator[Problem]], ...] = (
        lambda _: _unique(sources),
        _references,
        _clusters,
        _bindings,
        _datasets,
        _segments,
        _flows,
    )
    problems = [problem for run in checks for problem in run(estate)]
    problems += check_profiles(list(estate.each(LinkProfile)))
    problems += check_links(list(estate.each(Link)))
    return problems


def _unique(sources: Iterable[Source]) -> Iterator[Problem]:
    first: dict[tuple[str, str], Source] = {}
    for source in sources:
        key = (source.kind, source.name)
        if (
            source.kind
            and source.name
            and source.kind != "List"
            and first.setdefault(key, source) is not source
        ):
            message = f'{source.kind} "{source.name}" is declared twice, first at {first[key].where()}'
            yield source.problem(("metadata", "name"), message, "remove or rename one")


def _references(estate: Estate) -> Iterator[Problem]:
    """Every name that stands for another object must be one."""
    for item in estate.found:
        for path, kind, name in _named(item.resource):
            if name not in estate.names[kind.KIND]:
                hint = one_of(name, estate.names[kind.KIND])
                yield item.source.problem(("spec", *path), f'there is no {kind.KIND} "{name}"', hint)


def _named(r: Any) -> Iterator[tuple[Path, type[Resource], str]]:
    """(path in the spec, kind, name) of every reference in an object."""
    many: list[tuple[str, type[Resource], Iterable[str]]] = []
    one: list[tuple[str, type[Resource], str | None]] = []
    if isinstance(r, Cluster):
        many = [("sites", Site, r.sites)]
    elif isinstance(r, NamespaceBinding):
        one = [("cluster", Cluster, r.cluster), ("tenant", Tenant, r.tenant)]
        many = [("datasets", Dataset, r.datasets), ("segments", Segment, r.segments)]
    elif isinstance(r, Link):
        one = [("profile", LinkProfile, r.profile), ("diversePartner", Link, r.diverse_partner)]
        yield from ((("endpoints", i, "site"), Site, e.site) for i, e in enumerate(r.endpoints))
    elif isinstance(r, Dataset):
        one, many = [("owner", Tenant, r.owner)], [("sites", Site, r.sites)]
    elif isinstance(r, Segment):
        one = [("dataset", Dataset, r.dataset), ("tenant", Tenant, r.tenant), ("site", Site, r.site)]
    elif isinstance(r, Flow):
        one, many = [("from", Site, r.from_), ("to", Site, r.to)], [("links", Link, r.links)]
    yield from (((field,), kind, name) for field, kind, name in one if name is not None)
    for field, kind, names in many:
        yield from (((field, i), kind, name) for i, name in enumerate(names))


def _clusters(estate: Estate) -> Iterator[Problem]:
    for cluster, source in estate.each(Cluster):
        spec: Path = ("spec",)
        if cluster.unbound == "warn" and cluster.unbound_until_ns is None:
            fix = 'add unboundUntil: "2027-03-31" and list the namespaces in warnNamespaces, or say deny'
            yield source.problem((*spec, "unbound"), "unbound: warn needs an end date", fix)
        if cluster.unbound != "warn" and (cluster.unbound_until_ns is not None or cluster.warn_namespaces):
            message = "unboundUntil and warnNamespaces mean something only with unbound: warn"
            yield source.problem((*spec, "unbound"), message, "remove them")
        if not cluster.site_label.startswith("node-restriction.kubernetes.io/"):
            fix = "use a label under node-restriction.kubernetes.io/"
            yield source.problem((*spec, "siteLabel"), "a kubelet may set this label of its own node", fix)
        identity = cluster.identity
        if not (identity.path_token or identity.client_ca or identity.client_ca_file):
            fix = "give clientCA, clientCAFile or pathToken: true"
            yield source.problem(
                (*spec, "identity"), "nothing says how this cluster's API server is known", fix
            )
        if identity.client_ca is not None and (why := _bad_ca(identity.client_ca)):
            yield source.problem((*spec, "identity"), why, "give the CA certificate of the API server as PEM")
        for value, site in cluster.site_labels.items():
            if site not in cluster.sites:
                hint = one_of(site, cluster.sites)
                yield source.problem(
                    (*spec, "siteLabels", value), f'"{site}" is no site of this cluster', hint
                )
        for i, site in enumerate(cluster.sites):
            if len(cluster.sites) > 1 and site not in cluster.site_labels.values():
                fix = f"add siteLabels: {{{site}: {site}}}"
                yield source.problem((*spec, "sites", i), f'no label value means site "{site}"', fix)
        for i, namespace in enumerate(cluster.warn_namespaces):
            if namespace in cluster.platform_namespaces:
                message = f'"{namespace}" is a platform namespace, which is exempt'
                yield source.problem((*spec, "warnNamespaces", i), message, "remove it here")


def _bad_ca(pem: str) -> str:
    """Why a text is not a set of CA certificates, or ""."""
    from cryptography import x509  # heavy, and few commands read a CA

    if "PRIVATE KEY" in pem:
        return "this holds a private key, which never belongs here"
    try:
        x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return "this is no PEM certificate"
    return ""


def _bindings(estate: Estate) -> Iterator[Problem]:
    first: dict[tuple[str, str], Source] = {}
    for binding, source in estate.each(NamespaceBinding):
        key = (binding.cluster, binding.namespace)
        if first.setdefault(key, source) is not source:
            message = (
                f'"{binding.namespace}" of "{binding.cluster}" is bound twice, first at {first[key].where()}'
            )
            yield source.problem(("spec", "namespace"), message, "a namespace has one binding")
        cluster = estate.get(Cluster, binding.cluster)
        if cluster is not None:
            yield from _binding_in_cluster(estate, binding, cluster, source)
        for i, name in enumerate(binding.segments):
            segment = estate.get(Segment, name)
            if segment is not None and segment.tenant != binding.tenant:
                message = f'segment "{name}" belongs to tenant "{segment.tenant}", not to "{binding.tenant}"'
                yield source.problem(("spec", "segments", i), message, "grant it to a binding of its tenant")


def _binding_in_cluster(
    estate: Estate, binding: NamespaceBinding, cluster: Cluster, source: Source
) -> Iterator[Problem]:
    if binding.namespace in cluster.platform_namespaces:
        message = (
            f'"{binding.namespace}" is a platform namespace of "{cluster.name}"; those hold no tenant work'
        )
        yield source.problem(("spec", "namespace"), message, "bind another namespace")
    regions = {estate.region(s) for s in cluster.sites}
    if None in regions:
        return
    for i, region in enumerate(binding.regions):
        if region not in regions:
            hint = one_of(region, (r for r in regions if r))
            message = f'cluster "{cluster.name}" has no site in region "{region}"'
            yield source.problem(("spec", "regions", i), message, hint)


def _datasets(estate: Estate) -> Iterator[Problem]:
    regions = {site.region for site, _ in estate.each(Site)}
    invalid_sites = len(estate.names["Site"]) != sum(1 for _ in estate.each(Site))
    for dataset, source in estate.each(Dataset):
        for i, region in enumerate(dataset.regions):
            if region not in regions and not invalid_sites:
                yield source.problem(
                    ("spec", "regions", i), f'no site is in "{region}"', one_of(region, regions)
                )
        for i, site in enumerate(dataset.sites):
            held = estate.region(site)
            if held is not None and held not in dataset.regions:
                message = f'site "{site}" is in region "{held}", outside the dataset\'s own regions'
                yield source.problem(("spec", "sites", i), message, "add the region or remove the site")


def _segments(estate: Estate) -> Iterator[Problem]:
    for segment, source in estate.each(Segment):
        dataset, held = estate.get(Dataset, segment.dataset), estate.region(segment.site)
        if dataset is not None and held is not None and held not in dataset.regions:
            message = f'site "{segment.site}" is in region "{held}", where "{dataset.name}" may not be'
            yield source.problem(("spec", "site"), message, "cache it at a site inside the dataset's regions")


def _flows(estate: Estate) -> Iterator[Problem]:
    first: dict[tuple[str, str], Source] = {}
    for flow, source in estate.each(Flow):
        key = (flow.from_, flow.to)
        if first.setdefault(key, source) is not source:
            message = f'a Flow from "{flow.from_}" to "{flow.to}" stands already at {first[key].where()}'
            yield source.problem(("metadata", "name"), message, "two sites have one Flow in each direction")
        if flow.from_ == flow.to:
            yield source.problem(("spec", "to"), "from and to are the same site", "local reads need no Flow")
        yield from _connected(estate, flow, source)


def _connected(estate: Estate, flow: Flow, source: Source) -> Iterator[Problem]:
    """The links, in order, must lead from one end to the other."""
    at = flow.from_
    for i, name in enumerate(flow.links):
        link = estate.get(Link, name)
        if link is None:
            return
        ends = [e.site for e in link.endpoints]
        if at not in ends:
            message = f'link "{name}" joins "{ends[0]}" and "{ends[1]}", but the way has come to "{at}"'
            yield source.problem(("spec", "links", i), message, "list the links in order, end to end")
            return
        at = ends[1] if ends[0] == at else ends[0]
    if at != flow.to:
        message = f'the links lead to "{at}", not to "{flow.to}"'
        yield source.problem(("spec", "links"), message, "add the missing link")
