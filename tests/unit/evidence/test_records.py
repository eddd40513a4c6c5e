"""Records: the leaf format of ledger.md section 2, bit for bit; refusal of what is not declared."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from evidence import records
from evidence.errors import FrameInvalid, NotCanonical, RecordRefused
from evidence.kinds import KINDS, Kind
from evidence.limits import LIMITS
from evidence.records import Draft, decode_frame, encode

SALTS = bytes(range(48))


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    monkeypatch.setitem(KINDS, "sample", Kind(3, frozenset({"a", "b"}), frozenset({"s"})))


def draft(**changes) -> Draft:
    fields = {
        "kind": "sample",
        "scope": "acme",
        "source": "webhook-0",
        "event_time_ns": 5,
        "public": {"a": 1},
    }
    return Draft(**{**fields, **changes})


def made(one: Draft, **changes) -> records.EncodedRecord:
    fields = {
        "scope_id": "0" * 32,
        "source_seq": 7,
        "boot_id": "b1",
        "received_time_ns": 2**63 - 1,
        "salts": SALTS,
    }
    return encode(one, **{**fields, **changes})


def test_the_leaf_is_built_as_specified():
    sha = hashlib.sha256
    record = made(draft(sensitive={"s": "x"}, header={"event_id": "e1"}))
    header = rfc8785.dumps(
        {
            "kind": "sample",
            "version": 3,
            "event_time": "5",
            "received_time": str(2**63 - 1),
            "scope": "0" * 32,
            "source": "webhook-0",
            "boot_id": "b1",
            "source_seq": "7",
            "event_id": "e1",
        }
    )
    parts = decode_frame(record.frame)
    assert (header, b'{"a":1}', b'{"s":"x"}', SALTS) == (
        parts.header,
        parts.public,
        parts.sensitive,
        parts.salts,
    )
    data = b"\x01" + b"".join(
        sha(SALTS[at : at + 16] + part).digest()
        for at, part in zip((0, 16, 32), (header, b'{"a":1}', b'{"s":"x"}'), strict=True)
    )
    assert sha(b"\x00" + data).digest() == record.leaf_hash == parts.leaf_hash()


def test_empty_parts_are_empty_objects_and_absent_fields_are_omitted():
    parts = decode_frame(made(draft(public={"a": None}, event_time_ns=None)).frame)
    assert (b"{}", b"{}") == (parts.public, parts.sensitive)
    assert "event_time" not in parts.header_fields()


def test_withholding_a_part_keeps_the_leaf():
    record = made(draft(sensitive={"s": "yes"}))
    parts = decode_frame(record.frame)
    withheld = parts.digests()[2]
    header, public = (
        records.part_digest(parts.salts[:16], parts.header),
        records.part_digest(parts.salts[16:32], parts.public),
    )
    assert record.leaf_hash == records.record_leaf_hash(header, public, withheld)


@given(st.binary(min_size=48, max_size=48), st.binary(min_size=48, max_size=48))
def test_equal_records_have_leaves_that_differ_by_salt(first, second):
    same = made(draft(), salts=first).leaf_hash == made(draft(), salts=second).leaf_hash
    assert (first == second) == same


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "unheard"},
        {"public": {"c": 1}},
        {"public": {"s": 1}},
        {"sensitive": {"a": 1}},
        {"header": {"source_seq": "9"}},
        {"header": {"kind": "decision"}},
    ],
)
def test_undeclared_kinds_and_fields_are_refused(changes):
    with pytest.raises(RecordRefused) as caught:
        made(draft(**changes))
    assert "kinds.py" in caught.value.fix


@pytest.mark.parametrize("salts", [b"", bytes(47), bytes(49)])
def test_salts_of_another_length_are_refused(salts):
    with pytest.raises(RecordRefused):
        made(draft(), salts=salts)


def test_values_outside_the_canonical_domain_are_refused():
    for public in ({"a": 1.5}, {"a": 2**53}, {"a": b"x"}):
        with pytest.raises(NotCanonical):
            made(draft(public=public))
    with pytest.raises(NotCanonical):
        made(draft(event_time_ns=-1))


def test_a_record_too_large_is_refused():
    with pytest.raises(RecordRefused):
        made(draft(public={"a": "x" * LIMITS.record_bytes}))


@pytest.mark.parametrize("change", [{"event_time_ns": 2**63}, {"event_time_ns": 2**64 - 1}])
def test_times_past_what_databases_hold_are_refused(change):
    with pytest.raises(RecordRefused):
        made(draft(**change))


def test_every_truncation_of_a_frame_is_refused():
    frame = made(draft()).frame
    for size in range(len(frame)):
        with pytest.raises(FrameInvalid):
            decode_frame(frame[:size])
    with pytest.raises(FrameInvalid):
        decode_frame(frame + b"x")


def test_every_bit_flip_of_a_frame_changes_the_leaf_or_is_refused():
    record = made(draft(sensitive={"s": "x"}))
    for bit in range(len(record.frame) * 8):
        changed = bytearray(record.frame)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            leaf = decode_frame(bytes(changed)).leaf_hash()
        except FrameInvalid:
            continue
        assert record.leaf_hash != leaf


def test_parts_with_two_readings_are_refused():
    parts = decode_frame(made(draft()).frame)
    for public in (b'{"a":1,"a":2}', b'{"a": 1}', b"[]", b"{"):
        with pytest.raises(FrameInvalid):
            records.RecordParts(parts.header, public, parts.sensitive, parts.salts).public_fields()


def test_a_later_version_is_not_guessed_at():
    frame = bytearray(made(draft()).frame)
    frame[0] = 2
    with pytest.raises(FrameInvalid, match="version 2"):
        decode_frame(bytes(frame))


def test_known_answers(vectors: Path):
    for case in json.loads((vectors / "evidence_records.json").read_text())["records"]:
        record = encode(
            Draft(
                case["kind"],
                "estate",
                case["source"],
                int(case["event_time"]),
                case["public"],
                case["sensitive"],
            ),
            scope_id=case["scope"],
            source_seq=int(case["source_seq"]),
            boot_id=case["boot_id"],
            received_time_ns=int(case["received_time"]),
            salts=bytes.fromhex(case["salts"]),
        )
        assert case["frame"] == record.frame.hex()
        assert case["leaf_hash"] == record.leaf_hash.hex()
