"""The sparse Merkle map of heads: one (size, root) for each scope and tick, by construction.

Depth 256; key = SHA-256(scope id as ASCII); leaf = SHA-256(0x02 || key || size as u64 big-endian || root);
node = SHA-256(0x03 || left || right); an empty leaf is 32 zero octets (ledger.md section 2), an empty subtree
the node over two empty subtrees. A scope without records is an empty leaf: "absent" and "size 0" are one
statement with one encoding. Pure.

Proofs always hold 256 siblings, from the leaf upward; bit 0 of a key (its highest) decides at the root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

from evidence.errors import ProofInvalid
from evidence.scope import EMPTY_HEAD, Head, check_scope_id

DEPTH = 256
EMPTY_LEAF = bytes(32)
_sha256 = hashlib.sha256


def map_node(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x03 || left || right)."""
    return _sha256(b"\x03" + left + right).digest()


def _empty_subtrees() -> tuple[bytes, ...]:
    roots = [EMPTY_LEAF]
    for _ in range(DEPTH):
        roots.append(map_node(roots[-1], roots[-1]))
    return tuple(roots)


EMPTY = _empty_subtrees()  # EMPTY[h] is the root of an empty subtree of height h


def map_key(scope_id: str) -> bytes:
    """Return the key of a scope: SHA-256 over its id."""
    return _sha256(check_scope_id(scope_id).encode("ascii")).digest()


def map_leaf(key: bytes, head: Head) -> bytes:
    """Return the leaf of a head; a head of size 0 is an empty leaf.

    Raises:
        ProofInvalid: A head that no tree can have (root not 32 octets, size 0 with a root, size over u64).
    """
    if head.size == 0 and head == EMPTY_HEAD:
        return EMPTY_LEAF
    if not 0 < head.size < 2**64 or len(head.root) != 32:
        raise ProofInvalid("not the head of a tree")
    return _sha256(b"\x02" + key + head.size.to_bytes(8, "big") + head.root).digest()


class ScopeMap:
    """The map over a set of heads.

    The part of a path below which a scope stands alone is hashed once and remembered as long as its head
    does not change: a tick costs about 256 hashes for each *changed* scope and two for each other one.
    """

    def __init__(self) -> None:
        self._leaves: dict[int, bytes] = {}
        self._alone: dict[int, tuple[bytes, int, bytes]] = {}  # key -> leaf, height, hash at that height

    def update(self, heads: Mapping[str, Head]) -> None:
        """Set the heads of some scopes (by scope id)."""
        for scope_id, head in heads.items():
            key = map_key(scope_id)
            leaf = map_leaf(key, head)
            if leaf != EMPTY_LEAF:
                self._leaves[int.from_bytes(key, "big")] = leaf

    def root(self) -> bytes:
        """Return the root of the map."""
        return self._subtree(sorted(self._leaves), DEPTH)

    def proof(self, scope_id: str) -> list[bytes]:
        """Return the 256 siblings for a scope, present or not, from the leaf upward."""
        target = int.from_bytes(map_key(scope_id), "big")
        keys: Sequence[int] = sorted(self._leaves)
        siblings: list[bytes] = []
        for height in range(DEPTH - 1, -1, -1):
            left, right = _parted(keys, height)
            keys, other = (right, left) if target >> height & 1 else (left, right)
            siblings.append(self._subtree(other, height))
        return siblings[::-1]

    def _subtree(self, keys: Sequence[int], height: int) -> bytes:
        """Return the root of the subtree of that height which holds exactly these sorted keys."""
        if not keys:
            return EMPTY[height]
        if len(keys) == 1:
            return self._lone(keys[0], height)
        left, right = _parted(keys, height - 1)
        return map_node(self._subtree(left, height - 1), self._subtree(right, height - 1))

    def _lone(self, key: int, height: int) -> bytes:
        leaf = self._leaves[key]
        known = self._alone.get(key)
        if known is not None and known[:2] == (leaf, height):
            return known[2]
        result = _climb(leaf, key, EMPTY[:height])
        self._alone[key] = (leaf, height, result)
        return result


def map_root(heads: Mapping[str, Head]) -> bytes:
    """Return the root of the map over heads by scope id."""
    scope_map = ScopeMap()
    scope_map.update(heads)
    return scope_map.root()


def verify_map(scope_id: str, head: Head, proof: Sequence[bytes], expected: bytes) -> None:
    """Verify that the map holds this head for the scope (`EMPTY_HEAD`: that it holds none).

    Args:
        scope_id: From the trust file, never from what is being verified.
        head: Claimed size and root.
        proof: 256 siblings from the leaf upward.
        expected: Root of the map, proved elsewhere.

    Raises:
        ProofInvalid: It holds another head, or the proof has a wrong shape.
    """
    if len(proof) != DEPTH or any(len(sibling) != 32 for sibling in proof):
        raise ProofInvalid("a map proof has 256 hashes of 32 octets")
    key = map_key(scope_id)
    if _climb(map_leaf(key, head), int.from_bytes(key, "big"), proof) != expected:
        raise ProofInvalid("the map holds another head for this scope")


def _climb(node: bytes, key: int, siblings: Sequence[bytes]) -> bytes:
    for height, sibling in enumerate(siblings):
        pair = sibling + node if key >> height & 1 else node + sibling
        node = _sha256(b"\x03" + pair).digest()
    return node


def _parted(keys: Sequence[int], bit: int) -> tuple[Sequence[int], Sequence[int]]:
    """Part sorted keys, equal above `bit`, by that bit."""
    if not keys or not keys[-1] >> bit & 1:
        return keys, ()
    if keys[0] >> bit & 1:
        return (), keys
    at = next(index for index, (one, two) in enumerate(pairwise(keys), 1) if one >> bit & 1 < two >> bit & 1)
    return keys[:at], keys[at:]


def tick_leaf(root: bytes, tick: int) -> bytes:
    """Return the leaf hash of a tick in the tick log: data is map root || tick as u64 big-endian.

    Ticks are dense: tick t is leaf t of the tick log.
    """
    return _sha256(b"\x00" + root + tick.to_bytes(8, "big")).digest()
