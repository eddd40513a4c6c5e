"""Contexts that were made before, with their canonical bytes: workloads of one namespace ask for the same.

A context depends on nothing but what stands in the key, the resource set and the postures of the links that
it names, and all of these are immutable values: what is kept is used only while they are the very same.

Measured, in us of CPU, where making a context costs 21: a hit 1.5, a miss 23. With postures that change every
second and 2,000 reviews in it, 4 to 5 over 500 shapes of workload; over 5,000, 13 (some frequent) to 26.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from evidence.errors import NotCanonical
from policy_engine.context import context
from policy_engine.gate.posture import LinkPosture
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.engine import Prepared

_KEPT: Final = 1024  # contexts
_KEY_OCTETS: Final = 4096  # octets of the longest key; what is larger is made each time


class Slices:
    """A bounded cache of `policy_engine.context.context`. For one thread."""

    def __init__(self) -> None:
        self._resources: ResourceSet | None = None
        self._made: dict[bytes, tuple[Prepared, tuple[tuple[str, LinkPosture | None], ...]]] = {}

    def of(
        self, facts: Mapping[str, Any], resources: ResourceSet, postures: Mapping[str, LinkPosture]
    ) -> Mapping[str, Any]:
        """As `context` gives it; the result is shared and must not be changed."""
        key = key_of(facts)
        if key is None:
            return context(facts, resources, postures)
        if resources is not self._resources:
            self._resources, self._made = resources, {}
        found = self._made.get(key)
        if found is not None and all(postures.get(name) is posture for name, posture in found[1]):
            return found[0]
        return self._make(key, facts, resources, postures)

    def _make(
        self,
        key: bytes,
        facts: Mapping[str, Any],
        resources: ResourceSet,
        postures: Mapping[str, LinkPosture],
    ) -> Mapping[str, Any]:
        made = context(facts, resources, postures)
        try:
            prepared = Prepared.of(made)
        except NotCanonical:
            return made  # whoever encodes it says why
        if len(key) <= _KEY_OCTETS:
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = prepared, tuple((name, postures.get(name)) for name in made["links"])
        return prepared


def key_of(facts: Mapping[str, Any]) -> bytes | None:
    """All that `context` reads of the facts; None for what is too rare to be kept."""
    pods = facts["pods"]
    if len(pods) != 1 or "target" in facts:
        return None
    subject, pod = facts["subject"], pods[0]
    try:
        return orjson.dumps(
            (
                *(subject["cluster"], subject["namespace"], subject["group"], subject["kind"]),
                *(pod["path"], pod["placement"], pod["datasets"], pod["segments"]),
            )
        )
    except TypeError:
        return None
