"""Permits: their format, how they are signed, how an agent verifies them (rotation.md section 5).

A permit says for how long one end of one link may stay open; *when* to issue one is decided in
`policy_engine/gate/`. The answer to a pull is one JSON object {"envelope", "statement"}: a DSSE envelope
whose payload is the permit in canonical JSON, signed with the gate's Ed25519 key, and the DSSE envelope in
which the transit key `permit-root`, pinned by the agent at enrolment, certifies that key until
`not_after_ns`. So sealing OpenBao stops no permit. Validity is a duration that the agent counts from its own
request on CLOCK_BOOTTIME.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from evidence.canonical import canonical
from evidence.dsse import envelope, opened, pae
from evidence.errors import NotCanonical, SignatureInvalid
from keymgmt.checks import Check, is_count, is_hex, is_nonce, is_str, is_u64, take
from keymgmt.errors import MessageRefused, PermitRefused

PERMIT_TYPE: Final = "application/vnd.sluicegate.permit+json"
SIGNER_TYPE: Final = "application/vnd.sluicegate.permit-signer+json"
MAX_ANSWER: Final = 65_536  # octets; a larger answer is refused unread
Sign = Callable[[bytes], bytes]
"""Signs octets with Ed25519 and returns the 64 octets."""


class PermitKind(StrEnum):
    """`permit` opens for a while; `close` closes until a `reopen`, which itself opens nothing."""

    PERMIT = "permit"
    CLOSE = "close"
    REOPEN = "reopen"


@dataclass(frozen=True, slots=True)
class Permit:
    """One order of the gate to one end of one link.

    Attributes:
        epoch, seq: the order; a later one is numerically greater as a pair.
        nonce: of the pull it answers; a close is valid without matching it.
        boot_id: of the machine that asked.
        secy_id: the SecY lifetime that asked.
        ttl_ms: valid for so long after the request.
        max_hold_ms: how long a living agent may go on without a new permit after ttl; 0: not at all.
        arm_ms: how long the data plane stays open without renewal by its agent.
        hard_not_after_ms: it counts no longer than this from the request, held or not; None: no such bound.
        posture_generation: of the posture row that the issuing transaction locked.
        sample_digest: SHA-256 of the last sample judged, 64 hex digits.
        violation_generation: the latest violation of this end that the gate had seen.
        signer: key id of the gate's key.
        reason: short text, for a close why.
    """

    kind: PermitKind
    link: str
    endpoint: str
    epoch: int
    seq: int
    nonce: str
    boot_id: str
    secy_id: str
    ttl_ms: int
    max_hold_ms: int
    arm_ms: int
    posture_generation: int
    sample_digest: str
    violation_generation: int
    signer: str
    reason: str = ""
    hard_not_after_ms: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """(epoch, seq)."""
        return (self.epoch, self.seq)

    def payload(self) -> bytes:
        """Return the canonical JSON that is signed."""
        doc: dict[str, Any] = {name: getattr(self, name) for name in _PERMIT if name not in ("v", "type")}
        return canonical(doc | {"v": 1, "type": str(self.kind)})

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Read a payload. Raises MessageRefused."""
        got = take(_json(payload), _PERMIT, "permit")
        kind = PermitKind(got.pop("type"))
        del got["v"]
        permit = cls(kind=kind, **got)
        _refuse_other_spelling(permit, payload)
        return permit


@dataclass(frozen=True, slots=True)
class SignerStatement:
    """The root's word for one delegated key: {key, epoch, not_after}."""

    key_id: str
    public_key: bytes
    epoch: int
    not_after_ns: int

    def payload(self) -> bytes:
        """Return the canonical JSON that `permit-root` signs."""
        return canonical(
            {
                "v": 1,
                "type": "permit-signer",
                "key_id": self.key_id,
                "public_key": self.public_key.hex(),
                "epoch": self.epoch,
                "not_after_ns": str(self.not_after_ns),
            }
        )

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Read a payload. Raises MessageRefused."""
        got = take(_json(payload), _STATEMENT, "permit signer")
        public_key, not_after_ns = bytes.fromhex(got["public_key"]), int(got["not_after_ns"])
        statement = cls(got["key_id"], public_key, got["epoch"], not_after_ns)
        _refuse_other_spelling(statement, payload)
        return statement


@dataclass(frozen=True, slots=True)
class Expected:
    """What an agent holds a permit against.

    Attributes:
        roots: pinned permit-root keys, key id -> 32 octets.
        nonce: of the pull, None when none is outstanding.
        now_ns: wall clock, only for the signer's not_after.
    """

    roots: Mapping[str, bytes] = field(repr=False)
    link: str
    endpoint: str
    boot_id: str
    secy_id: str
    nonce: str | None
    last_order: tuple[int, int]
    violation_generation: int
    now_ns: int


def key_id_of(public_key: bytes) -> str:
    """Return the id of an Ed25519 key: the first 16 octets of SHA-256 over its 32, in hex."""
    return hashlib.sha256(public_key).digest()[:16].hex()


def certify(statement: SignerStatement, root_key_id: str, sign: Sign) -> dict[str, Any]:
    """Return the root's envelope about a delegated key; `sign` is the transit key `permit-root`."""
    return _signed(SIGNER_TYPE, statement.payload(), root_key_id, sign)


def issue(permit: Permit, statement: Mapping[str, Any], sign: Sign) -> bytes:
    """Return the octets that answer a pull; `statement` is what `certify` returned for the signing key."""
    signed = _signed(PERMIT_TYPE, permit.payload(), permit.signer, sign)
    return canonical({"envelope": signed, "statement": dict(statement)})


def verify(answer: bytes, expected: Expected) -> Permit:
    """Return the permit in an answer, verified.

    Numbered as in the code:
     1. size and JSON shape of the answer;
     2. the statement is signed by a pinned root;
     3. the statement names the key by its own id and has not ended;
     4. the permit is signed by that key, and its payload names it;
     5. epoch of the permit = epoch of the statement;
     6. link, endpoint are ours;
     7. its order is above the last accepted;
     8. (permit, reopen) nonce, boot id and SecY lifetime are those of our pull;
     9. (permit, reopen) it has seen our latest violation;
    10. (permit) durations are sane: ttl and arm above 0.
    The caller persists the order before acting, and counts validity from its own request.

    Raises:
        PermitRefused: naming the step.
        MessageRefused: not a permit at all.
    """
    if len(answer) > MAX_ANSWER:  # 1
        raise MessageRefused("permit: answer too large")
    doc = take(_json(answer), {"envelope": _is_object, "statement": _is_object}, "permit answer")
    root_id, payload = _opened("signer", doc["statement"], SIGNER_TYPE, expected.roots)  # 2
    statement = SignerStatement.from_payload(payload)
    if statement.key_id != key_id_of(statement.public_key):  # 3
        raise PermitRefused("signer: its key id is not its key's")
    if expected.now_ns >= statement.not_after_ns:
        raise PermitRefused(
            "signer: its statement has ended; the gate must renew it under permit-root " + root_id
        )
    key = {statement.key_id: statement.public_key}
    _, payload = _opened("permit", doc["envelope"], PERMIT_TYPE, key)  # 4
    permit = Permit.from_payload(payload)
    if permit.signer != statement.key_id:
        raise PermitRefused("signer: the payload names another key")
    if permit.epoch != statement.epoch:  # 5
        raise PermitRefused("epoch: the signer belongs to another epoch")
    _accept(permit, expected)
    return permit


def _signed(payload_type: str, payload: bytes, key_id: str, sign: Sign) -> dict[str, Any]:
    return envelope(payload_type, payload, key_id, sign(pae(payload_type, payload)))


def _opened(what: str, value: Any, payload_type: str, keys: Mapping[str, bytes]) -> tuple[str, bytes]:
    try:
        return opened(value, payload_type, keys)
    except SignatureInvalid as why:
        raise PermitRefused(f"{what}: {why}") from None


def _accept(permit: Permit, expected: Expected) -> None:
    if (permit.link, permit.endpoint) != (expected.link, expected.endpoint):  # 6
        raise PermitRefused("addressee: it is for another link or endpoint")
    if permit.order <= expected.last_order:  # 7
        raise PermitRefused("order: not above the last order accepted")
    if permit.kind is PermitKind.CLOSE:
        return
    if expected.nonce is None or permit.nonce != expected.nonce:  # 8
        raise PermitRefused("nonce: it does not answer our pull")
    if (permit.boot_id, permit.secy_id) != (expected.boot_id, expected.secy_id):
        raise PermitRefused("boot: it is for an earlier boot or SecY lifetime")
    if permit.violation_generation < expected.violation_generation:  # 9
        raise PermitRefused("violation: it was issued before our latest violation was seen")
    if permit.kind is PermitKind.PERMIT and min(permit.ttl_ms, permit.arm_ms) < 1:  # 10
        raise PermitRefused("durations: ttl and arm must be above 0")


def _json(octets: bytes) -> Any:
    try:
        return json.loads(octets, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise MessageRefused("not JSON, or a name stands twice in an object") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    doc = dict(pairs)
    if len(doc) != len(pairs):
        raise ValueError("duplicate name")
    return doc


def _refuse_other_spelling(got: Permit | SignerStatement, payload: bytes) -> None:
    try:
        same = got.payload() == payload
    except NotCanonical:
        same = False
    if not same:
        raise MessageRefused("a payload is canonical JSON, and this one is not")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


_PERMIT: Final[Mapping[str, Check]] = {
    "v": lambda v: v == 1 and is_count(v),
    "type": lambda v: isinstance(v, str) and v in set(PermitKind),
    "link": is_str,
    "endpoint": is_str,
    "epoch": is_count,
    "seq": is_count,
    "nonce": is_nonce,
    "boot_id": is_str,
    "secy_id": is_str,
    "ttl_ms": is_count,
    "max_hold_ms": is_count,
    "arm_ms": is_count,
    "posture_generation": is_count,
    "sample_digest": is_hex(32),
    "violation_generation": is_count,
    "signer": is_nonce,
    "reason": lambda v: isinstance(v, str) and len(v) <= 1024,
    "hard_not_after_ms": lambda v: v is None or is_count(v),
}
_STATEMENT: Final[Mapping[str, Check]] = {
    "v": lambda v: v == 1 and is_count(v),
    "type": lambda v: v == "permit-signer",
    "key_id": is_nonce,
    "public_key": is_hex(32),
    "epoch": is_count,
    "not_after_ns": is_u64,
}
