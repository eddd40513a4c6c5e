"""RFC 6962 trees: known answers, a second path (the RFC's own recursions, pymerkle), and mutations."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

import pymerkle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import merkle
from evidence.errors import NotInLedger, ProofInvalid
from evidence.scope import EMPTY_ROOT


def subtrees_of(leaves: Sequence[bytes]) -> merkle.Subtree:
    """Over leaf hashes held in memory."""
    return lambda low, high: merkle.root(leaves[low:high])


def leaves_of(count: int) -> list[bytes]:
    return [merkle.leaf_hash(number.to_bytes(4, "big")) for number in range(count)]


def largest_power_below(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, word for word."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    k = largest_power_below(len(leaves))
    return merkle.node_hash(mth(leaves[:k]), mth(leaves[k:]))


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962 section 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = largest_power_below(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """RFC 6962 section 2.1.2, word for word."""
    if m == len(leaves):
        return [] if whole else [mth(leaves)]
    k = largest_power_below(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


def check(case: dict) -> None:
    """Run one case in the form of the public vectors: it must fail exactly where wantErr is true."""
    proof = [b64decode(one) for one in case["proof"] or []]
    try:
        if "leafIdx" in case:
            leaf, root = b64decode(case["leafHash"]), b64decode(case["root"])
            merkle.verify_inclusion(leaf, case["leafIdx"], case["treeSize"], proof, root)
        else:
            roots = b64decode(case["root1"]), b64decode(case["root2"])
            merkle.verify_consistency(case["size1"], case["size2"], *roots, proof)
    except ProofInvalid:
        assert case["wantErr"], case["desc"]
    else:
        assert not case["wantErr"], case["desc"]


def test_known_roots(vectors: Path):
    known = json.loads((vectors / "evidence_merkle.json").read_text())
    leaves = [merkle.leaf_hash(bytes.fromhex(one)) for one in known["leaves"]]
    for size, root in enumerate(known["roots"]):
        assert root == merkle.root(leaves[:size]).hex()


def test_known_proofs_fail_exactly_where_they_must(vectors: Path):
    cases = json.loads((vectors / "evidence_merkle.json").read_text())["proofs"]
    assert {True, False} == {case["wantErr"] for case in cases}
    for case in cases:
        check(case)


@pytest.mark.samples
def test_public_vectors_fail_exactly_where_they_must(samples: Path):
    files = sorted((samples / "evidence" / "merkle").glob("*.json"))
    assert len(files) == 194
    for file in files:
        check(json.loads(file.read_text()))


def test_roots_and_proofs_equal_the_recursions_of_the_rfc():
    leaves = leaves_of(67)
    subtree = subtrees_of(leaves)
    for size in range(len(leaves) + 1):
        root = mth(leaves[:size])
        assert root == merkle.root(leaves[:size]) == merkle.frontier_at(size, subtree).root()
        for index in range(size):
            proof = merkle.inclusion_proof(index, size, subtree)
            assert path(index, leaves[:size]) == proof
            merkle.verify_inclusion(leaves[index], index, size, proof, root)
        for old in range(1, size + 1):
            proof = merkle.consistency_proof(old, size, subtree)
            assert subproof(old, leaves[:size], True) == proof
            merkle.verify_consistency(old, size, mth(leaves[:old]), root, proof)


def test_roots_equal_pymerkle():
    tree = pymerkle.InmemoryTree(algorithm="sha256")
    hashes: list[bytes] = []
    for number in range(40):
        data = number.to_bytes(4, "big")
        tree.append_entry(data)
        hashes.append(merkle.leaf_hash(data))
        assert tree.get_state() == merkle.root(hashes)


def test_proofs_are_asked_only_of_perfect_aligned_ranges():
    leaves = leaves_of(200)

    def subtree(low: int, high: int) -> bytes:
        width = high - low
        assert width & (width - 1) == 0
        assert low % width == 0
        return mth(leaves[low:high])

    for size in (1, 2, 3, 127, 128, 129, 200):
        merkle.frontier_at(size, subtree)
        for index in range(size):
            merkle.inclusion_proof(index, size, subtree)
        for old in range(1, size + 1):
            merkle.consistency_proof(old, size, subtree)


SIZES = st.integers(1, 300)


@given(SIZES, st.data())
def test_a_changed_inclusion_proof_fails(size, data):
    leaves = leaves_of(size)
    index = data.draw(st.integers(0, size - 1))
    root, proof = merkle.root(leaves), merkle.inclusion_proof(index, size, subtrees_of(leaves))
    merkle.verify_inclusion(leaves[index], index, size, proof, root)
    for changed in mutations(proof, data):
        with pytest.raises(ProofInvalid):
            merkle.verify_inclusion(leaves[index], index, size, changed, root)
    other = data.draw(st.integers(0, size + 3).filter(lambda one: one != index))
    with pytest.raises(ProofInvalid):
        merkle.verify_inclusion(leaves[index], other, size, proof, root)
    with pytest.raises(ProofInvalid):
        merkle.verify_inclusion(leaves[index], index, size, proof, flip(root, 77))
    with pytest.raises(ProofInvalid):
        merkle.verify_inclusion(flip(leaves[index], 3), index, size, proof, root)


@given(SIZES, st.data())
def test_a_changed_consistency_proof_fails(size, data):
    leaves = leaves_of(size)
    old = data.draw(st.integers(1, size))
    roots = merkle.root(leaves[:old]), merkle.root(leaves)
    proof = merkle.consistency_proof(old, size, subtrees_of(leaves))
    merkle.verify_consistency(old, size, *roots, proof)
    for changed in mutations(proof, data):
        with pytest.raises(ProofInvalid):
            merkle.verify_consistency(old, size, *roots, changed)
    for bad in ((flip(roots[0], 9), roots[1]), (roots[0], flip(roots[1], 9))):
        with pytest.raises(ProofInvalid):
            merkle.verify_consistency(old, size, *bad, proof)


def flip(octets: bytes, bit: int) -> bytes:
    changed = bytearray(octets)
    changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


def mutations(proof: list[bytes], data: st.DataObject) -> list[list[bytes]]:
    """Changed forms of a proof: longer, shorter, one bit flipped, wrong lengths."""
    extra = bytes(32)
    changed = [[*proof, extra], [extra, *proof]]
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        bit = data.draw(st.integers(0, 255))
        changed += [
            proof[:-1],
            proof[1:],
            [*proof[:at], flip(proof[at], bit), *proof[at + 1 :]],
            [*proof[:at], proof[at][:31], *proof[at + 1 :]],
            [*proof[:at], proof[at] + b"\0", *proof[at + 1 :]],
        ]
    return changed


@given(st.integers(0, 150), st.integers(0, 150))
def test_a_range_needs_every_leaf_in_its_place(first, second):
    low, high = sorted((first, second))
    leaves = leaves_of(high)
    begin = merkle.frontier_at(low, subtrees_of(leaves))
    begin_root, end_root, part = merkle.root(leaves[:low]), merkle.root(leaves), leaves[low:]
    merkle.verify_range(begin, part, begin_root, high, end_root)
    wrong: list[list[bytes]] = [[*part, bytes(32)]]
    if part:
        wrong += [part[:-1], part[1:], [flip(part[0], 5), *part[1:]]]
    if len(part) > 1:
        wrong += [[part[1], part[0], *part[2:]], [part[0][:31], part[0][31:] + part[1], *part[2:]]]
    for leaves_given in wrong:
        with pytest.raises(ProofInvalid):
            merkle.verify_range(begin, leaves_given, begin_root, high, end_root)
    with pytest.raises(ProofInvalid):
        merkle.verify_range(begin, part, bytes(32), high, end_root)
    with pytest.raises(ProofInvalid):
        merkle.verify_range(begin, part, begin_root, high, bytes(32))


def test_two_short_hashes_that_concatenate_alike_are_refused():
    leaves = leaves_of(2)
    joined = leaves[0] + leaves[1]
    with pytest.raises(ProofInvalid):
        merkle.verify_range(merkle.Frontier(), [joined[:31], joined[31:]], EMPTY_ROOT, 2, merkle.root(leaves))
    with pytest.raises(ProofInvalid):
        merkle.verify_inclusion(joined[:31], 0, 2, [joined[31:]], merkle.root(leaves))


@pytest.mark.parametrize(
    ("size", "nodes"), [(-1, ()), (1, ()), (0, (bytes(32),)), (3, (bytes(32), bytes(31)))]
)
def test_a_frontier_of_the_wrong_shape_is_refused(size, nodes):
    with pytest.raises(ProofInvalid):
        merkle.Frontier(size, nodes)


def test_consistency_from_nothing_is_no_proof():
    with pytest.raises(ProofInvalid):
        merkle.verify_consistency(0, 1, EMPTY_ROOT, leaves_of(1)[0], [])
    with pytest.raises(NotInLedger):
        merkle.consistency_proof(0, 1, subtrees_of(leaves_of(1)))


def test_kept_nodes_are_those_of_the_levels_asked_for():
    leaves = leaves_of(100)
    first, kept_first = merkle.append(merkle.Frontier(), leaves[:37], frozenset({3}))
    second, kept_second = merkle.append(first, leaves[37:], frozenset({3}))
    assert merkle.root(leaves) == second.root()
    expected = [(3, at, mth(leaves[at * 8 : at * 8 + 8])) for at in range(12)]
    assert expected == kept_first + kept_second
