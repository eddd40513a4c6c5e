"""What facts may ask about things that are not in the review (decide.md section 1, "lookup").

A port: `policy_engine.inventory` fills it per cluster. Every method answers from memory, at once, and
returns None for "not known"; facts then say `unresolved` and the rules' METADATA says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim followed to its PersistentVolume and StorageClass.

    Attributes:
        annotations: of the claim; `sluicegate.io/datasets` and `/segments` are read from here.
        driver: CSI driver name, or "" when the volume is not CSI or not bound yet.
        attributes: CSI volumeAttributes of the bound volume.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class Lookup(Protocol):
    """Answers about one cluster."""

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Node, or None when no such Node is known."""

    def claim(self, namespace: str, name: str) -> Claim | None:
        """A PersistentVolumeClaim, or None when it is not known."""

    def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The Pod object (for pods/binding and pods/exec), or None when it is not known."""

    def training_runtime(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """A TrainingRuntime or ClusterTrainingRuntime object, or None when it is not known."""

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Namespace, or None when it is not known."""


class NoLookup:
    """Knows nothing: everything outside the review is unresolved. What `sluicegate facts` uses."""

    def node_labels(self, name: str) -> None:  # noqa: ARG002
        """Never known."""
        return

    def claim(self, namespace: str, name: str) -> None:  # noqa: ARG002
        """Never known."""
        return

    def pod(self, namespace: str, name: str) -> None:  # noqa: ARG002
        """Never known."""
        return

    def training_runtime(self, kind: str, namespace: str, name: str) -> None:  # noqa: ARG002
        """Never known."""
        return

    def namespace_labels(self, name: str) -> None:  # noqa: ARG002
        """Never known."""
        return
