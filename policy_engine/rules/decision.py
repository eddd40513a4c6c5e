"""From violations to a decision: update semantics, exceptions, built-in denials, text.

One function, :func:`decide`, is shared by the webhook, ``sluicegate check --objects`` and scans. It
is pure but for the engine it is given. In order:

1. What is no rule's business is judged here (built-ins): an unbound namespace, facts that could not
   be read, referents that could not be resolved, an engine without a result.
2. The engine gives the raw violations of the new object. Only if there are any, and the review is
   an update, the old object is evaluated too, with the same policy, resources, postures and now.
3. A violation whose key (rule, subject, canonical params) the old object had already is a warning;
   the rest are denials. So an update is never refused for what was there, and never makes it worse.
4. Exceptions apply to what is left. They compose in any order.
5. Texts are made from the bundle's metadata; rules with severity ``advice`` only warn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from policy_engine.rules.bundle import Bundle
from policy_engine.rules.engine import Engine, Params, Violation

Facts = Mapping[str, Any]
Context = Mapping[str, Any]
# Gives the old object's facts and context; called only when the new object violates. The context must
# be the slice for the *old* facts, over the same resources and postures: a slice made for the new
# facts would show the old object the new object's sites, and everything would look old.
Old = Callable[[], tuple[Facts, Context]]


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


class Waiver(Protocol):
    """An exception that is in force: what it covers is its own, pure business."""

    @property
    def id(self) -> str:
        """Name of the exception, recorded with the decision."""
        ...

    def covers(self, violation: Violation, facts: Facts) -> bool:
        """Whether this exception covers this violation of this object."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
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


def decide(
    engine: Engine,
    bundle: Bundle,
    facts: Facts,
    context: Context,
    old: Old | None,
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
        old: For an update: gives (facts, context) of the old object, called only when needed.
        now_ns: The moment of deciding.
        waivers: Exceptions in force.
    """
    raise NotImplementedError
