"""METADATA of rules: read from OPA's annotations, checked, and filled in as text.

A rule's annotation (``# METADATA`` above it) has a title, a description and, under ``custom``: ``id``,
``text``, ``fix``, ``severity``, ``controls``, ``exceptable``, ``unresolved``, ``needs``. Texts are
templates: ``{name}`` is a param, ``{subject}`` and ``{path}`` are the violation's own; ``{x:time}``
shows nanoseconds as a UTC time, ``{x:words}`` a constant such as ``never_keyed`` as words. Nothing
else is interpreted, so a name that holds braces stays a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from policy_engine.errors import BuildRefused
from policy_engine.limits import LIMITS

SEVERITIES: Final = ("critical", "high", "medium", "advice")
ADVICE: Final = "advice"  # warns, never denies
_ID: Final = re.compile(r"[a-z]+\.[a-z_]+")
_FIELD: Final = re.compile(r"\{([a-z_]+)(?::([a-z]+))?\}")
_CUSTOM: Final = frozenset({"id", "text", "fix", "severity", "controls", "exceptable", "unresolved", "needs"})


@dataclass(frozen=True, slots=True)
class RuleMeta:
    """METADATA of one rule (``rego/<pack>/*.rego``).

    Attributes:
        rule: Rule id.
        title: One line.
        description: What the rule means; may be empty.
        text: Template of the denial.
        fix: Template of what to do.
        severity: ``critical``, ``high``, ``medium`` or ``advice`` (only warns).
        controls: Ids of the controls that the rule serves.
        exceptable: Whether an exception may cover it.
        unresolved: ``deny`` or ``defer``: what a missing referent means for this rule.
        needs: Kinds of referents (``what`` of facts.unresolved) on which the rule depends.
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

    def as_dict(self) -> dict[str, Any]:
        """The form in which the bundle carries it."""
        return {**asdict(self), "controls": list(self.controls), "needs": list(self.needs)}

    def fields(self) -> frozenset[str]:
        """Names that the two templates use."""
        return frozenset(match[1] for match in _FIELD.finditer(self.text + self.fix))


def parse(annotation: Mapping[str, Any]) -> RuleMeta:
    """Check one annotation.

    Raises:
        BuildRefused: A part is missing, of the wrong type, or unknown.
    """
    custom = annotation.get("custom", {})
    rule = str(custom.get("id", ""))
    if not _ID.fullmatch(rule):
        raise BuildRefused(f"a rule's METADATA has no custom.id of the form pack.name: {rule!r}")
    if custom.keys() != _CUSTOM:
        wrong = sorted(custom.keys() ^ _CUSTOM)
        raise BuildRefused(f"{rule}: METADATA custom has missing or unknown parts: {', '.join(wrong)}")
    meta = RuleMeta(
        rule=rule,
        title=str(annotation.get("title", "")).strip(),
        description=str(annotation.get("description", "")).strip(),
        text=str(custom["text"]).strip(),
        fix=str(custom["fix"]).strip(),
        severity=str(custom["severity"]),
        controls=tuple(custom["controls"]),
        exceptable=custom["exceptable"] is True,
        unresolved=str(custom["unresolved"]),
        needs=tuple(custom["needs"]),
    )
    _check(meta)
    return meta


def _check(meta: RuleMeta) -> None:
    if not (meta.title and meta.text and meta.fix and meta.controls):
        raise BuildRefused(f"{meta.rule}: title, text, fix and controls must say something")
    if meta.severity not in SEVERITIES:
        raise BuildRefused(f"{meta.rule}: severity must be one of {', '.join(SEVERITIES)}")
    if meta.unresolved not in {"deny", "defer"}:
        raise BuildRefused(f"{meta.rule}: unresolved must be deny or defer")
    unknown = {match[2] for match in _FIELD.finditer(meta.text + meta.fix)} - {None, "time", "words"}
    if unknown:
        raise BuildRefused(f"{meta.rule}: unknown format in a template: {', '.join(sorted(unknown))}")


def from_dict(data: Mapping[str, Any]) -> RuleMeta:
    """Read what :meth:`RuleMeta.as_dict` wrote; a KeyError or TypeError means a damaged bundle."""
    known = {name: data[name] for name in RuleMeta.__dataclass_fields__}
    known["controls"], known["needs"] = tuple(known["controls"]), tuple(known["needs"])
    return RuleMeta(**known)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template. A missing value shows as "unknown": a denial must not fail for its text."""
    return _FIELD.sub(lambda match: _shown(values.get(match[1], "unknown"), match[2]), template)


def _shown(value: object, form: str | None) -> str:
    if isinstance(value, list | tuple):
        return _listed(value)
    if form == "time":
        return _time(value)
    text = str(value)
    if form == "words":
        text = text.replace("_", " ")
    return _clean(text)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(_clean(str(value)) for value in values) or "none"


def _clean(text: str) -> str:
    """One line, bounded: names come from users and end in terminals and logs."""
    cut = text[: LIMITS.reason_value_chars]
    plain = cut if cut.isprintable() else "".join(char if char.isprintable() else "?" for char in cut)
    return plain + ("..." if len(text) > len(cut) else "")


def _time(value: object) -> str:
    """Nanoseconds (decimal string) as RFC 3339 in seconds; 0 is "the beginning"."""
    try:
        seconds = int(str(value)) // 1_000_000_000
        if seconds == 0:
            return "the beginning"
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
