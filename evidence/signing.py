"""Changes of the signing key: each a record signed by the old and the new key. Pure.

The record's `statement` is canonical JSON {new, old?, origin, size, time, type, v}; keys are C2SP verifier
keys, `size` is the tick log's size when the change was announced. The first key of a log has no `old` and
signs alone. A verifier starts from a key given from outside; the changes, signed by both keys, make one line
through it (`key_history`), and each key signs checkpoints of its own stretch only: a retired key, stolen
later, signs nothing new.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evidence.canonical import canonical, decode_canonical, parse_u64, u64
from evidence.checkpoint import Signer, VerifierKey, decode_base64, verifier_of
from evidence.errors import CheckpointInvalid, KeyHistoryInvalid, NotCanonical
from evidence.limits import LIMITS
from evidence.records import Draft
from evidence.scope import ESTATE

KIND = "signing_key"
SOURCE = "ledger"
_TYPE = "sluicegate.io/signing-key-change"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A verified change: `old` is None for the first key of a log."""

    origin: str
    old: VerifierKey | None
    new: VerifierKey
    size: int
    time_ns: int


def key_change_draft(origin: str, old: Signer | None, new: Signer, *, size: int, now_ns: int) -> Draft:
    """Return the draft that announces a new signing key, signed by both.

    Args:
        origin: Origin of the tick log.
        old: Signer of the key in use; None for the first key.
        new: Signer of the key to use from now on.
        size: Size of the tick log now.
        now_ns: Time, nanoseconds UTC.
    """
    statement: dict[str, Any] = {
        "new": verifier_of(new).vkey(),
        "origin": origin,
        "size": u64(size),
        "time": u64(now_ns),
        "type": _TYPE,
        "v": 1,
    }
    if old is not None:
        statement["old"] = verifier_of(old).vkey()
    data = canonical(statement)
    public: dict[str, Any] = {
        "statement": data.decode(),
        "new_signature": base64.b64encode(new.sign(data)).decode("ascii"),
    }
    if old is not None:
        public["old_signature"] = base64.b64encode(old.sign(data)).decode("ascii")
    return Draft(KIND, ESTATE, SOURCE, now_ns, public)


def verify_key_change(public: Mapping[str, Any], origin: str) -> KeyChange:
    """Verify the public body of a `signing_key` record.

    1. The statement is canonical, of this type and version, and of this log.
    2. The new key signed it.
    3. The old key signed it too, where one is named; a first key has no second signature.

    Raises:
        KeyHistoryInvalid: Any of these fails.
    """
    try:
        data = str(public.get("statement", "")).encode()
        statement = decode_canonical(data)
        if not isinstance(statement, dict) or statement.keys() - {"old"} != _FIELDS:
            raise KeyHistoryInvalid("a signing-key change has fields that do not belong there")
        if (statement["type"], statement["v"]) != (_TYPE, 1):  # 1
            raise KeyHistoryInvalid("a signing-key change is of another type or version")
        if statement["origin"] != origin:
            raise KeyHistoryInvalid(
                f"the package's signing keys are of log {statement['origin']}, the trust root is of {origin}",
                fix="give the trust file that belongs to this ledger",
            )
        new = VerifierKey.parse(str(statement["new"]))
        new.verify(data, decode_base64(str(public.get("new_signature", ""))))  # 2
        old = VerifierKey.parse(str(statement["old"])) if "old" in statement else None
        if old is not None:  # 3
            old.verify(data, decode_base64(str(public.get("old_signature", ""))))
        elif "old_signature" in public:
            raise KeyHistoryInvalid("a first signing key has no predecessor that could sign")
        return KeyChange(origin, old, new, parse_u64(statement["size"]), parse_u64(statement["time"]))
    except (CheckpointInvalid, NotCanonical, UnicodeError) as error:
        raise KeyHistoryInvalid(f"a signing-key change does not hold: {error}") from None


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """The signing keys of a log, oldest first, and when each gave way to the next.

    Attributes:
        keys: in order; each but the first was announced by the one before it.
        sizes: size of the tick log when `keys[i + 1]` was announced.
    """

    keys: tuple[VerifierKey, ...]
    sizes: tuple[int, ...]

    @property
    def current(self) -> VerifierKey:
        """The key that no change replaced."""
        return self.keys[-1]

    def in_force(self, size: int) -> list[VerifierKey]:
        """Keys that may sign a checkpoint of this size (two at the very size of a change)."""
        begins, ends = (0, *self.sizes), (*self.sizes, size)
        return [k for k, low, high in zip(self.keys, begins, ends, strict=True) if low <= size <= high]


def key_history(trusted: VerifierKey, changes: Iterable[Mapping[str, Any]], origin: str) -> KeyHistory:
    """Return the one line of keys through a trusted key.

    1. They are not more than any ledger of ours announces; every change holds by itself.
    2. No key is replaced twice or announced twice: a retired key can't begin another line.
    3. All changes lie on one line through the trusted key, at sizes that never decrease.

    Args:
        trusted: From the trust file.
        changes: Public bodies of the `signing_key` records, in any order.
        origin: Origin of the tick log.

    Raises:
        KeyHistoryInvalid: Any of these fails.
    """
    changes = list(changes)
    if len(changes) > LIMITS.key_changes:  # 1
        raise KeyHistoryInvalid(f"there are more than {LIMITS.key_changes} changes of the signing key")
    verified = [verify_key_change(public, origin) for public in changes]
    after = {change.old: change for change in verified}
    before = {change.new: change for change in verified}
    if not len(after) == len(before) == len(verified):  # 2
        raise KeyHistoryInvalid("a signing key is replaced or announced twice")
    first = trusted
    for _ in verified:  # in a ring it ends anywhere, and one change is counted twice below
        if first not in before or (old := before[first].old) is None:
            break
        first = old
    keys: list[VerifierKey] = [first]
    sizes: list[int] = []
    while keys[-1] in after and len(sizes) < len(verified):
        sizes.append(after[keys[-1]].size)
        keys.append(after[keys[-1]].new)
    if len(sizes) + (first in before) != len(verified) or sizes != sorted(sizes):  # 3
        raise KeyHistoryInvalid("a signing-key change is not connected to the trusted key, or out of order")
    return KeyHistory(tuple(keys), tuple(sizes))


_FIELDS = {"new", "origin", "size", "time", "type", "v"}
