"""Proofs of a scope's range, as a package carries them: encoding and strict decoding, side by side.

What they prove, and against what, is decided by `verify` (step 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evidence.canonical import canonical, u64
from evidence.errors import EvidenceError
from evidence.merkle import Frontier
from evidence.package.decoding import Malformed, hex_bytes, load, number, shape
from evidence.records import part_digest, record_leaf_hash
from evidence.scope import Head


@dataclass(frozen=True, slots=True)
class HeadProof:
    """That a scope had this head at a tick (its index in the tick log): map proof, then tick proof."""

    tick: int
    head: Head
    map_root: bytes
    map_proof: tuple[bytes, ...]
    tick_proof: tuple[bytes, ...]

    def encode(self) -> dict[str, Any]:
        """JSON value."""
        return {
            "tick": u64(self.tick),
            "size": u64(self.head.size),
            "root": self.head.root.hex(),
            "map_root": self.map_root.hex(),
            "map_proof": [h.hex() for h in self.map_proof],
            "tick_proof": [h.hex() for h in self.tick_proof],
        }

    @classmethod
    def decode(cls, value: object) -> HeadProof:
        """Read the JSON value strictly."""
        fields = dict.fromkeys(("tick", "size", "root", "map_root"), str)
        v = shape(value, {**fields, "map_proof": list, "tick_proof": list})
        return cls(
            number(v["tick"]), Head(number(v["size"]), hex_bytes(v["root"], 32)),
            hex_bytes(v["map_root"], 32), _hashes(v["map_proof"]), _hashes(v["tick_proof"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Before:
    """The last record before the range: its header, the digests of its bodies, its path to the head at begin.

    It tells when that record was received, so that a range can't begin later than its window unnoticed.
    """

    header: str
    header_salt: bytes
    public_digest: bytes
    sensitive_digest: bytes
    path: tuple[bytes, ...]

    @property
    def leaf(self) -> bytes:
        """Leaf hash of the record."""
        digest = part_digest(self.header_salt, self.header.encode())
        return record_leaf_hash(digest, self.public_digest, self.sensitive_digest)

    def received_ns(self) -> int:
        """When the record was received.

        Raises:
            Malformed: the header does not tell.
        """
        fields = load(self.header.encode())
        return number(fields.get("received_time") if type(fields) is dict else None)

    def encode(self) -> dict[str, Any]:
        """JSON value."""
        return {
            "header": self.header,
            "header_salt": self.header_salt.hex(),
            "public_digest": self.public_digest.hex(),
            "sensitive_digest": self.sensitive_digest.hex(),
            "path": [h.hex() for h in self.path],
        }

    @classmethod
    def decode(cls, value: object) -> Before:
        """Read the JSON value strictly."""
        fields = dict.fromkeys(("header", "header_salt", "public_digest", "sensitive_digest"), str)
        v = shape(value, {**fields, "path": list})
        return cls(
            v["header"], hex_bytes(v["header_salt"], 16), hex_bytes(v["public_digest"], 32),
            hex_bytes(v["sensitive_digest"], 32), _hashes(v["path"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScopeProofs:
    """Proofs of one scope's range: frontier at its begin, heads at its end and (unless 0) its begin.

    `before` is None exactly when the range begins at 0.
    """

    frontier: Frontier
    begin: HeadProof | None
    before: Before | None
    end: HeadProof

    def encode(self) -> bytes:
        """Canonical octets."""
        return canonical(
            {
                "frontier": {
                    "size": u64(self.frontier.size),
                    "nodes": [h.hex() for h in self.frontier.nodes],
                },
                "begin": None if self.begin is None else self.begin.encode(),
                "before": None if self.before is None else self.before.encode(),
                "end": self.end.encode(),
            }
        )

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ScopeProofs:
        """Read canonical octets strictly.

        Raises:
            Malformed: anything else.
        """
        maybe = (dict, type(None))
        v = shape(load(data), {"frontier": dict, "begin": maybe, "before": maybe, "end": dict})
        f = shape(v["frontier"], {"size": str, "nodes": list})
        try:
            frontier = Frontier(number(f["size"]), _hashes(f["nodes"]))
        except EvidenceError as why:
            raise Malformed(str(why)) from None
        begin = None if v["begin"] is None else HeadProof.decode(v["begin"])
        before = None if v["before"] is None else Before.decode(v["before"])
        return cls(frontier, begin, before, HeadProof.decode(v["end"]))


def _hashes(values: list[object]) -> tuple[bytes, ...]:
    return tuple(hex_bytes(h, 32) for h in values)
