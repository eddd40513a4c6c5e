"""What facts may ask about things that are not in the review (decide.md section 1, "lookup").

A port: `policy_engine.inventory` fills it per cluster. Every method answers from memory, at once, and
returns None for "not known"; facts then say `unresolved` and the rules' METADATA says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Source: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim followed to its PersistentVolume and StorageClass.

    Attributes:
        annotations: of the claim; `sluicegate.io/datasets` and `/segments` are read from here.
        driver: CSI driver name, or "" when the volume is not CSI or not bound yet.
        attributes: CSI volumeAttributes of the bound volume.
        volume: annotations of the bound volume.
        sources: what it is a copy of, as (kind, namespace, name).
        missing: what it refers to and is not known, as (kind, name); facts call that unresolved.
    """

    annotations: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    volume: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


def sources(spec: Mapping[str, Any], namespace: str) -> tuple[Source, ...]:
    """What the spec of a claim says it is a copy of.

    Args:
        spec: of a PersistentVolumeClaim or of a template of one.
        namespace: where the claim stands.
    """
    out = []
    for origin in ("dataSource", "dataSourceRef"):
        ref = spec.get(origin)
        if isinstance(ref, dict):
            kind, name, where = (_text(ref.get(key)) for key in ("kind", "name", "namespace"))
            out.append((kind, where or namespace, name))
    return tuple(dict.fromkeys(out))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class Lookup(Protocol):
    """Answers about one cluster."""

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a Node, or None when no such Node is known."""

    def claim(self, namespace: str, name: str) -> Claim | None:
        """A PersistentVolumeClaim, or None when it is not known."""

    def volume(self, name: str) -> Claim | None:
        """A PersistentVolume as the claim that it would be bound to sees it, or None when it is not known."""

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

    def volume(self, name: str) -> None:  # noqa: ARG002
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
