"""The gate's own Ed25519 key: certified by ``permit-root`` in OpenBao, kept in sealed storage, renewed.

Permits must flow while OpenBao is sealed or away, so they are signed here, with a key that the root
has certified for at least ``4 x (ttl + max_hold)``. It is renewed at half of that. Replicas share
one key per estate through sealed storage (a KV entry written by compare-and-set).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from keymgmt.permit import SignerStatement, certify, key_id_of

LIFETIME_FACTOR: Final = 4
LIFETIME_MIN_NS: Final = 3600 * 1_000_000_000
# The first permit must not fail because an agent's clock is a little ahead of the certificate.
_RAW: Final = serialization.Encoding.Raw


class PermitCustody(Protocol):
    """What is asked of OpenBao, by the role `gate`. Each call may raise a custody error."""

    def root(self) -> tuple[str, bytes]:
        """(key id, public key of 32 octets) of `permit-root`."""
        ...

    def sign(self, octets: bytes) -> bytes:
        """Sign with `permit-root`."""
        ...

    def load(self) -> tuple[Mapping[str, str] | None, int]:
        """(sealed value or None, its version for compare-and-set)."""
        ...

    def store(self, value: Mapping[str, str], version: int) -> None:
        """Write the sealed value if its version is still `version`."""
        ...


@dataclass(frozen=True, slots=True)
class DelegatedSigner:
    """A key that may sign permits until ``not_after_ns``."""

    key_id: str
    epoch: int
    not_before_ns: int
    not_after_ns: int
    statement: Mapping[str, Any]
    _private: Ed25519PrivateKey = field(repr=False)

    def sign(self, octets: bytes) -> bytes:
        """An Ed25519 signature of 64 octets."""
        return self._private.sign(octets)

    def due(self, now_ns: int) -> bool:
        """Whether half of its life is over."""
        return now_ns >= (self.not_before_ns + self.not_after_ns) // 2


def lifetime_ns(ttl_ns: int, max_hold_ns: int) -> int:
    """How long a statement must hold, by the longest timers of the estate."""
    return max(LIFETIME_FACTOR * (ttl_ns + max_hold_ns), LIFETIME_MIN_NS)


def obtain(custody: PermitCustody, epoch: int, now_ns: int, life_ns: int) -> DelegatedSigner:
    """The shared signer: the stored one while it is good for long enough, else a new one.

    Args:
        custody: OpenBao.
        epoch: The estate's present epoch; a stored signer of another epoch is replaced.
        now_ns: Wall clock.
        life_ns: Life of a new statement.
    """
    value, version = custody.load()
    if value is not None:
        stored = _from_sealed(value)
        if stored.epoch == epoch and not stored.due(now_ns):
            return stored
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    statement = SignerStatement(key_id_of(public), public, epoch, now_ns + life_ns)
    root_id, _ = custody.root()
    made = DelegatedSigner(
        statement.key_id,
        epoch,
        now_ns,
        statement.not_after_ns,
        certify(statement, root_id, custody.sign),
        private,
    )
    # Published before use: a replica that starts now takes this one.
    custody.store(_to_sealed(made), version)
    return made


def _to_sealed(signer: DelegatedSigner) -> dict[str, str]:
    private = signer._private.private_bytes(
        _RAW, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return {
        "private": private.hex(),
        "epoch": str(signer.epoch),
        "not_before_ns": str(signer.not_before_ns),
        "not_after_ns": str(signer.not_after_ns),
        "statement": json.dumps(dict(signer.statement)),
    }


def _from_sealed(value: Mapping[str, str]) -> DelegatedSigner:
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(value["private"]))
    return DelegatedSigner(
        key_id_of(private.public_key().public_bytes_raw()),
        int(value["epoch"]),
        int(value["not_before_ns"]),
        int(value["not_after_ns"]),
        json.loads(value["statement"]),
        private,
    )
