"""RFC 6962 Merkle trees over leaf hashes: roots, proofs and their verification. Pure.

Section numbers cite RFC 6962; its successor RFC 9162 keeps the algorithms and words verification more
plainly (2.1.3.2, 2.1.4.2). Functions named `verify_*` raise `ProofInvalid` and return nothing.

Provers get hashes through a `Subtree` callable, `subtree(low, high)` = root of the leaves [low, high), asked
only for perfect, aligned ranges: so a store may keep as few nodes as it likes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from evidence.errors import NotInLedger, ProofInvalid
from evidence.scope import EMPTY_ROOT

HASH_OCTETS = 32
Subtree = Callable[[int, int], bytes]
_sha256 = hashlib.sha256


def leaf_hash(data: bytes) -> bytes:
    """Return SHA-256(0x00 || data), section 2.1."""
    return _sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return SHA-256(0x01 || left || right), section 2.1."""
    return _sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The right edge of a tree: roots of its perfect subtrees, tallest first.

    There is one node for each 1 bit of `size`. It is all that appending and range verification need.
    """

    size: int = 0
    nodes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.nodes) != self.size.bit_count():
            raise ProofInvalid("a frontier has one node for each 1 bit of its size")
        _check_lengths(self.nodes)

    def extend(self, leaves: Iterable[bytes]) -> Frontier:
        """Return the frontier after appending leaf hashes."""
        return append(self, leaves)[0]

    def root(self) -> bytes:
        """Return the root of the tree (section 2.1)."""
        if not self.nodes:
            return EMPTY_ROOT
        result = self.nodes[-1]
        for node in reversed(self.nodes[:-1]):
            result = node_hash(node, result)
        return result


def append(
    frontier: Frontier, leaves: Iterable[bytes], levels: frozenset[int] = frozenset()
) -> tuple[Frontier, list[tuple[int, int, bytes]]]:
    """Append leaf hashes.

    Args:
        frontier: State before.
        leaves: Leaf hashes in order.
        levels: Levels whose perfect nodes the caller wants to keep (level 0 is the leaves).

    Returns:
        The state after, and the completed nodes (level, index within the level, hash).
    """
    stack, size, kept = list(frontier.nodes), frontier.size, []
    for leaf in leaves:
        node, position, level = leaf, size, 0
        while position & 1:
            node = _sha256(b"\x01" + stack.pop() + node).digest()
            position >>= 1
            level += 1
            if level in levels:
                kept.append((level, position, node))
        stack.append(node)
        size += 1
    return Frontier(size, tuple(stack)), kept


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes (section 2.1)."""
    return Frontier().extend(leaves).root()


def range_root(low: int, high: int, subtree: Subtree) -> bytes:
    """Return the root of leaves [low, high), split as section 2.1 splits.

    `low` must be a multiple of the largest power of two that is not above high - low (so of every split).
    """
    count = high - low
    if count & (count - 1) == 0:
        return subtree(low, high)
    split = low + _split(count)
    return node_hash(subtree(low, split), range_root(split, high, subtree))


def frontier_at(size: int, subtree: Subtree) -> Frontier:
    """Return the frontier of the first `size` leaves."""
    nodes, low = [], 0
    for bit in range(size.bit_length() - 1, -1, -1):
        if size >> bit & 1:
            nodes.append(subtree(low, low + (1 << bit)))
            low += 1 << bit
    return Frontier(size, tuple(nodes))


def inclusion_proof(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """Return the audit path of a leaf, from the leaf upward (section 2.1.1).

    Raises:
        NotInLedger: There is no such leaf in a tree of that size.
    """
    if not 0 <= index < size:
        raise NotInLedger(f"no leaf {index} in a tree of {size}")
    path, low, high = [], 0, size
    while high - low > 1:
        split = low + _split(high - low)
        if index < split:
            path.append(range_root(split, high, subtree))
            high = split
        else:
            path.append(subtree(low, split))
            low = split
    return path[::-1]


def consistency_proof(old: int, new: int, subtree: Subtree) -> list[bytes]:
    """Return the proof that the tree of `old` leaves is a prefix of that of `new` (section 2.1.2).

    Raises:
        NotInLedger: Not 0 < old <= new.
    """
    if not 0 < old <= new:
        raise NotInLedger(f"no consistency proof from {old} to {new}")
    path, low, high, whole = [], 0, new, True
    while old != high:
        split = low + _split(high - low)
        if old <= split:
            path.append(range_root(split, high, subtree))
            high = split
        else:
            path.append(subtree(low, split))
            low, whole = split, False
    if not whole:
        path.append(range_root(low, high, subtree))
    return path[::-1]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes) -> None:
    """Verify that a leaf hash stands at `index` of a tree (RFC 9162 section 2.1.3.2).

    Raises:
        ProofInvalid: It does not, or a hash is not 32 octets.
    """
    if not 0 <= index < size:
        raise ProofInvalid(f"leaf {index} lies outside a tree of {size}")
    _check_lengths((leaf, expected, *proof))
    # Below `inner` the path can turn either way; above it only left siblings remain.
    inner = (index ^ (size - 1)).bit_length()
    if len(proof) != inner + (index >> inner).bit_count():
        raise ProofInvalid("the inclusion proof has a wrong number of hashes")
    result = leaf
    for level, sibling in enumerate(proof):
        if level < inner and not index >> level & 1:
            result = node_hash(result, sibling)
        else:
            result = node_hash(sibling, result)
    if result != expected:
        raise ProofInvalid("the inclusion proof leads to another root")


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Verify that one tree is a prefix of another (RFC 9162 section 2.1.4.2).

    Raises:
        ProofInvalid: It is not, a hash is not 32 octets, or old is 0 (nothing would be proved).
    """
    # 1. Sizes. From size 0 every tree is consistent: refused, so that nobody takes it for a proof.
    if not 0 < old <= new:
        raise ProofInvalid(f"no consistency from size {old} to {new}")
    # 2. Equal sizes: equal roots and nothing else (the roots are compared, not hashed).
    if old == new:
        if proof or old_root != new_root:
            raise ProofInvalid("equal sizes need equal roots and an empty proof")
        return
    _check_lengths((old_root, new_root, *proof))
    # 3. A power of two is itself a node: its root is not repeated in the proof.
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        raise ProofInvalid("the consistency proof is empty")
    # 4. Walk up both right edges together.
    first, last = old - 1, new - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old_hash = new_hash = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofInvalid("the consistency proof has too many hashes")
        if first & 1 or first == last:
            old_hash, new_hash = node_hash(sibling, old_hash), node_hash(sibling, new_hash)
            while first and not first & 1:
                first, last = first >> 1, last >> 1
        else:
            new_hash = node_hash(new_hash, sibling)
        first, last = first >> 1, last >> 1
    # 5. All levels used, both roots reached.
    if last != 0 or old_hash != old_root or new_hash != new_root:
        raise ProofInvalid("the consistency proof does not lead to both roots")


def verify_range(
    begin: Frontier, leaves: Iterable[bytes], begin_root: bytes, size: int, expected: bytes
) -> None:
    """Verify that leaf hashes are exactly the range [begin.size, size) between two heads.

    Args:
        begin: Frontier at the beginning of the range.
        leaves: Every leaf hash of the range, in order.
        begin_root: Root of the head at `begin.size`, proved elsewhere.
        size: Size of the later head.
        expected: Root of the later head, proved elsewhere.

    Raises:
        ProofInvalid: The frontier is of another tree, or a leaf is missing, added, changed or moved.
    """
    if begin.root() != begin_root:
        raise ProofInvalid("the frontier does not lead to the root at the beginning of the range")
    end = begin.extend(_checked(leaves))
    if end.size != size:
        raise ProofInvalid(f"the range ends at {end.size}, the head says {size}")
    if end.root() != expected:
        raise ProofInvalid("the leaves of the range do not lead to the root at its end")


def _split(count: int) -> int:
    """Return the largest power of two below `count` (section 2.1)."""
    return 1 << ((count - 1).bit_length() - 1)


def _checked(leaves: Iterable[bytes]) -> Iterator[bytes]:
    """Pass leaf hashes on: two of 31 and 33 octets would hash like two of 32."""
    for leaf in leaves:
        if len(leaf) != HASH_OCTETS:
            raise ProofInvalid("a leaf hash is not 32 octets")
        yield leaf


def _check_lengths(hashes: Iterable[bytes]) -> None:
    if any(len(one) != HASH_OCTETS for one in hashes):
        raise ProofInvalid("a hash is not 32 octets")
