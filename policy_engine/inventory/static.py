"""A lookup from objects that are already at hand: files on the command line, the demo, tests.

Left out, compared with an inventory that watches a cluster: age of the answers, resource versions, and
everything that was not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from policy_engine.facts.lookup import Claim, sources


class StaticLookup:
    """Answers from Kubernetes objects (Node, Pod, PVC, PV, Namespace, TrainingRuntime).

    Args:
        objects: manifests; other kinds are ignored.
        namespace: where an object without a namespace is taken to be.
    """

    def __init__(self, objects: Iterable[Mapping[str, Any]] = (), *, namespace: str = "default") -> None:
        self._objects: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        for obj in objects:
            metadata = _map(obj.get("metadata"))
            kind, name = obj.get("kind"), metadata.get("name")
            if not isinstance(kind, str) or not isinstance(name, str):
                continue
            where = "" if kind in _CLUSTER_WIDE else metadata.get("namespace") or namespace
            self._objects[kind, str(where), name] = obj

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Node."""
        return self._labels("Node", name)

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Namespace."""
        return self._labels("Namespace", name)

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The Pod object."""
        return self._objects.get(("Pod", namespace, name))

    def training_runtime(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """A runtime object."""
        where = "" if kind in _CLUSTER_WIDE else namespace
        return self._objects.get((kind, where, name))

    def claim(self, namespace: str, name: str) -> Claim | None:
        """A claim, followed to its volume where that is known."""
        claim = self._objects.get(("PersistentVolumeClaim", namespace, name))
        if claim is None:
            return None
        spec = _map(claim.get("spec"))
        found = Claim(
            annotations=_strings(_map(claim.get("metadata")).get("annotations")),
            sources=sources(spec, namespace),
        )
        bound = spec.get("volumeName")
        if not bound:
            return found
        volume = self.volume(str(bound))
        if volume is None:
            return replace(found, missing=(("PersistentVolume", str(bound)),))
        return replace(found, driver=volume.driver, attributes=volume.attributes, volume=volume.volume)

    def volume(self, name: str) -> Claim | None:
        """A volume."""
        volume = self._objects.get(("PersistentVolume", "", name))
        if volume is None:
            return None
        csi = _map(_map(volume.get("spec")).get("csi"))
        driver = csi.get("driver")
        return Claim(
            driver=driver if isinstance(driver, str) else "",
            attributes=_strings(csi.get("volumeAttributes")),
            volume=_strings(_map(volume.get("metadata")).get("annotations")),
        )

    def _labels(self, kind: str, name: str) -> Mapping[str, str] | None:
        obj = self._objects.get((kind, "", name))
        return None if obj is None else _strings(_map(obj.get("metadata")).get("labels"))


_CLUSTER_WIDE = frozenset({"Node", "Namespace", "PersistentVolume", "ClusterTrainingRuntime"})


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> dict[str, str]:
    return {k: v for k, v in _map(value).items() if isinstance(v, str)}
