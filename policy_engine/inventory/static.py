"""A lookup from objects that are already at hand: files on the command line, the demo, tests.

Left out, compared with an inventory that watches a cluster: age of the answers, resource versions, and
everything that was not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from policy_engine.facts.lookup import Claim


class StaticLookup:
    """Answers from Kubernetes objects (Node, Pod, PVC, PV, Namespace, TrainingRuntime).

    Args:
        objects: manifests; other kinds are ignored.
    """

    def __init__(self, objects: Iterable[Mapping[str, Any]] = ()) -> None:
        raise NotImplementedError

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Node."""
        raise NotImplementedError

    def claim(self, namespace: str, name: str) -> Claim | None:
        """A claim, followed to its volume."""
        raise NotImplementedError

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The Pod object."""
        raise NotImplementedError

    def training_runtime(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """A runtime object."""
        raise NotImplementedError

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Namespace."""
        raise NotImplementedError
