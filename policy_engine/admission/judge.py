"""From a review to a judgement: facts, context, rules; and what may pass when we ourselves fail.

The rules decide (`policy_engine.rules.decision.decide`); here stands what surrounds them:

* Exempt from rules, but recorded: the cluster's platform namespaces (they hold no tenant workload), deletes
  of kinds that no delete rule names, and evictions. Refusing those would block repair and scale-down.
* An internal failure denies CREATE, UPDATE and CONNECT. A delete of a kind that no delete rule names, an
  eviction, and an update that only takes finalizers away are allowed and counted, else nothing could be
  cleaned up while we are broken.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from policy_engine.admission.deps import AdmissionDeps, Policy
from policy_engine.admission.protocol import Review
from policy_engine.context import context
from policy_engine.facts import facts as facts_of
from policy_engine.facts import old_facts, only_metadata_differs
from policy_engine.gate.posture import LinkPosture
from policy_engine.resources.resource_set import ResourceSet
from policy_engine.rules.decision import Before, Decision, Reason, decide
from policy_engine.rules.engine import engine_input

OWN_GROUP: Final = "sluicegate.io"
# (group, kind) whose deletion a delete rule may refuse. Never pods: a violating pod must be deletable.
GOVERNED_DELETES: Final = frozenset(
    {("", "Namespace"), ("", "PersistentVolume"), ("", "PersistentVolumeClaim")}
)
# Fields that a finalizer removal changes by itself.
_MOVING: Final = frozenset({"finalizers", "managedFields", "resourceVersion", "generation"})

ContextOf = Callable[[Mapping[str, Any], ResourceSet, Mapping[str, LinkPosture]], Mapping[str, Any]]

PLATFORM: Final = "platform_namespace"
DELETE: Final = "delete_not_governed"
EVICTION: Final = "eviction"


class Judged(NamedTuple):
    """A judgement and everything that its record needs."""

    review: Review
    decision: Decision
    facts: Mapping[str, Any]
    context: Mapping[str, Any]
    policy: Policy
    resource_digest: str
    generation: int
    now_ns: int
    exempt: str = ""  # why no rule was asked, or why an internal failure let it pass
    failed_open: bool = False

    @property
    def scope(self) -> str:
        """Whose tree the record stands in: the binding's tenant, else the estate."""
        tenant = self.context.get("tenant")
        return tenant["name"] if tenant else "estate"


def judge(
    review: Review, cluster: str, deps: AdmissionDeps, now_ns: int, context_of: ContextOf = context
) -> Judged:
    """Judge one review. Raises only for a defect (the caller fails closed) or RecursionError.

    `context_of` makes contexts, or finds the one that was made before (`slices.Slices.of`).
    """
    resources = deps.resources()
    policy = deps.policy()
    lookup = deps.lookup(cluster)
    request = review.request
    found = facts_of(request, lookup, cluster=cluster)
    postures = deps.postures()
    slice_ = context_of(found, resources, postures)
    exempt = _exemption(review, cluster, resources)
    failed_open = False
    if exempt:
        decision = _unjudged(policy, found, slice_, now_ns)
    else:

        def old() -> Before:
            before = old_facts(request, lookup, cluster=cluster)
            assert before is not None  # asked only when the review has an old object
            slice_before = context_of(before, resources, postures)
            return Before(before, slice_before, only_metadata_differs(request))

        has_old = review.operation == "UPDATE" and isinstance(request.get("oldObject"), dict)
        decision = decide(
            policy.engine,
            policy.bundle,
            found,
            slice_,
            old if has_old else None,
            now_ns,
        )
        if not decision.allowed and only_failed(decision) and fails_open(review):
            decision, failed_open = decision._replace(allowed=True, reasons=()), True
            exempt = "internal_failure"
    return Judged(
        review,
        decision,
        found,
        slice_,
        policy,
        resources.digest,
        resources.generation,
        now_ns,
        exempt,
        failed_open,
    )


def _exemption(review: Review, cluster: str, resources: ResourceSet) -> str:
    declared = resources.clusters.get(cluster)
    if declared is not None and review.namespace in declared.platform_namespaces:
        return PLATFORM
    if review.operation == "DELETE" and not _delete_governed(review):
        return DELETE
    return EVICTION if review.subresource == "eviction" else ""


def _delete_governed(review: Review) -> bool:
    return review.group == OWN_GROUP or (review.group, review.kind) in GOVERNED_DELETES


def fails_open(review: Review) -> bool:
    """Whether an internal failure may let this review pass (counted)."""
    if review.operation == "DELETE":
        return not _delete_governed(review)
    if review.subresource == "eviction":
        return True
    return review.operation == "UPDATE" and _drops_finalizers_only(review.request)


def _drops_finalizers_only(request: Mapping[str, Any]) -> bool:
    """Whether an object that is being deleted loses finalizers and nothing else changes."""
    new, old = request.get("object"), request.get("oldObject")
    if not isinstance(new, dict) or not isinstance(old, dict) or request.get("subResource"):
        return False
    meta, before = new.get("metadata"), old.get("metadata")
    if not isinstance(meta, dict) or not isinstance(before, dict) or not before.get("deletionTimestamp"):
        return False
    kept, had = meta.get("finalizers") or [], before.get("finalizers") or []
    if not (isinstance(kept, list) and isinstance(had, list) and len(kept) < len(had)):
        return False
    if any(name not in had for name in kept):
        return False
    bare, bare_before = (
        {key: value for key, value in one.items() if key not in _MOVING} for one in (meta, before)
    )
    return bare == bare_before and {**new, "metadata": 0} == {**old, "metadata": 0}


def only_failed(decision: Decision) -> bool:
    """Whether a denial says nothing about the object, only that we could not judge it."""
    return bool(decision.reasons) and all(reason.rule.startswith("engine.") for reason in decision.reasons)


def _unjudged(policy: Policy, found: Mapping[str, Any], slice_: Mapping[str, Any], now_ns: int) -> Decision:
    """Allowed without asking a rule; the digests say what was seen."""
    given = engine_input(found, slice_, now_ns)
    return Decision(
        allowed=True,
        reasons=(),
        warnings=(),
        policy_digest=policy.bundle.policy_digest,
        input_digest=given.digest,
        facts_digest=given.facts_digest,
        context_digest=given.context_digest,
        bundle_digest=policy.bundle.bundle_digest,
        engine="none",
        asked=given,
    )


def refusal_text(decision: Decision, decision_id: str) -> str:
    """What the user reads: per reason which rule, which field, what is wrong and how to fix it."""
    lines = [line_of(reason) for reason in decision.reasons]
    return f"refused by sluicegate (decision {decision_id}):\n" + "\n".join(lines)


def line_of(reason: Reason) -> str:
    """One reason as one line."""
    where = f" at {reason.path}" if reason.path else ""
    fix = f". Fix: {reason.fix}" if reason.fix else ""
    return f"[{reason.rule}]{where}: {reason.text}{fix}"
