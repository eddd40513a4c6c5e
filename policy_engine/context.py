"""Context: the slice of declared state that one decision needs (decide.md section 1). Pure.

    context(facts, resources, postures) -> dict

Index look-ups only, so cost does not grow with the estate. For a name that is not granted to the asking
binding the context holds `{"granted": false}` and nothing else, the same for foreign and for absent.

    {"v": 1,
     "cluster": {"name": str,
         "known": bool,                  # false: no such Cluster is declared (then unbound is "deny")
         "unbound": "deny|warn|ignore",  # for THIS namespace: warn only if it is listed in warnNamespaces;
                                         #   "ignore" for cluster-scoped objects that run nothing
         "until_ns"?: "<ns>",            # with warn: from this time on it means deny (compare with now)
         "platform": bool},              # namespace is one of platformNamespaces (exempt)
     "bound": bool,
     "binding"?: {"name", "tenant", "regions": [str], "undeclared": "deny|closed-world",
                  "gate": "required|advisory"},
     "tenant"?: {"name", "jurisdictions": [str]},
     "sites": {site: {"region", "jurisdiction", "provider"}},     # only those named in landing or reads
     "landing": [{"pod": path, "sites": [site], "unmapped": [str]}],
         # sites it may land in, sorted. No selector on the site label = every site of the cluster.
         # unmapped: values of the site label that its selector allows and the Cluster does not map;
         # such a node may be in any site of the cluster, so sites then holds them all. Never empty.
         # No entries at all where the cluster is not known.
     "datasets": {name: {"granted": true, "owner", "regions": [..], "sites": [..], "classification"}
                        | {"granted": false}},
     "segments": {name: {"granted": true, "dataset", "site", "tenant", "regions": [..]}
                        | {"granted": false}},
     "reads": [{"pod": path, "kind": "dataset|segment", "name", "from": holding site, "to": landing site,
                "local": bool, "flow": name | null, "links": [link]}],
         # each holding site x each landing site. local: from == to, flow null, links [].
         # local false and flow null: no Flow is declared => residency.no_flow
     "links": {name: {"encryption": "required|none",              # as declared
                      "state": "open|closed|none", "posture": "encrypted|violation|unknown",
                      "reason": str, "since_ns": "<ns>", "fresh_until_ns": "<ns>", "generation": int}}}
         # no posture reported: state none, posture unknown, since_ns and fresh_until_ns "0"
     "incomplete"?: true     # there are more paths than can be judged: refused, whatever the rest says

Nothing is computed from the current time here: `now` is an input of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from policy_engine.facts.extract import TYPED
from policy_engine.gate.posture import LinkPosture
from policy_engine.landing import landing
from policy_engine.limits import LIMITS
from policy_engine.resources.model import Cluster, NamespaceBinding
from policy_engine.resources.resource_set import ResourceSet

_NOT_GRANTED: Final[Mapping[str, Any]] = {"granted": False}
_UNKNOWN: Final[Mapping[str, Any]] = {
    "state": "none",
    "posture": "unknown",
    "reason": "no posture of this link is known: it is not keyed, or its agents have not reported",
    "since_ns": "0",
    "fresh_until_ns": "0",
    "generation": 0,
}


def context(
    facts: Mapping[str, Any], resources: ResourceSet, postures: Mapping[str, LinkPosture]
) -> dict[str, Any]:
    """The slice for one decision (see the module docstring for the shape).

    Args:
        facts: as `policy_engine.facts.facts` returns them.
        resources: declared state.
        postures: by link name; links without one are unknown.
    """
    subject = facts["subject"]
    name, namespace = subject["cluster"], subject["namespace"]
    cluster = resources.clusters.get(name)
    binding = resources.bindings.get((name, namespace))
    out: dict[str, Any] = {
        "v": 1,
        "cluster": _cluster(name, cluster, facts),
        "bound": binding is not None,
        "sites": {},
        "landing": [],
        "datasets": {},
        "segments": {},
        "reads": [],
        "links": {},
    }
    if cluster is not None:
        out["landing"] = [landing(pod["path"], pod["placement"], cluster) for pod in facts["pods"]]
        for place in out["landing"]:
            _sites(out, place["sites"], resources)
    if binding is not None:
        tenant = resources.tenants[binding.tenant]
        out["binding"] = resources.binding_slices[name, namespace]
        out["tenant"] = {"name": tenant.name, "jurisdictions": list(tenant.jurisdictions)}
    _data(out, facts, resources, binding)
    _links(out, resources, postures)
    return out


def _cluster(name: str, cluster: Cluster | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What an unbound namespace means here; narrowed to the namespace of the subject."""
    subject = facts["subject"]
    namespace = subject["namespace"]
    if cluster is None:
        return {"name": name, "known": False, "unbound": "deny", "platform": False}
    out: dict[str, Any] = {
        "name": name,
        "known": True,
        "unbound": cluster.unbound,
        "platform": namespace in cluster.platform_namespaces,
    }
    if _runs_nothing(subject):
        out["unbound"] = "ignore"
    elif cluster.unbound == "warn":
        if namespace not in cluster.warn_namespaces or cluster.unbound_until_ns is None:
            out["unbound"] = "deny"  # a namespace that came after registration (decide.md section 3)
        else:
            out["until_ns"] = str(cluster.unbound_until_ns)
    return out


def _runs_nothing(subject: Mapping[str, Any]) -> bool:
    """Cluster-scoped objects start no pod themselves; a workload kind always has a namespace."""
    key = (subject["group"], subject["kind"])
    if key == ("", "Namespace"):
        return True
    return not subject["namespace"] and key not in TYPED


def _sites(out: dict[str, Any], names: Iterable[str], resources: ResourceSet) -> None:
    for site in names:
        out["sites"][site] = resources.site_slices[site]


def _data(
    out: dict[str, Any], facts: Mapping[str, Any], resources: ResourceSet, binding: NamespaceBinding | None
) -> None:
    """Grants of what is declared, and every (holding site, landing site) pair of what is granted."""
    landings = out["landing"]
    for index, pod in enumerate(facts["pods"]):
        seen: set[tuple[str, str]] = set()
        sites = landings[index]["sites"] if landings else ()
        for kind in ("dataset", "segment"):
            for entry in pod[f"{kind}s"]:
                name = entry["name"]
                if (kind, name) in seen:
                    continue
                seen.add((kind, name))
                held = _grant(out, kind, name, resources, binding)
                if held:
                    _sites(out, held, resources)
                    _reads(out, (pod["path"], kind, name), held, sites, resources)
    target = facts.get("target")
    if target is not None:  # a connection starts no read, but its pod's data decide who may connect
        for kind in ("dataset", "segment"):
            for name in target[f"{kind}s"]:
                _sites(out, _grant(out, kind, name, resources, binding), resources)


def _grant(
    out: dict[str, Any], kind: str, name: str, resources: ResourceSet, binding: NamespaceBinding | None
) -> tuple[str, ...]:
    """Puts a name into the context as granted or not; returns the sites that hold it, if granted."""
    if kind == "dataset":
        if binding is None or name not in binding.datasets:
            out["datasets"][name] = _NOT_GRANTED
            return ()
        dataset = resources.datasets[name]
        out["datasets"][name] = {
            "granted": True,
            "owner": dataset.owner,
            "regions": list(dataset.regions),
            "sites": list(dataset.sites),
            "classification": dataset.classification,
        }
        return dataset.sites
    if binding is None or name not in binding.segments:
        out["segments"][name] = _NOT_GRANTED
        return ()
    segment = resources.segments[name]
    out["segments"][name] = {
        "granted": True,
        "dataset": segment.dataset,
        "site": segment.site,
        "tenant": segment.tenant,
        "regions": list(resources.datasets[segment.dataset].regions),
    }
    return (segment.site,)


def _reads(
    out: dict[str, Any],
    what: tuple[str, str, str],
    held: Iterable[str],
    landing_sites: Iterable[str],
    resources: ResourceSet,
) -> None:
    if len(out["reads"]) > LIMITS.context_reads:
        out["incomplete"] = True
        return
    for source in held:
        for sink in landing_sites:
            local = source == sink
            flow = None if local else resources.flows.get((source, sink))
            out["reads"].append(
                {
                    "pod": what[0],
                    "kind": what[1],
                    "name": what[2],
                    "from": source,
                    "to": sink,
                    "local": local,
                    "flow": None if flow is None else flow.name,
                    "links": [] if flow is None else list(flow.links),
                }
            )


def _links(out: dict[str, Any], resources: ResourceSet, postures: Mapping[str, LinkPosture]) -> None:
    links = out["links"]
    for read in out["reads"]:
        for name in read["links"]:
            if name not in links:
                links[name] = {"encryption": resources.links[name].encryption, **_posture(postures.get(name))}


def _posture(posture: LinkPosture | None) -> Mapping[str, Any]:
    if posture is None:
        return _UNKNOWN
    return {
        "state": posture.state,
        "posture": posture.posture,
        "reason": posture.reason,
        "since_ns": str(posture.since_ns),
        "fresh_until_ns": str(posture.fresh_until_ns),
        "generation": posture.generation,
    }
