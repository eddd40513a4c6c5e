"""One reading of one end of a link, signed by its agent with the key of its client certificate.

A sample carries boot id, sample sequence and monotonic time (rotation.md section 3), so that two of them
bound an interval that nobody can stretch; what an interval proves is decided in `keymgmt.counters`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from evidence.canonical import canonical
from keymgmt.checks import (
    Check,
    decode_counters,
    encode_counters,
    is_an,
    is_bool,
    is_count,
    is_key_id,
    is_map,
    is_str,
    is_u64,
    take,
)
from keymgmt.errors import SampleRefused


class SampleSigner(Protocol):
    """The agent's private key."""

    def sign(self, octets: bytes) -> bytes:
        """Return an ECDSA P-256 SHA-256 signature in DER."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of one end.

    Attributes:
        seq: monotone per agent folder, over restarts.
        mono_ns: CLOCK_BOOTTIME of the reading.
        wall_ns: wall clock, for people.
        tx_key_id: key in use for transmit, None before the first key.
        faults: injected faults, empty in honest runs.
        violation_generation: violations this end had confirmed by then.
        signature: DER in hex, "" before signing.
    """

    link: str
    endpoint: str
    agent: str
    boot_id: str
    secy_id: str
    seq: int
    mono_ns: int
    wall_ns: int
    protect: bool
    encrypt: bool
    validate: str
    encoding_an: int | None
    tx_key_id: str | None
    path: str
    faults: tuple[str, ...]
    violation_generation: int
    counters: Mapping[str, int] = field(repr=False)
    signature: str = ""

    def body(self) -> dict[str, Any]:
        """Return the JSON object without its signature."""
        doc: dict[str, Any] = {
            name: getattr(self, name) for name in _SAMPLE if name not in ("v", "signature")
        }
        return doc | {
            "v": 1,
            "mono_ns": str(self.mono_ns),
            "wall_ns": str(self.wall_ns),
            "faults": list(self.faults),
            "counters": encode_counters(self.counters),
        }

    def signed_octets(self) -> bytes:
        """Return what the agent signs."""
        return b"sluicegate sample v1\n" + canonical(self.body())

    def digest(self) -> str:
        """Return SHA-256 over the signed octets, 64 hex digits: how permits and records name this sample."""
        return hashlib.sha256(self.signed_octets()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object with its signature."""
        return self.body() | {"signature": self.signature}

    @classmethod
    def from_json(cls, doc: Any) -> Self:
        """Read a sample; verify it with `verify_sample`. Raises MessageRefused."""
        got = take(doc, _SAMPLE, "sample")
        del got["v"]
        return cls(
            **(
                got
                | {
                    "mono_ns": int(got["mono_ns"]),
                    "wall_ns": int(got["wall_ns"]),
                    "faults": tuple(got["faults"]),
                    "counters": decode_counters(got["counters"]),
                }
            )
        )


def sign_sample(sample: Sample, signer: SampleSigner) -> Sample:
    """Return the sample with its signature."""
    return replace(sample, signature=signer.sign(sample.signed_octets()).hex())


def verify_sample(sample: Sample, public_key: EllipticCurvePublicKey) -> None:
    """Verify a sample under the public key of its agent's certificate.

    Raises:
        SampleRefused: the signature is absent or does not verify.
    """
    try:
        public_key.verify(bytes.fromhex(sample.signature), sample.signed_octets(), ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise SampleRefused("sample: signature does not verify under the agent's certificate") from None


_SAMPLE: Final[Mapping[str, Check]] = {
    "v": lambda v: v == 1 and is_count(v),
    "link": is_str,
    "endpoint": is_str,
    "agent": is_str,
    "boot_id": is_str,
    "secy_id": is_str,
    "seq": is_count,
    "mono_ns": is_u64,
    "wall_ns": is_u64,
    "protect": is_bool,
    "encrypt": is_bool,
    "validate": is_str,
    "encoding_an": lambda v: v is None or is_an(v),
    "tx_key_id": lambda v: v is None or is_key_id(v),
    "path": lambda v: v in ("open", "closed"),
    "faults": lambda v: isinstance(v, list) and len(v) <= 32 and all(map(is_str, v)),
    "violation_generation": is_count,
    "counters": is_map,
    "signature": lambda v: isinstance(v, str) and len(v) <= 160,
}
