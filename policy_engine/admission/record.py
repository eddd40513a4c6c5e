"""The record of a decision: complete before it is answered, because its bytes are what is made durable.

Public: the verdict, rule ids and digests. Sensitive: facts, context, denial texts and whatever else names
objects or people (released only with the tenant's own package). The salts are drawn here, so that the leaf
hash can stand in the API server's audit log before the ledger has the record.
"""

import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from evidence.canonical import Encoded
from evidence.records import SALTS_OCTETS, Draft, EncodedRecord, encode
from policy_engine.admission.identities import Caller
from policy_engine.admission.judge import Judged
from policy_engine.rules.decision import Reason

_ID_OCTETS: Final = 16


class Sealed(NamedTuple):
    """A record with the id that the answer names."""

    decision_id: str
    record: EncodedRecord


def seal(
    judged: Judged, caller: Caller, *, scope_id: str, spool_id: str, seq: int, boot_id: str, received_ns: int
) -> Sealed:
    """Make the complete record.

    Args:
        judged: The judgement.
        caller: The API server that asked, and how it proved itself.
        scope_id: Random id of `judged.scope`.
        spool_id: Source of the record.
        seq: Number in the spool, the record's `source_seq`.
        boot_id: Of this process.
        received_ns: When the review arrived.

    Raises:
        RecordRefused, NotCanonical: It cannot be recorded; so it must not be answered with a verdict.
    """
    drawn = os.urandom(SALTS_OCTETS + _ID_OCTETS)
    decision_id = drawn[SALTS_OCTETS:].hex()
    draft = Draft(
        "decision",
        judged.scope,
        spool_id,
        None,
        _public(judged, caller, decision_id),
        _sensitive(judged),
        {"event_id": decision_id},
    )
    record = encode(
        draft,
        scope_id=scope_id,
        source_seq=seq,
        boot_id=boot_id,
        received_time_ns=received_ns,
        salts=drawn[:SALTS_OCTETS],
    )
    return Sealed(decision_id, record)


def _public(judged: Judged, caller: Caller, decision_id: str) -> dict[str, Any]:
    decision, subject = judged.decision, judged.facts["subject"]
    body: dict[str, Any] = {
        "allowed": decision.allowed,
        "bundle_digest": judged.policy.bundle.bundle_digest,
        "caller": caller.record,
        "cluster": caller.cluster,
        "context_digest": decision.context_digest,
        "decision_id": decision_id,
        "dry_run": subject["dryRun"],
        "engine": decision.engine,
        "facts_digest": decision.facts_digest,
        "generation": judged.generation,
        "group": subject["group"],
        "input_digest": decision.input_digest,
        "kind": subject["kind"],
        "now": str(judged.now_ns),
        "operation": subject["operation"],
        "policy_digest": decision.policy_digest,
        "resource_digest": judged.resource_digest,
        "rules": _rules(decision.reasons),
        "subresource": subject["subresource"],
        "version": subject["version"],
        "warned": _rules(decision.warnings),
    }
    binding = judged.context.get("binding")
    if binding:
        body["binding"] = binding["name"]
    if judged.exempt:
        body["exempt"] = judged.exempt
    if decision.exceptions:
        body["exceptions"] = list(decision.exceptions)
    return body


def _sensitive(judged: Judged) -> dict[str, Any]:
    decision, subject = judged.decision, judged.facts["subject"]
    asked = decision.asked
    body: dict[str, Any] = {
        "context": Encoded(asked.context) if asked else judged.context,
        "facts": Encoded(asked.facts) if asked else judged.facts,
        "name": subject["name"],
        "namespace": subject["namespace"],
        "uid": judged.review.uid,
    }
    if decision.reasons:
        body["reasons"] = [reason.shown() for reason in decision.reasons]
    if decision.warnings:
        body["warnings"] = [reason.shown() for reason in decision.warnings]
    return body


def _rules(reasons: Sequence[Reason]) -> list[str]:
    return sorted({reason.rule for reason in reasons}) if reasons else []
