"""A gate for tests: root, delegated signer, orders. Signs with real keys; decides nothing by itself."""

from __future__ import annotations

import time
from typing import Any

from agent_rig import LINK
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from keymgmt.permit import Permit, PermitKind, SignerStatement, certify, issue, key_id_of


class Gate:
    """Issues any order a test asks for."""

    def __init__(self, epoch: int = 1) -> None:
        self.root, self.key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self.epoch, self.seq = epoch, 0
        self.not_after_ns = time.time_ns() + 3_600 * 10**9
        self.defaults: dict[str, Any] = {"ttl_ms": 60_000, "max_hold_ms": 0, "arm_ms": 1_000}

    @staticmethod
    def raw(key: Ed25519PrivateKey) -> bytes:
        return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def roots(self) -> dict[str, bytes]:
        return {key_id_of(self.raw(self.root)): self.raw(self.root)}

    @property
    def statement(self) -> dict[str, Any]:
        public = self.raw(self.key)
        statement = SignerStatement(key_id_of(public), public, self.epoch, self.not_after_ns)
        return certify(statement, next(iter(self.roots)), self.root.sign)

    def permit(self, kind: PermitKind = PermitKind.PERMIT, **changes: Any) -> Permit:
        self.seq += 1
        fields: dict[str, Any] = {
            "kind": kind,
            "link": LINK,
            "endpoint": "a",
            "epoch": self.epoch,
            "seq": self.seq,
            "nonce": "00" * 16,
            "boot_id": "boot",
            "secy_id": "secy",
            "posture_generation": 1,
            "sample_digest": "ab" * 32,
            "violation_generation": 0,
            "signer": key_id_of(self.raw(self.key)),
        }
        return Permit(**(fields | self.defaults | changes))

    def answer(self, permit: Permit) -> bytes:
        return issue(permit, self.statement, self.key.sign)
