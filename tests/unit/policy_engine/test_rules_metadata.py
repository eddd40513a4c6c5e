"""METADATA of rules and the texts made from it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_world import ROOT, shipped

from policy_engine.errors import BuildRefused
from policy_engine.limits import LIMITS
from policy_engine.rules.builtin import METADATA as BUILT_IN
from policy_engine.rules.metadata import from_dict, parse, render

WHOLE = {
    "title": "Title",
    "description": "What it means",
    "custom": {
        "id": "pack.rule",
        "text": "{name} is wrong",
        "fix": "change {path}",
        "severity": "high",
        "controls": ["X:1"],
        "exceptable": False,
        "unresolved": "deny",
        "needs": [],
    },
}


def changed(**changes):
    return {**WHOLE, "custom": {**WHOLE["custom"], **changes}}


def test_a_whole_annotation():
    meta = parse(WHOLE)
    assert ("pack.rule", "high", ("X:1",), False) == (
        meta.rule,
        meta.severity,
        meta.controls,
        meta.exceptable,
    )
    assert meta == from_dict(meta.as_dict())
    assert {"name", "path"} == meta.fields()


@pytest.mark.parametrize(
    "annotation",
    [
        {"title": "Title"},
        {**WHOLE, "title": ""},
        {"title": "T", "custom": {name: value for name, value in WHOLE["custom"].items() if name != "fix"}},
        changed(extra=1),
        changed(id=""),
        changed(id="Pack.Rule"),
        changed(id="rule"),
        changed(text=""),
        changed(fix=" "),
        changed(severity="severe"),
        changed(controls=[]),
        changed(unresolved="later"),
        changed(text="{name:loud}"),
    ],
)
def test_a_partial_annotation_is_refused(annotation):
    with pytest.raises(BuildRefused):
        parse(annotation)


def test_exceptable_is_true_only_when_it_says_true():
    assert not parse(changed(exceptable="yes")).exceptable
    assert parse(changed(exceptable=True)).exceptable


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ("{a} and {b}", {"a": 1, "b": "x"}, "1 and x"),
        ("{a}", {"a": ["x", "y"]}, "x, y"),
        ("{a}", {"a": []}, "none"),
        ("{a}", {}, "unknown"),
        ("{a:words}", {"a": "never_keyed"}, "never keyed"),
        ("{a:time}", {"a": "1790000000123456789"}, "2026-09-21T14:13:20Z"),
        ("{a:time}", {"a": "0"}, "the beginning"),
        ("{a:time}", {"a": "soon"}, "an unknown time"),
        ("{a:time}", {"a": "9" * 40}, "an unknown time"),
        ("{a:time}", {"a": None}, "an unknown time"),
        ("{a}", {"a": "{b}", "b": "no"}, "{b}"),
        ("{a.__class__} {0} {}", {"a": 1}, "{a.__class__} {0} {}"),
        ("{a}", {"a": "x\ny\x1b[31m\u202e"}, "x?y?[31m?"),
    ],
)
def test_rendering(template, values, expected):
    assert expected == render(template, values)


@given(st.text(max_size=600))
def test_a_value_stays_on_one_bounded_line(value):
    shown = render("{a}", {"a": value})
    assert shown.isprintable()
    assert len(shown) <= LIMITS.reason_value_chars + 3


def test_every_shipped_rule_says_what_and_how_to_fix():
    for rule, meta in shipped().metadata.items():
        assert all((meta.title, meta.text, meta.fix, meta.controls)), rule
        assert meta.unresolved == "defer" or not meta.needs, rule


def test_the_page_of_policies_lists_every_rule_and_no_other():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z]+(?:\.[a-z_]+)?)` \|", page, re.MULTILINE))
    assert {*shipped().metadata, *BUILT_IN} == listed


def test_the_page_of_policies_lists_every_rule_that_may_be_excepted_and_no_other():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"says `exceptable: true`:\n(.*?)\. Built-ins", page, re.DOTALL)
    exceptable = {rule for rule, meta in shipped().metadata.items() if meta.exceptable}
    assert exceptable == set(re.findall(r"`([a-z_.]+)`", listed))
    assert not any(meta.exceptable for meta in BUILT_IN.values())


def test_the_page_of_policies_says_which_rules_only_warn():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    warns = set(re.findall(r"^\| `([a-z_.]+)` \|.*it warns and does not refuse", page, re.MULTILINE))
    assert {rule for rule, meta in shipped().metadata.items() if meta.severity == "advice"} == warns
