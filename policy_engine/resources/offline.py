"""Deciding without a running system: `check DIR --objects FILE`. The webhook's functions on files.

Nothing is measured here, so what the links are is an assumption, and the report says which.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from policy_engine.context import context
from policy_engine.errors import ObjectUnreadable, UsageError
from policy_engine.facts import Lookup, facts, old_facts, only_metadata_differs
from policy_engine.gate.posture import LinkPosture
from policy_engine.inventory.static import StaticLookup
from policy_engine.resources.manifests import Manifest, read_manifests
from policy_engine.resources.objects import nearest
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.bundle import Bundle, shipped
from policy_engine.rules.decision import Before, Decision, decide
from policy_engine.rules.wasm import WasmEngine

_FOREVER_NS = 2**63 - 1


def decide_files(
    resources: ResourceSet,
    files: Iterable[tuple[str, bytes]],
    *,
    cluster: str | None,
    namespace: str,
    assume_encrypted: bool,
) -> dict[str, Any]:
    """Decisions on every object of some files.

    Args:
        resources: declared state.
        files: (name, bytes).
        cluster: who asks; None to find the only cluster that can.
        namespace: where objects without a namespace go.
        assume_encrypted: take keyed links to be proved encrypted and open; else unknown.

    Raises:
        UsageError: the cluster is not known, or cannot be found for an object.
        ObjectUnreadable: a file cannot be read.
    """
    if cluster is not None and cluster not in resources.clusters:
        known = ", ".join(resources.clusters)
        raise UsageError(
            f'no Cluster "{cluster}"', fix=nearest(cluster, resources.clusters) or f"known: {known}"
        )
    manifests: list[tuple[str, Manifest]] = []
    for name, data in files:
        try:
            manifests += [(name, m) for m in read_manifests(data, namespace=namespace)]
        except ObjectUnreadable as error:
            raise ObjectUnreadable(f"{name}: {error}", fix=error.fix) from None
    if not manifests:
        raise ObjectUnreadable("the files hold no object", fix="name a file that holds one")
    asked = [(name, m, cluster or _cluster_of(m, resources)) for name, m in manifests]
    lookup = StaticLookup(_objects(manifests), namespace=namespace)
    postures = _assumed(resources, encrypted=assume_encrypted)
    bundle = shipped()
    engine = WasmEngine(bundle)
    judge = _Judge(engine, bundle, resources, postures, lookup, time.time_ns())
    decisions = []
    try:
        for name, manifest, where in asked:
            decision, subject = judge.decide(manifest.request, where)
            decisions.append(_entry(name, manifest.index, subject, decision))
    finally:
        engine.close()
    return {
        "v": 1,
        "resources": resources.digest,
        "policy": bundle.policy_digest,
        "links": "assumed encrypted and open where keyed" if assume_encrypted else "assumed unknown",
        "denied": sum(not d["allowed"] for d in decisions),
        "decisions": decisions,
    }


@dataclass(frozen=True, slots=True)
class _Judge:
    """What all objects of one run share."""

    engine: WasmEngine
    bundle: Bundle
    resources: ResourceSet
    postures: Mapping[str, LinkPosture]
    lookup: Lookup
    now_ns: int

    def decide(self, request: Mapping[str, Any], cluster: str) -> tuple[Decision, Mapping[str, Any]]:
        """The decision on one request, and its subject."""
        new = facts(request, self.lookup, cluster=cluster)
        slice_ = context(new, self.resources, self.postures)
        before = old_facts(request, self.lookup, cluster=cluster)
        old = None
        if before is not None and request.get("operation") == "UPDATE":
            old = partial(self._old, before, request)
        decision = decide(self.engine, self.bundle, new, slice_, old, self.now_ns)
        return decision, new["subject"]

    def _old(self, before: Mapping[str, Any], request: Mapping[str, Any]) -> Before:
        slice_ = context(before, self.resources, self.postures)
        return Before(before, slice_, only_metadata_differs(request))


def _cluster_of(manifest: Manifest, resources: ResourceSet) -> str:
    """The only cluster, or the only one that binds the object's namespace."""
    if len(resources.clusters) == 1:
        return next(iter(resources.clusters))
    namespace = manifest.request.get("namespace") or ""
    binding = [c for c, n in resources.bindings if n == namespace]
    if len(binding) != 1:
        known = ", ".join(resources.clusters)
        raise UsageError(
            f'document {manifest.index}: namespace "{namespace}" is bound in {len(binding)} clusters',
            fix=f"say which one asks: --cluster (known: {known})",
        )
    return binding[0]


def _objects(manifests: Iterable[tuple[str, Manifest]]) -> list[Mapping[str, Any]]:
    found = (m.request.get("object") for _, m in manifests)
    return [obj for obj in found if isinstance(obj, dict)]


def _assumed(resources: ResourceSet, *, encrypted: bool) -> dict[str, LinkPosture]:
    """Every keyed link that must be encrypted, as if it were open and proved so for ever, or not proved."""
    good = LinkPosture(
        encryption="required",
        state="open",
        posture="encrypted" if encrypted else "unknown",
        reason="assumed: nothing is measured offline",
        since_ns=0,
        fresh_until_ns=_FOREVER_NS if encrypted else 0,
        generation=0,
    )
    return {
        name: good for name, link in resources.links.items() if link.keyed and link.encryption == "required"
    }


def _entry(file: str, index: int, subject: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    return {
        "file": file,
        "document": index,
        "cluster": subject["cluster"],
        "namespace": subject["namespace"],
        "kind": subject["kind"],
        "name": subject["name"] or subject.get("generateName", ""),
        "allowed": decision.allowed,
        "reasons": [r.shown() for r in decision.reasons],
        "warnings": [r.shown() for r in decision.warnings],
        "policy_digest": decision.policy_digest,
        "input_digest": decision.input_digest,
    }


def render(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = []
    for d in report["decisions"]:
        where = f"{d['namespace']}/{d['name']}" if d["namespace"] else d["name"]
        what = "".join(
            c if c.isprintable() else "?" for c in f"{d['kind']} {where}  (cluster {d['cluster']})"
        )
        lines.append(f"{'allowed' if d['allowed'] else 'DENIED '}  {what}")
        for word, found in (("", d["reasons"]), ("warning: ", d["warnings"])):
            for reason in found:
                lines.append(f"  {word}{reason['rule']}: {reason['text']}")
                if reason["path"]:
                    lines.append(f"    field: {reason['path']}")
                if reason["fix"]:
                    lines.append(f"    fix:   {reason['fix']}")
    total = len(report["decisions"])
    lines.append(f"{total - report['denied']} allowed, {report['denied']} denied; links {report['links']}")
    return "\n".join(lines)
