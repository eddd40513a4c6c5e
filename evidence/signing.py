"""Changes of the signing key: each a record signed by the old and the new key. Pure.

The record's `statement` is canonical JSON {new, old?, origin, size, time, type, v}; keys are C2SP verifier
keys, `size` is the tick log's size when the change was announced. The first key of a log has no `old` and
signs alone. A verifier starts from a key given from outside and accepts what is connected to it by changes
that both keys signed (`accepted_keys`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evidence.canonical import canonical, decode_canonical, parse_u64, u64
from evidence.checkpoint import Signer, VerifierKey, decode_base64, verifier_of
from evidence.errors import CheckpointInvalid, KeyHistoryInvalid, NotCanonical
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
        if (statement["type"], statement["v"], statement["origin"]) != (_TYPE, 1, origin):  # 1
            raise KeyHistoryInvalid("a signing-key change is of another log or version")
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


def accepted_keys(
    trusted: VerifierKey, changes: Iterable[Mapping[str, Any]], origin: str
) -> list[VerifierKey]:
    """Return the keys that a trusted key vouches for through signed changes, itself first.

    Args:
        trusted: From the trust file.
        changes: Public bodies of the `signing_key` records, in order.
        origin: Origin of the tick log.

    Raises:
        KeyHistoryInvalid: A change does not hold, or is not connected to the trusted key.
    """
    verified = [verify_key_change(public, origin) for public in changes]
    accepted = [trusted]
    waiting = [change for change in verified if change.old is not None]
    while waiting:
        linked = [one for one in waiting if one.old in accepted or one.new in accepted]
        if not linked:
            raise KeyHistoryInvalid("a signing-key change is not connected to the trusted key")
        for change in linked:
            accepted += [key for key in (change.old, change.new) if key is not None and key not in accepted]
        waiting = [change for change in waiting if change not in linked]
    if any(change.old is None and change.new not in accepted for change in verified):
        raise KeyHistoryInvalid("the first signing key is not connected to the trusted key")
    return accepted


_FIELDS = {"new", "origin", "size", "time", "type", "v"}
