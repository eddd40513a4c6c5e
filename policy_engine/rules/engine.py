"""What an engine is: bytes in, violations out, or an exception that says why there are none.

An engine never answers "allowed". It answers with a complete result that carries the policy's
digest and echoes the input's digest; whatever else happens (undefined, late, trapped, another
digest, broken JSON) is :class:`~policy_engine.errors.EngineNoResult`, which the decision turns
into the denial ``engine.no_result``. Undefined is never allow.

Two engines implement :class:`Engine`: ``wasm.WasmEngine`` (in process, microseconds) and
``opa_server.OpaServerEngine`` (a real OPA). Both give the same violations in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeAlias

import orjson

from evidence.canonical import canonical
from policy_engine.errors import EngineNoResult

Params: TypeAlias = Mapping[str, Any]
ViolationKey: TypeAlias = tuple[str, str, bytes]

ENTRYPOINT: Final = "sluicegate/main/result"
_VIOLATION_FIELDS: Final = frozenset({"rule", "subject", "path", "params"})
_RESULT_FIELDS: Final = frozenset({"policy_digest", "input_digest", "violations"})


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, as data. Text, fix and severity stand in the bundle's metadata.

    Attributes:
        rule: Rule id such as ``residency.region``.
        subject: What broke it, by name (container, volume, pod path), never by index in a list.
        path: The field to change.
        params: What the text needs; canonical domain.
    """

    rule: str
    subject: str
    path: str
    params: Params

    @property
    def key(self) -> ViolationKey:
        """Identity for update semantics: changed params are another violation, a moved path is not."""
        return (self.rule, self.subject, canonical(self.params))


class Result(NamedTuple):
    """A complete answer: every violation, in canonical order, bound to policy and input."""

    violations: tuple[Violation, ...]
    policy_digest: str
    input_digest: str


class Engine(Protocol):
    """Evaluates one input against one policy."""

    @property
    def name(self) -> str:
        """``wasm`` or ``opa_server``; recorded with each decision."""
        ...

    @property
    def policy_digest(self) -> str:
        """The only policy whose answers count."""
        ...

    def evaluate(self, input_bytes: bytes, digest: str) -> Result:
        """Evaluate ``data.sluicegate.main.result``.

        Args:
            input_bytes: JSON object {context, digest, facts, now}, see :func:`engine_input`.
            digest: SHA-256 (hex) that the result must echo.

        Raises:
            EngineNoResult: No complete result bound to this policy and this input.
        """
        ...


class EngineInput(NamedTuple):
    """The bytes for an engine and every digest that a record needs."""

    body: bytes
    digest: str
    facts_digest: str
    context_digest: str
    facts: bytes = b""  # canonical bytes of the parts, for whoever records them
    context: bytes = b""


class Prepared(dict[str, Any]):
    """A context with its canonical bytes and their digest. Never changed once made."""

    __slots__ = ("data", "digest")

    data: bytes
    digest: str

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Prepared:
        """Encode a context.

        Raises:
            NotCanonical: It leaves the canonical domain.
        """
        self = cls(context)
        self.data = canonical(context)
        self.digest = hashlib.sha256(self.data).hexdigest()
        return self


def engine_input(facts: Mapping[str, Any], context: Mapping[str, Any], now_ns: int) -> EngineInput:
    """Build the input: canonical JSON of {context, facts, now} plus its own digest.

    Each part is encoded once: canonical bytes of an object are its sorted members, so the whole is
    put together from the parts.

    Raises:
        NotCanonical: Facts or context leave the canonical domain (floats, non-ASCII keys, ...).
    """
    facts_bytes = canonical(facts)
    prepared = context if type(context) is Prepared else Prepared.of(context)
    context_bytes = prepared.data
    tail = b',"facts":' + facts_bytes + b',"now":"' + str(now_ns).encode("ascii") + b'"}'
    head = b'{"context":' + context_bytes
    digest = hashlib.sha256(head + tail).hexdigest()
    return EngineInput(
        body=head + b',"digest":"' + digest.encode("ascii") + b'"' + tail,
        digest=digest,
        facts_digest=hashlib.sha256(facts_bytes).hexdigest(),
        context_digest=prepared.digest,
        facts=facts_bytes,
        context=context_bytes,
    )


def parse_result(document: object, policy_digest: str, digest: str, limit: int) -> Result:
    """Check the shape of an answer and bind it to policy and input.

    Args:
        document: The value of the entrypoint, already decoded from JSON.
        policy_digest: The digest that this engine's policy must carry.
        digest: The digest that the answer must echo.
        limit: Most violations that one answer may hold.

    Raises:
        EngineNoResult: Anything but the complete result.
    """
    # 1. The complete rule gave an object with exactly the three fields.
    if not isinstance(document, dict) or document.keys() != _RESULT_FIELDS:
        _refuse("the policy gave no complete result")
    # 2. It was computed by the policy that we trust.
    if document["policy_digest"] != policy_digest:
        _refuse("the answer comes from another policy than the trusted bundle")
    # 3. It was computed from this input: broken JSON would give an answer without violations.
    if document["input_digest"] != digest:
        _refuse("the answer does not belong to this input")
    # 4. Every violation is complete.
    rows = document["violations"]
    if not isinstance(rows, list) or len(rows) > limit:
        _refuse("the answer holds no list of violations, or more than the limit")
    return Result(_ordered(rows), policy_digest, digest)


def _ordered(rows: Sequence[object]) -> tuple[Violation, ...]:
    """Violations in canonical order: sets have no order in Wasm, and OPA's own is another."""
    if not rows:
        return ()
    violations = [_violation(row) for row in rows]
    return tuple(sorted(violations, key=lambda found: (*found.key, found.path)))


def _violation(row: object) -> Violation:
    if not isinstance(row, dict) or row.keys() != _VIOLATION_FIELDS:
        _refuse("a violation is not {rule, subject, path, params}")
    rule, subject, path, params = row["rule"], row["subject"], row["path"], row["params"]
    texts = isinstance(rule, str) and isinstance(subject, str) and isinstance(path, str)
    if not texts or not isinstance(params, dict):
        _refuse("a violation has a field of the wrong type")
    return Violation(rule, subject, path, params)


def _refuse(why: str) -> NoReturn:
    raise EngineNoResult(why)


def decode(raw: bytes) -> object:
    """JSON from an engine; a document that cannot be read is no result."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise EngineNoResult("the engine's answer is not JSON") from None
