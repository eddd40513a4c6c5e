"""YAML: what every reader agrees on is read, what they would guess is refused with file, line and a fix."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policy_engine.limits import LIMITS
from policy_engine.resources.yaml_tree import field_path, read_document


def read(text):
    data = text if isinstance(text, bytes) else text.encode()
    return read_document("f.yaml", data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: -5", -5),
        ("a: 0", 0),
        ("a: true", True),
        ("a: false", False),
        ("a: null", None),
        ("a:", None),
        ("a: ~", None),
        ("a: 15s", "15s"),
        ("a: us-east-04a", "us-east-04a"),
        ("a: 10.0.0.1", "10.0.0.1"),
        ("a: 'no'", "no"),
        ('a: "012"', "012"),
        ("a: '2026-01-01'", "2026-01-01"),
        ("a: GCM-AES-256", "GCM-AES-256"),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: [1, [2]]", [1, [2]]),
        ("a: {b: c}", {"b": "c"}),
        ("a: norway", "norway"),
        ("a: 1-2", "1-2"),
        ("a: -", None),
    ],
)
def test_what_is_plain_is_read(text, value):
    if text == "a: -":
        text = "a:\n  - "
        value = [None]
    document, found = read(text)
    assert [] == found
    assert {"a": value} == document.data


@pytest.mark.parametrize(
    "word",
    ["no", "No", "NO", "yes", "on", "off", "OFF", "y", "N", "True", "FALSE", "Null", "012", "0o17", "0x1f", "0b1",
     "1_000", "12:30", "1:30:00", "1.10", ".5", "1.", "1e3", "1E+3", "-1.5", "+1", "-0", ".inf", "-.INF", ".nan",
     "2026-01-01", "2026-1-1", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "08", "00"],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["a: {}", "a: [{}]", "{}: 1"])
def test_what_readers_disagree_about_is_refused(word, shape):
    _, found = read(shape.replace("{}", word))
    assert [1] == [p.line for p in found]
    assert "quotes" in found[0].fix


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "stands here twice, first on line 1"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", 4, "a.b: the key stands here twice, first on line 2"),
        ("a: &x [1]\n", 1, "anchor &x"),
        ("a: 1\nb: *x\n", 2, "alias"),
        ("a: {b: 1}\n<<: {c: 1}\n", 2, "merge keys"),
        ("a: !!str 1\n", 1, "tags"),
        ("a: !x 1\n", 1, "tags"),
        ("%YAML 1.1\n---\na: 1\n", 1, "directives"),
        ("---\na: 1\n---\nb: 1\n", 3, "second document"),
        ("a: 1\n---\n", 2, "second document"),
        ("a: 1\n...\n---\nb: 1\n", 3, "second document"),
        ("a: 1\nb:\t2\n", 2, "tab"),
        ("\ta: 1\n", 1, "tab"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "not UTF-8"),
        (b"\xef\xbb\xbfa: 1\n", 1, "byte order mark"),
        ("", 1, "no object"),
        ("# only a comment\n", 1, "no object"),
        ("---\n", 1, "no object"),
        ("a: [1\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: \x01\n", 0, "control characters"),
        ("? [a]\n: 1\n", 1, "key must be a plain name"),
        ("a: " + "[" * 40 + "]" * 40, 1, "nested more than"),
        ("[" * 100_000, 1, "nest"),
        ("a: " + "{b: " * 100_000, 1, "nest"),
        ("a: " + "1" * 1_000 + "_\n", 1, "looks like a number"),
        ("a: 12345678901234567890\n", 1, "too large to be exact"),
    ],
)
def test_traps_are_refused_with_their_line(text, line, message):
    _, found = read(text)
    assert found, text[:40]
    assert (line, True) == (found[0].line, message in str(found[0])), str(found[0])


def test_an_alias_bomb_is_refused_at_its_first_line():
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    _, found = read("\n".join(lines))
    assert 1 == found[0].line


def test_size_is_checked_before_parsing():
    _, (problem,) = read(b"a: [" * (LIMITS.resource_file_bytes // 2))
    assert "larger than" in problem.message


def test_many_values_end_the_reading():
    _, found = read("a: [" + "1," * (LIMITS.yaml_nodes + 5) + "]")
    assert "more than" in found[-1].message


def test_all_problems_of_a_document_are_found_at_once():
    _, found = read("a: no\nb: 012\nc: 1\nc: 2\nd: &x 1\n")
    assert [1, 2, 4, 5] == [p.line for p in found]


def test_lines_of_nested_values():
    document, _ = read("spec:\n  ends:\n    - site: a\n    - site: b\n      sci: x\n")
    assert 5 == document.line(("spec", "ends", 1, "sci"))
    assert 4 == document.line(("spec", "ends", 1, "absent"))
    assert "spec.ends[1].sci" == field_path(("spec", "ends", 1, "sci"))


safe = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**52), 2**52)
    | st.text(st.characters(codec="ascii", categories=["L"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(safe)
def test_what_a_dumper_quotes_is_read_back(value):
    document, found = read(yaml.safe_dump({"a": value}))
    if not found:
        assert {"a": value} == document.data
    else:  # the dumper leaves words plain that other readers take for truth values
        assert all("quotes" in p.fix or "anchor" in p.message or "alias" in p.message for p in found)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_give_a_document_or_problems(data):
    document, found = read(data)
    assert document is not None or found
