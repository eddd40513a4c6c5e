"""Trust: what a verifier brings along, and which keys that makes acceptable.

The trust root always comes from outside the package: a trust file (origin, keys, scope ids by name) or the
fingerprint of a key. From inside comes only what must then connect to it: the signer and the history of
signing keys, each change signed by old and new key (`signing.key_history`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from evidence.canonical import canonical
from evidence.checkpoint import VerifierKey
from evidence.errors import CheckpointInvalid, EvidenceError, KeyHistoryInvalid, TrustInvalid
from evidence.limits import LIMITS
from evidence.package.decoding import Malformed, load, shape
from evidence.scope import check_scope_id
from evidence.signing import KeyHistory, key_history

TRUST_TYPE = "sluicegate.io/trust"


@dataclass(frozen=True, slots=True)
class Trust:
    """The trust root given from outside.

    Attributes:
        origin: of the tick log; None when only a fingerprint was given.
        keys: accepted keys; empty when none was given.
        fingerprint: hex SHA-256 of an accepted public key, instead of keys.
        scopes: scope id by name.
    """

    origin: str | None = None
    keys: tuple[VerifierKey, ...] = ()
    fingerprint: str | None = None
    scopes: Mapping[str, str] = field(default_factory=dict)

    @property
    def names_a_signer(self) -> bool:
        """Whether a signer can be established."""
        return bool(self.keys) or self.fingerprint is not None

    def encode(self) -> bytes:
        """The trust file."""
        value = {
            "type": TRUST_TYPE,
            "v": 1,
            "origin": self.origin,
            "keys": [k.vkey() for k in self.keys],
            "fingerprints": [k.fingerprint for k in self.keys],
            "scopes": dict(self.scopes),
        }
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def trust_path_of(package: Path) -> Path:
    """Where an export writes the trust file of a package: beside it."""
    return package.with_name(f"{package.name}.trust.json")


def read_trust(data: bytes) -> Trust:
    """Read a trust file strictly (white space is free: people keep these files).

    Raises:
        TrustInvalid: anything out of form.
    """
    try:
        return _decode(orjson.loads(data))
    except (ValueError, EvidenceError) as why:
        known = isinstance(why, (Malformed, EvidenceError))
        raise TrustInvalid(
            f"the trust file does not decode: {why if known else 'it is no JSON'}",
            fix="use the file that was handed over when the key was established, not one from the package",
        ) from None


def _decode(value: object) -> Trust:
    fields = {"type": str, "v": int, "origin": str, "keys": list, "fingerprints": list, "scopes": dict}
    v = shape(value, fields)
    if (v["type"], v["v"]) != (TRUST_TYPE, 1) or not v["keys"]:
        raise Malformed("not of version 1, or without keys")
    keys = tuple(VerifierKey.parse(str(k)) for k in v["keys"])
    if v["fingerprints"] != [k.fingerprint for k in keys]:
        raise Malformed("its fingerprints are not those of its keys")
    return Trust(v["origin"], keys, None, {str(n): check_scope_id(i) for n, i in v["scopes"].items()})


def trust_of_fingerprint(text: str, scopes: Mapping[str, str] | None = None) -> Trust:
    """Trust a key by its fingerprint: 64 hex digits, `:` and case are free.

    Raises:
        TrustInvalid: anything else.
    """
    digits = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
        raise TrustInvalid("a key's fingerprint is 64 hex digits (SHA-256 of the public key's 32 octets)")
    try:
        known = {name: check_scope_id(i) for name, i in (scopes or {}).items()}
    except EvidenceError as why:
        raise TrustInvalid(str(why)) from None
    return Trust(None, (), digits, known)


@dataclass(frozen=True, slots=True)
class SignerFile:
    """`signer.json`: which key signed, and every recorded change of the signing key."""

    signer: VerifierKey
    changes: Sequence[Mapping[str, Any]]

    def encode(self) -> bytes:
        """Canonical octets."""
        return canonical({"v": 1, "signer": self.signer.vkey(), "changes": [dict(c) for c in self.changes]})

    @classmethod
    def decode(cls, data: bytes | memoryview) -> SignerFile:
        """Read canonical octets strictly.

        Raises:
            Malformed: anything else.
        """
        v = shape(load(data), {"v": int, "signer": str, "changes": list})
        if v["v"] != 1 or not all(type(c) is dict for c in v["changes"]):
            raise Malformed("another version, or a change of another shape")
        if len(v["changes"]) > LIMITS.key_changes:  # before any of them is read: each costs signatures
            raise Malformed(f"more than {LIMITS.key_changes} changes of the signing key")
        try:
            return cls(VerifierKey.parse(v["signer"]), v["changes"])
        except CheckpointInvalid as why:
            raise Malformed(str(why)) from None

    def accepted(self, trust: Trust, origin: str) -> KeyHistory:
        """The history of keys that the trust root vouches for; the signer is the last of it.

        Raises:
            KeyHistoryInvalid: the history does not hold, does not connect the signer to the trust root, or
                says that the signer's key was replaced.
        """
        histories = [key_history(root, self.changes, origin) for root in self._roots(trust)]
        for history in histories:
            if self.signer == history.current:
                return history
        if any(self.signer in history.keys for history in histories):
            raise KeyHistoryInvalid("the package is signed by a key that was replaced before")
        raise KeyHistoryInvalid(
            "the package is signed by a key that the trust root does not vouch for",
            fix="compare its fingerprint with the operator's by another channel; not from here",
        )

    def _roots(self, trust: Trust) -> list[VerifierKey]:
        if trust.keys:
            return list(trust.keys)
        if trust.fingerprint is None:
            return [self.signer]
        known = [self.signer]
        for change in self.changes:
            known += _keys_of(change)
        found = [k for k in known if k.fingerprint == trust.fingerprint]
        if not found:
            raise KeyHistoryInvalid(
                "no key in this package has the fingerprint given", fix="is it of this operator?"
            )
        return found[:1]


def _keys_of(change: Mapping[str, Any]) -> list[VerifierKey]:
    """Keys a change names; whether it holds is decided by `key_history`."""
    try:
        statement = load(str(change.get("statement", "")).encode())
        return [VerifierKey.parse(str(statement[n])) for n in ("old", "new") if n in statement]
    except (Malformed, CheckpointInvalid, TypeError, ValueError):
        return []
