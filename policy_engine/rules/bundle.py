"""A policy bundle: loaded from bytes, believed only by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleMeta:
    """METADATA of one rule (``rego/<pack>/*.rego``).

    Attributes:
        rule: Rule id.
        title: One line.
        description: What the rule means.
        text: Template of the denial, ``{param}`` filled from params, subject and path.
        fix: Template of what to do.
        severity: ``critical``, ``high``, ``medium`` or ``advice`` (only warns).
        controls: Ids of controls that the rule serves.
        exceptable: Whether an exception may cover it.
        unresolved: ``deny`` or ``defer``: what a missing referent means for this rule.
        needs: Kinds of referents that the rule depends on (``what`` of facts.unresolved).
    """

    rule: str
    title: str
    description: str
    text: str
    fix: str
    severity: str
    controls: tuple[str, ...]
    exceptable: bool
    unresolved: str
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle."""

    wasm: bytes
    metadata: Mapping[str, RuleMeta]
    policy_digest: str
    bundle_digest: str
    version: int
    sources: Mapping[str, str]


def shipped() -> Bundle:
    """The bundle in the wheel, trusted by the digest in the wheel.

    Raises:
        BundleRefused: The file is missing or is not the one that the digest names.
    """
    raise NotImplementedError
