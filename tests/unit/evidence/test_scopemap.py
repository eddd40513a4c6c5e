"""The map of heads: formats of ledger.md section 2, against a second, naive path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.errors import ProofInvalid, RecordRefused
from evidence.scope import EMPTY_HEAD, EMPTY_ROOT, Head
from evidence.scopemap import DEPTH, EMPTY, EMPTY_LEAF, ScopeMap, map_key, map_root, tick_leaf, verify_map

IDS = st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}")
HEADS = st.builds(Head, st.integers(1, 2**64 - 1), st.binary(min_size=32, max_size=32))


def naive(heads: dict[str, Head]) -> tuple[bytes, dict[int, dict[int, bytes]]]:
    """Root and all non-empty nodes by height, straight from the formats; knows nothing of the code under test."""
    sha, empty = hashlib.sha256, bytes(32)
    level = {}
    for scope_id, head in heads.items():
        key = sha(scope_id.encode()).digest()
        leaf = sha(b"\x02" + key + head.size.to_bytes(8, "big") + head.root).digest()
        level[int.from_bytes(key, "big")] = leaf
    levels = {}
    for height in range(256):
        levels[height] = level
        above = {}
        for key in {one >> 1 for one in level}:
            left, right = level.get(key << 1, empty), level.get(key << 1 | 1, empty)
            above[key] = sha(b"\x03" + left + right).digest()
        level, empty = above, sha(b"\x03" + empty + empty).digest()
    return level.get(0, empty), levels


@given(st.dictionaries(IDS, HEADS, max_size=12), IDS)
def test_root_and_proofs_equal_the_naive_map(heads, absent):
    root, levels = naive(heads)
    assert root == map_root(heads)
    scope_map = ScopeMap()
    scope_map.update(heads)
    for scope_id in [*list(heads)[:3], absent]:
        proof = scope_map.proof(scope_id)
        key = int.from_bytes(hashlib.sha256(scope_id.encode()).digest(), "big")
        assert [levels[h].get(key >> h ^ 1, EMPTY[h]) for h in range(DEPTH)] == proof
        verify_map(scope_id, heads.get(scope_id, EMPTY_HEAD), proof, root)


@given(st.dictionaries(IDS, HEADS, min_size=1, max_size=5), st.data())
def test_no_second_head_and_no_other_place_can_be_proved(heads, data):
    scope_map = ScopeMap()
    scope_map.update(heads)
    root, scope_id = scope_map.root(), data.draw(st.sampled_from(sorted(heads)))
    proof, head = scope_map.proof(scope_id), heads[scope_id]
    bit, at = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 255))
    changed = bytes([proof[at][0] ^ 1 << bit]) + proof[at][1:]
    for other, other_head, siblings in (
        (scope_id, Head(head.size - 1 or 2, head.root), proof),
        (scope_id, Head(head.size, bytes([head.root[0] ^ 1]) + head.root[1:]), proof),
        (scope_id, EMPTY_HEAD, proof),
        (f"{int(scope_id, 16) ^ 1:032x}", head, proof),
        (scope_id, head, [*proof[:at], changed, *proof[at + 1 :]]),
        (scope_id, head, proof[:-1]),
        (scope_id, head, [*proof, bytes(32)]),
        (scope_id, head, [proof[0][:31], *proof[1:]]),
    ):
        with pytest.raises(ProofInvalid):
            verify_map(other, other_head, siblings, root)


def test_an_absent_scope_and_a_scope_of_size_zero_are_one_statement():
    scope_map = ScopeMap()
    assert EMPTY[256] == scope_map.root()
    scope_map.update({"0" * 32: EMPTY_HEAD})
    assert EMPTY[256] == scope_map.root()
    assert EMPTY_LEAF == bytes(32)
    verify_map("0" * 32, EMPTY_HEAD, scope_map.proof("0" * 32), scope_map.root())


@pytest.mark.parametrize(
    "head", [Head(0, bytes(32)), Head(1, b""), Head(-1, bytes(32)), Head(2**64, bytes(32))]
)
def test_impossible_heads_are_refused(head):
    with pytest.raises(ProofInvalid):
        verify_map("0" * 32, head, [bytes(32)] * 256, bytes(32))


@pytest.mark.parametrize("scope_id", ["", "0" * 31, "0" * 33, "A" * 32, "g" * 32, "é" * 32])
def test_scope_ids_of_another_form_are_refused(scope_id):
    with pytest.raises(RecordRefused):
        map_key(scope_id)


def test_updates_change_only_what_changed():
    scope_map = ScopeMap()
    heads = {f"{number:032x}": Head(number + 1, bytes([number]) * 32) for number in range(50)}
    scope_map.update(heads)
    scope_map.root()
    for number in (3, 17, 17, 49):
        heads[f"{number:032x}"] = Head(1000 + number, bytes(32))
        scope_map.update({f"{number:032x}": heads[f"{number:032x}"]})
        scope_map.proof("f" * 32)
        assert map_root(heads) == scope_map.root()


def test_known_answers(vectors: Path):
    known = json.loads((vectors / "evidence_map.json").read_text())
    heads = {one["scope"]: Head(int(one["size"]), bytes.fromhex(one["root"])) for one in known["heads"]}
    assert known["empty_root"] == EMPTY_ROOT.hex()
    assert known["empty_map_root"] == EMPTY[256].hex()
    assert known["map_root"] == map_root(heads).hex()
    assert known["tick_leaf"] == tick_leaf(map_root(heads), int(known["tick"])).hex()
