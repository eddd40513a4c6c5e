"""What the admission webhook needs from the rest of the control plane, as one frozen value.

Everything that can change while the process runs is a callable that returns the present, immutable value;
each call must be an attribute look-up, not IO.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from evidence.spool import Spool
from policy_engine.admission.identities import Identities
from policy_engine.facts.lookup import Lookup
from policy_engine.gate.posture import LinkPosture
from policy_engine.limits import LIMITS, Limits
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Engine


@dataclass(frozen=True, slots=True)
class Policy:
    """The trusted bundle and the engine that evaluates it; swapped together."""

    engine: Engine
    bundle: Bundle


class ScopeIds(Protocol):
    """Scope name (`estate` or a tenant) to the scope's random id. Raises KeyError for an unknown name."""

    def __call__(self, name: str, /) -> str:
        """The scope's id."""
        ...


@dataclass(frozen=True, slots=True)
class AdmissionDeps:
    """The ports of `AdmissionApp`.

    Attributes:
        policy: The bundle and engine now trusted.
        resources: The declared state now in force.
        postures: Posture of each link by name, as the gate sees it.
        lookup: Inventory of a cluster, for what is not in the review.
        identities: The table of callers.
        scope_ids: Scope name to scope id.
        spool: Where a decision is made durable before it is answered.
        boot_id: Of this process, in each record.
        clock: Present time in nanoseconds.
        limits: Sizes and times.
    """

    policy: Callable[[], Policy]
    resources: Callable[[], ResourceSet]
    postures: Callable[[], Mapping[str, LinkPosture]]
    lookup: Callable[[str], Lookup]
    identities: Callable[[], Identities]
    scope_ids: ScopeIds
    spool: Spool
    boot_id: str
    clock: Callable[[], int]
    limits: Limits = field(default=LIMITS)
