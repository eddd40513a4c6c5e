"""Built-in findings: what no rule in a bundle may decide, because it asks whether rules can be asked at all.

Pure. ``unbound`` (a namespace without a binding), ``facts.unreadable`` (the object could not be read),
``facts.unresolved`` (something that it refers to is not known), ``engine.no_result``. None of them can be
excepted, and no bundle can take them away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy_engine.rules.engine import Violation
from policy_engine.rules.metadata import RuleMeta

NO_RESULT: Final = "engine.no_result"
UNREADABLE: Final = "facts.unreadable"
UNRESOLVED: Final = "facts.unresolved"
UNBOUND: Final = "unbound"
# Kinds that are judged for themselves; every other kind only makes pods, which are judged when created.
_JUDGED_NOW: Final = frozenset({"Pod", "Binding"})


def _meta(rule: str, title: str, text: str, fix: str) -> RuleMeta:
    return RuleMeta(rule, title, "", text, fix, "critical", ("NIST-800-53:AC-3",), False, "deny", ())


METADATA: Final[Mapping[str, RuleMeta]] = {
    meta.rule: meta
    for meta in (
        _meta(
            NO_RESULT,
            "The policy engine gives a complete answer",
            "the policy could not be evaluated: {why}",
            "retry; split an object of hundreds of pods; if it stays, tell the operators of Sluicegate",
        ),
        _meta(
            UNREADABLE,
            "An object can be read as a whole",
            "{path} cannot be read: {why}",
            "correct {path}",
        ),
        _meta(
            UNRESOLVED,
            "What an object refers to is known",
            '{what} "{name}", named in {path}, is not known to this cluster\'s inventory',
            'create {what} "{name}" first, or correct the name in {path}',
        ),
        _meta(
            UNBOUND,
            "A namespace is bound to a tenant",
            'namespace "{namespace}" of cluster "{cluster}" has no NamespaceBinding{because}',
            "ask the platform team for a NamespaceBinding, or use a namespace that has one",
        ),
    )
}


_TOO_MUCH: Final = {
    "path": "object",
    "why": "it declares more data for more pods than can be judged at once; make several objects of it",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, by what it means."""

    denials: tuple[Violation, ...]
    warnings: tuple[Violation, ...]


def find(
    facts: Mapping[str, Any], context: Mapping[str, Any], now_ns: int, rules: Mapping[str, RuleMeta]
) -> Findings:
    """Every built-in finding about one object.

    Args:
        facts: Facts of the object.
        context: Its slice of declared state.
        now_ns: For the end date of ``unbound: warn``.
        rules: METADATA of the bundle: what a missing referent means.
    """
    subject = facts.get("subject", {})
    if subject.get("operation") == "DELETE":  # nothing starts; delete rules judge deletes
        return Findings((), ())
    bound = context.get("bound") is True
    unbound = () if bound else (_unbound(subject, context, now_ns),)
    unreadable = tuple(_unreadable(item) for item in facts.get("unreadable", ()))
    if context.get("incomplete") is True:
        unreadable = (*unreadable, _unreadable(_TOO_MUCH))
    if not bound and _tolerated(context, now_ns):
        # Nothing is granted here and nothing governed: say it, do not stop it.
        said = unbound if _stated(context) else ()
        return Findings((), said + unreadable)
    denied, deferred = _unresolved(facts, rules) if bound else ((), ())
    return Findings(unbound + unreadable + denied, deferred)


def no_result(why: str) -> Violation:
    """The denial for an engine that gave no complete result."""
    return Violation(NO_RESULT, "", "", {"why": why})


def _tolerated(context: Mapping[str, Any], now_ns: int) -> bool:
    """Whether a namespace without a binding may run for now; whatever is not plainly said is no."""
    cluster = context.get("cluster", {})
    if cluster.get("platform") is True:
        return True
    if cluster.get("known") is not True:
        return False
    if cluster.get("unbound") == "ignore":
        return True
    return cluster.get("unbound") == "warn" and now_ns < _until(cluster)


def _until(cluster: Mapping[str, Any]) -> int:
    """End of ``unbound: warn``; without an end it has ended."""
    text = cluster.get("until_ns")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0


def _stated(context: Mapping[str, Any]) -> bool:
    cluster = context.get("cluster", {})
    return cluster.get("platform") is not True and cluster.get("unbound") == "warn"


def _unbound(subject: Mapping[str, Any], context: Mapping[str, Any], now_ns: int) -> Violation:
    cluster = context.get("cluster", {})
    because = ""
    if cluster.get("known") is not True:
        because = ", and no such Cluster is declared"
    elif cluster.get("unbound") == "warn":
        ends = "ends soon" if now_ns < _until(cluster) else "has ended"
        because = f"; the time in which this is only a warning {ends}"
    namespace = str(subject.get("namespace", ""))
    params = {"namespace": namespace, "cluster": str(cluster.get("name", "")), "because": because}
    return Violation(UNBOUND, namespace, "metadata.namespace", params)


def _unreadable(item: Mapping[str, Any]) -> Violation:
    path = str(item.get("path", ""))
    return Violation(UNREADABLE, path, path, {"why": str(item.get("why", ""))})


def _unresolved(
    facts: Mapping[str, Any], rules: Mapping[str, RuleMeta]
) -> tuple[tuple[Violation, ...], tuple[Violation, ...]]:
    """Missing referents: (denied, deferred until the pods are created)."""
    template = facts.get("subject", {}).get("kind") not in _JUDGED_NOW and bool(facts.get("pods"))
    denied: list[Violation] = []
    deferred: list[Violation] = []
    for item in facts.get("unresolved", ()):
        what, name = str(item.get("what", "")), str(item.get("name", ""))
        found = Violation(UNRESOLVED, name, str(item.get("path", "")), {"what": what, "name": name})
        later = template and _all_defer(what, list(rules.values()))
        (deferred if later else denied).append(found)
    return tuple(denied), tuple(deferred)


def _all_defer(what: str, rules: Sequence[RuleMeta]) -> bool:
    """Whether every rule that depends on this kind of referent can wait; an unknown kind concerns all."""
    concerned = [rule for rule in rules if what in rule.needs] or [rule for rule in rules if rule.needs]
    return bool(concerned) and all(rule.unresolved == "defer" for rule in concerned)
