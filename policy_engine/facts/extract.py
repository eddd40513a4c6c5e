"""From a review to facts: the subject, and which reader each kind needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy_engine.facts.lookup import Lookup


def facts(request: Mapping[str, Any], lookup: Lookup, *, cluster: str) -> dict[str, Any]:
    """Facts of a review's object (see the package docstring for the shape). Never raises."""
    raise NotImplementedError


def old_facts(request: Mapping[str, Any], lookup: Lookup, *, cluster: str) -> dict[str, Any] | None:
    """Facts of `oldObject`, as if it were created now; None when the review has none."""
    raise NotImplementedError


def request_for(
    manifest: Mapping[str, Any], *, namespace: str = "default", user: str = "sluicegate:check"
) -> dict[str, Any]:
    """The AdmissionReview request that creating a manifest would cause."""
    raise NotImplementedError
