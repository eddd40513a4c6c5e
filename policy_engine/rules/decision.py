"""From violations to a decision: update semantics, exceptions, built-in denials, text.

One function, :func:`decide`, is shared by the webhook, ``sluicegate check --objects`` and scans. It
is pure but for the engine it is given. In order:

1. What is no rule's business is judged by `builtin`: an unbound namespace, facts that could not be
   read, referents that could not be resolved, an engine without a result.
2. The engine gives the raw violations of the new object. Only if there are any, and the review is
   an update, the old object is evaluated too, with the same policy, resources, postures and now.
3. A violation whose key (rule, subject, canonical params) the old object had already is a warning;
   the rest are denials. So an update is never refused for what was there, and never makes it worse.
   Two built-ins are never excused so: what cannot be read, and an engine without a result. An unbound
   namespace is excused only while the update changes nothing that is governed. What cannot be read is
   excused only where the object is untouched but for its labels, finalizers and the like: an object that
   is older than the policy can be cleaned up.
4. Exceptions apply to what is left. They compose in any order. None exist yet: no caller gives any.
5. Texts are made from the bundle's metadata; rules with severity ``advice`` only warn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from evidence.errors import NotCanonical
from policy_engine.errors import EngineNoResult
from policy_engine.rules import builtin
from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Engine, EngineInput, Params, Result, Violation, engine_input
from policy_engine.rules.metadata import ADVICE, RuleMeta, render

Facts = Mapping[str, Any]
Context = Mapping[str, Any]
_NEVER_EXCUSED: Final = frozenset({builtin.NO_RESULT, builtin.UNREADABLE})
# What an update must leave as it is for an unbound namespace to be yesterday's news.
_GOVERNED: Final = ("pods", "images", "exposure", "stores", "embedded", "unreadable")
_NO_INPUT: Final = EngineInput(b"", "", "", "")
# A violation of a rule without METADATA still denies.
_UNKNOWN: Final = RuleMeta(
    rule="",
    title="",
    description="",
    text="the rule {rule} is broken",
    fix="see the rule's description",
    severity="critical",
    controls=(),
    exceptable=False,
    unresolved="deny",
    needs=(),
)


class Before(NamedTuple):
    """The old object of an update.

    Attributes:
        facts: Facts of the old object.
        context: The slice for the *old* facts, over the same resources and postures: a slice made for the
            new facts would show the old object the new object's sites, and everything would look old.
        untouched: The update changes metadata only, and no annotation (`facts.only_metadata_differs`).
    """

    facts: Facts
    context: Context
    untouched: bool = False


@dataclass(frozen=True, slots=True)
class Reason:
    """Why not (or, as a warning, what to know): which rule, which field, how to fix it."""

    rule: str
    text: str
    fix: str
    path: str
    params: Params
    subject: str = ""
    severity: str = "high"

    def shown(self) -> dict[str, Any]:
        """As records and reports have it; the severity stands in the bundle."""
        return {
            "rule": self.rule,
            "text": self.text,
            "fix": self.fix,
            "path": self.path,
            "subject": self.subject,
            "params": self.params,
        }


class Waiver(Protocol):
    """An exception that is in force: what it covers is its own, pure business."""

    @property
    def id(self) -> str:
        """Name of the exception, recorded with the decision."""
        ...

    def covers(self, violation: Violation, facts: Facts) -> bool:
        """Whether this exception covers this violation of this object."""
        ...


class Decision(NamedTuple):
    """The answer and what it was computed from; response, record and text all derive from it."""

    allowed: bool
    reasons: tuple[Reason, ...]
    warnings: tuple[Reason, ...]
    policy_digest: str
    input_digest: str
    facts_digest: str
    context_digest: str
    bundle_digest: str = ""
    engine: str = ""
    exceptions: tuple[str, ...] = ()  # ids of the exceptions without which it would have been denied
    asked: EngineInput | None = None  # what the engine was given; None when it could not be encoded


def decide(  # noqa: PLR0917 - the order is that of the question: engine(policy, facts, context, now)
    engine: Engine,
    bundle: Bundle,
    facts: Facts,
    context: Context,
    old: Callable[[], Before] | None,
    now_ns: int,
    *,
    waivers: Sequence[Waiver] = (),
) -> Decision:
    """Decide one object. Never raises for what the object holds: it denies, with the reason.

    Args:
        engine: Evaluates the rules.
        bundle: The trusted bundle: texts and severities.
        facts: Facts of the new object.
        context: The slice of declared state for these facts.
        old: For an update: gives the old object, called only when the new one violates.
        now_ns: The moment of deciding.
        waivers: Exceptions in force.
    """
    asked, found, warned = _judge(engine, bundle, facts, context, now_ns)
    advice = [row for row in found if _meta(bundle, row).severity == ADVICE]
    denials = [row for row in found if _meta(bundle, row).severity != ADVICE]
    warned += advice
    if denials and old is not None:
        before = old()
        _, rows, _ = _judge(engine, bundle, before.facts, before.context, now_ns)
        denials, excused = _new_only(denials, rows, facts, before)
        warned += excused
    denials, waived, used = apply_waivers(bundle, denials, waivers, facts)
    return Decision(
        allowed=not denials,
        reasons=tuple(_reason(bundle, row) for row in denials),
        warnings=tuple(_reason(bundle, row) for row in [*warned, *waived]),
        policy_digest=bundle.policy_digest,
        input_digest=asked.digest,
        facts_digest=asked.facts_digest,
        context_digest=asked.context_digest,
        bundle_digest=bundle.bundle_digest,
        engine=engine.name,
        exceptions=used,
        asked=asked if asked.digest else None,
    )


def _judge(
    engine: Engine, bundle: Bundle, facts: Facts, context: Context, now_ns: int
) -> tuple[EngineInput, list[Violation], list[Violation]]:
    """Raw violations of one object, built-ins first, and what only warns."""
    ours = builtin.find(facts, context, now_ns, bundle.metadata)
    asked, rows = _NO_INPUT, [*ours.denials]
    try:
        asked = engine_input(facts, context, now_ns)
        rows += _evaluate(engine, bundle, asked).violations
    except EngineNoResult as error:
        rows.append(builtin.no_result(str(error)))
    except NotCanonical:
        rows.append(builtin.no_result("the object holds values outside the canonical domain"))
    return asked, rows, [*ours.warnings]


def _evaluate(engine: Engine, bundle: Bundle, asked: EngineInput) -> Result:
    """Ask the engine; a defect in it is no answer either."""
    if engine.policy_digest != bundle.policy_digest:
        raise EngineNoResult("the engine runs another policy than the trusted bundle")
    try:
        result = engine.evaluate(asked.body, asked.digest)
    except EngineNoResult:
        raise
    except Exception as error:
        raise EngineNoResult(f"the engine failed: {type(error).__name__}") from None
    if (result.policy_digest, result.input_digest) != (bundle.policy_digest, asked.digest):
        raise EngineNoResult("the answer is not bound to this policy and this input")
    return result


def _new_only(
    denials: list[Violation], old_rows: list[Violation], facts: Facts, before: Before
) -> tuple[list[Violation], list[Violation]]:
    """Split into (what the update brings, what was there)."""
    # An old object that could not be judged excuses nothing.
    if any(row.rule == builtin.NO_RESULT for row in old_rows):
        return denials, []
    never = _NEVER_EXCUSED - {builtin.UNREADABLE} if before.untouched else _NEVER_EXCUSED
    excused = {row.key for row in old_rows if row.rule not in never}
    if not _same_governed(facts, before.facts):
        excused = {key for key in excused if key[0] != builtin.UNBOUND}
    return (
        [row for row in denials if row.key not in excused],
        [row for row in denials if row.key in excused],
    )


def _same_governed(new: Facts, old: Facts) -> bool:
    return all(new.get(name) == old.get(name) for name in _GOVERNED)


def apply_waivers(
    bundle: Bundle, denials: Iterable[Violation], waivers: Sequence[Waiver], facts: Facts
) -> tuple[list[Violation], list[Violation], tuple[str, ...]]:
    """Apply exceptions: each violation is covered by whichever cover it, in any order.

    Args:
        bundle: Says which rules may be excepted.
        denials: What would deny.
        waivers: Exceptions in force, in any order.
        facts: Facts of the object.

    Returns:
        (still denied, waived, ids of the exceptions that covered something, sorted).
    """
    kept: list[Violation] = []
    waived: list[Violation] = []
    used: set[str] = set()
    for row in denials:
        covering = _covering(bundle, row, waivers, facts)
        used.update(covering)
        (waived if covering else kept).append(row)
    return kept, waived, tuple(sorted(used))


def _covering(bundle: Bundle, row: Violation, waivers: Sequence[Waiver], facts: Facts) -> set[str]:
    meta = bundle.metadata.get(row.rule)  # built-ins have none here: they are never excepted
    if meta is None or not meta.exceptable:
        return set()
    return {waiver.id for waiver in waivers if waiver.covers(row, facts)}


def _meta(bundle: Bundle, row: Violation) -> RuleMeta:
    # Built-ins first: a bundle cannot soften them by metadata of the same id.
    return builtin.METADATA.get(row.rule) or bundle.metadata.get(row.rule) or _UNKNOWN


def _reason(bundle: Bundle, row: Violation) -> Reason:
    meta = _meta(bundle, row)
    values = {**row.params, "rule": row.rule, "subject": row.subject, "path": row.path}
    return Reason(
        rule=row.rule,
        text=render(meta.text, values),
        fix=render(meta.fix, values),
        path=row.path,
        params=row.params,
        subject=row.subject,
        severity=meta.severity,
    )
