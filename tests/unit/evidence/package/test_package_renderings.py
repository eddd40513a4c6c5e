"""Table cells, report and its twin: hostile text is text, and what is cut or left out is seen."""

from __future__ import annotations

import json

import pytest

from evidence.package import html, pdf
from evidence.package.model import FIGURES, HTML
from evidence.package.trust import Trust
from evidence.package.workbench import _cell


def test_hostile_text_is_shown_as_text(members: dict[str, bytes], trust: Trust) -> None:
    assert b"<b>&" not in members[HTML]
    assert b"&lt;b&gt;&amp;" in members[HTML]
    assert b"<script" not in members[HTML]
    cells = members["tables/accesses.csv"]
    assert b"\"'=cmd%7C" in cells  # a formula gets an apostrophe; the Parquet copy has the key itself


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@a", "\t=1", "\n=1", " =1", "\ufeff=1", "\uff1d1", "'x", "\r"]
)
def test_what_a_spreadsheet_could_take_for_a_formula_gets_an_apostrophe(text: str) -> None:

    assert _cell(text) == "\"'" + text + '"'


def test_plain_text_stays_plain() -> None:

    assert ['"a=b"', '""', '"a""b"', "7", ""] == [_cell(x) for x in ("a=b", "", 'a"b', 7, None)]


def test_a_markup_value_opens_no_file_in_the_report(members: dict[str, bytes]) -> None:
    value = json.loads(members[FIGURES])
    value["findings"] = ['<img src="file:///etc/hostname"> <b>a<b', "\u202e\x07 \u4e2d", "x" * 5000]
    assert pdf.render(value) == pdf.render(value)


def test_a_long_list_is_drawn_in_linear_time(members: dict[str, bytes]) -> None:
    value = json.loads(members[FIGURES])
    value["decisions"]["shown"] = [["t", "c", "n", "k", "name", "rule", "reason " * 5]] * 600
    assert pdf.render(value).startswith(b"%PDF")


def test_renderings_show_no_hidden_characters_and_cut_visibly(members: dict[str, bytes]) -> None:
    value = json.loads(members["figures.json"])
    evil = "abc\u202egnp.exe\u200b\x9b31m"
    value["findings"] = [evil]
    value["scope"] = "s" * 253
    value["rotations"]["shown"] = [["t", "l", "W" * 4000, "W" * 4000, "", ""]]
    value["gate"]["shown"] = [["t", "W" * 4000, "W" * 4000, "W" * 4000, "W" * 4000]]
    page = html.render(value).decode()
    assert not any(ch in page for ch in "\u202e\u200b\x9b")
    assert pdf.render(value).startswith(b"%PDF")


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("residency.region", "residency.<wbr>region"),
        ("s3://bucket/a b", "s3://<wbr>bucket/<wbr>a b"),
        ("66.6 % at 10.0.0.1, 2025-03-03T00:00:00Z", "66.6 % at 10.0.0.1, 2025-03-03T00:00:00Z"),
        ("ab" * 16, "<wbr>".join(["ab" * 8] * 2)),
        ("interval-unattributable", "interval-unattributable"),
        ("a/<b>&'", "a/&lt;b&gt;&amp;&#x27;"),
    ],
)
def test_a_name_is_wrapped_where_a_reader_would(text: str, wrapped: str) -> None:
    assert wrapped == html.wrappable(text)


def test_a_tenant_sees_no_empty_columns_but_why(members: dict[str, bytes]) -> None:
    value = json.loads(members["figures.json"])
    page = html.render(value).decode()
    assert (False, True) == (">Lines</th>" in page, "not told here" in page)
    for source in value["sources"]:  # as the estate has it
        source[6:8] = ["24", "1"]
    page = html.render(value).decode()
    assert (True, False) == (">Lines</th><th scope=col class=n>Dup.</th>" in page, "not told here" in page)
