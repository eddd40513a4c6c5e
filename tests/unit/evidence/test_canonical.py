"""Canonical bytes equal RFC 8785 on our domain; all else is refused without quoting values."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from dataclasses import dataclass
from gc import get_referents
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from evidence.canonical import (
    Encoded,
    canonical,
    canonical_object,
    decode_canonical,
    parse_u64,
    text_or_base64,
    u64,
)
from evidence.errors import NotCanonical

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.text(st.characters(max_codepoint=127))
DOMAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=30,
)


class Colour(enum.Enum):
    RED = "red"


class Text(str):
    __slots__ = ()


@dataclass
class Pair:
    a: int = 1


@given(DOMAIN)
def test_equals_the_reference_encoder_on_the_domain(value):
    assert rfc8785.dumps(value) == canonical(value)


@given(st.dictionaries(KEYS, DOMAIN), st.data())
def test_values_encoded_before_give_the_same_object(fields, data):
    chosen = data.draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set()
    mixed = {name: Encoded(canonical(value)) if name in chosen else value for name, value in fields.items()}
    assert canonical(fields) == canonical_object(mixed)


def test_an_object_of_encoded_values_refuses_what_canonical_refuses():
    for fields in ({"é": Encoded(b"1")}, {"a": 1.5, "b": Encoded(b"1")}, {"\ud800": 1}):
        with pytest.raises(NotCanonical):
            canonical_object(fields)


@given(DOMAIN)
def test_canonical_bytes_decode_to_the_same_value(value):
    assert value == decode_canonical(canonical(value))


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        2**53,
        -(2**53),
        b"octets",
        {"é": 1},
        {1: 2},
        {None: 1},
        {Text("a"): 1},
        Text("a"),
        Colour.RED,
        Pair(),
        uuid.UUID(int=1),
        dt.datetime.now(tz=dt.UTC),
        dt.date(2026, 1, 1),
        {1, 2},
        "\ud800",
        object(),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"a": [v]}, lambda v: [{"b": {"c": v}}]])
def test_refuses_what_lies_outside_the_domain(value, wrap):
    with pytest.raises(NotCanonical):
        canonical(wrap(value))


@pytest.mark.parametrize("bad", [0.5, float("nan"), uuid.UUID(int=1), object()])
def test_containers_show_the_domain_check_all_that_they_hold(bad):
    # The check relies on this; NaN would be written as null without a complaint.
    for container in ([bad], (bad,), {"a": bad}, {"a": 1, "b": (2, [{"c": bad}])}):
        level = [container]
        while level and not any(node is bad for node in level):
            level = get_referents(*level)
        assert any(node is bad for node in level)
        with pytest.raises(NotCanonical):
            canonical(container)


@pytest.mark.parametrize("value", [{"é": 1}, {"a": [{"b": {"é": "é"}}]}, [{"a": "é"}, {"é": 1}]])
def test_a_key_outside_ascii_is_refused_at_any_depth(value):
    with pytest.raises(NotCanonical):
        canonical(value)


def test_refuses_cycles_and_bottomless_nesting():
    cycle: list = []
    cycle.append(cycle)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(NotCanonical):
            canonical(value)


def test_refusal_names_the_place_and_never_the_value():
    with pytest.raises(NotCanonical, match=r"\$\.a\[1\]\.b") as caught:
        canonical({"a": [1, {"b": b"CANARY-octets"}]})
    assert "CANARY" not in str(caught.value)
    with pytest.raises(NotCanonical) as caught:
        canonical({"secret": "CANARY\ud800"})
    assert "CANARY" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'"\\u0041"',
        b"1.0",
        b"",
        b"{bad",
        b"[" * 9999,
        b"\xff",
    ],
)
def test_decode_refuses_any_other_form(data):
    with pytest.raises(NotCanonical):
        decode_canonical(data)


@given(st.integers(0, 2**64 - 1))
def test_u64_is_written_and_read_back(value):
    assert value == parse_u64(u64(value))


@pytest.mark.parametrize("value", [-1, 2**64, True, 1.0, "1", None])
def test_u64_refuses(value):
    with pytest.raises(NotCanonical):
        u64(value)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "01", " 1", "1_0", "١", "18446744073709551616", "1" * 5000, 1, None]
)
def test_parse_u64_refuses(text):
    with pytest.raises(NotCanonical):
        parse_u64(text)


def test_undecodable_octets_are_flagged():
    assert text_or_base64("grün".encode()) == "grün"
    assert text_or_base64(b"\xff\x00") == {"base64": "/wA="}


def test_known_answers(vectors: Path):
    known = json.loads((vectors / "evidence_canonical.json").read_text("utf-8"))
    for case in known["equal"]:
        assert bytes.fromhex(case["hex"]) == canonical(json.loads(case["input"])), case["note"]
    for case in known["refused"]:
        with pytest.raises(NotCanonical):
            canonical(json.loads(case["input"]))


@pytest.mark.samples
def test_public_jcs_vectors_inside_the_domain_are_equal_and_the_others_refused(samples: Path):
    folder = samples / "evidence" / "jcs"
    inside = {"arrays", "unicode"}  # the others hold floats or non-ASCII keys
    names = {path.stem.removeprefix("input__") for path in folder.glob("input__*.json")}
    assert names == {"arrays", "french", "structures", "unicode", "values"}
    for name in names:
        value = json.loads((folder / f"input__{name}.json").read_bytes())
        if name in inside:
            assert (folder / f"output__{name}.json").read_bytes() == canonical(value)
            assert bytes.fromhex((folder / f"outhex__{name}.txt").read_text()) == canonical(value)
        else:
            with pytest.raises(NotCanonical):
                canonical(value)
