"""sacct text and host lists: the public listing, sentinels, requeues, times without a zone."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed import parse_all

from evidence.errors import SourceRefused
from evidence.limits import LIMITS
from evidence.sources.base import Line, Unparsed
from evidence.sources.hostlist import expand
from evidence.sources.importer import sacct_format
from evidence.sources.slurm_sacct import Sacct
from evidence.sources.tenancy import TenantMap

COLUMNS = ("JobIDRaw", "JobID", "Cluster", "Account", "State", "Submit", "Start", "End", "NodeList")


def one(text: str, **more: object) -> dict:
    return Sacct(columns=COLUMNS, **more).parse(Line(1, 0, text.encode()))


@pytest.mark.samples
def test_the_public_listing_comes_out_as_read_by_hand(samples: Path) -> None:
    want = json.loads((samples / "evidence" / "expected.json").read_text())["files"][
        "slurm/sacct-parsable-snowman.txt"
    ]
    sacct = Sacct("omni", "\u2603", "Europe/Amsterdam", want["fields"])
    path = samples / "evidence" / "slurm" / "sacct-parsable-snowman.txt"
    rows, quarantine, counts = parse_all(path, sacct_format(TenantMap(), sacct))
    assert (want["records"], want["quarantined"]) == (len(rows), len(quarantine.kept))
    by_state = Counter(want["by_state"])
    by_state["CANCELLED"] += by_state.pop("CANCELLED by N")
    assert dict(by_state) == dict(Counter(r["state"] for r in rows))
    assert (100, 142) == (sum("step" not in r for r in rows), sum("step" in r for r in rows))
    for fact in want["facts"]:
        _check(fact, rows[fact["record"] - 1])


def _check(fact: dict, row: dict) -> None:
    assert fact["job"] == row["job_id"]
    if "nodes" in fact:
        assert ",".join(fact["nodes"]) == row.get("nodes", "")
    if "state" in fact:
        assert fact["state"] == row["state"]
    for name in ("start", "end"):
        if fact.get(f"{name}_local", "") is None:
            assert f"{name}_ns" not in row
        if f"{name}_utc_if_europe_amsterdam" in fact:
            at = datetime.fromisoformat(fact[f"{name}_utc_if_europe_amsterdam"])
            assert str(int(at.timestamp()) * 10**9) == row[f"{name}_ns"]
    if "elapsed_seconds" in fact:
        assert fact["elapsed_seconds"] == (int(row["end_ns"]) - int(row["start_ns"])) // 10**9
    if "array_task" in fact:
        assert (str(fact["array_job"]), fact["array_task"]) == (row["array_job"], row["array_task"])
    if "step" in fact:
        assert fact["step"] == row["step"]


def test_without_a_zone_a_listing_is_refused_and_never_taken_as_utc() -> None:
    with pytest.raises(SourceRefused, match="zone"):
        one("1|1|c|a|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|n1")


@pytest.mark.parametrize("text", ["2024-10-27T02:30:00", "2024-03-31T02:30:00"])
def test_a_local_time_that_happens_twice_or_never_is_quarantined(text: str) -> None:
    with pytest.raises(Unparsed, match="twice or never"):
        one(f"1|1|c|a|RUNNING|{text}|Unknown|Unknown|n1", zone="Europe/Amsterdam")


@pytest.mark.parametrize("end", ["Unknown", "0", ""])
def test_a_running_job_has_an_open_end(end: str) -> None:
    assert "end_ns" not in one(f"1|1|c|a|RUNNING|10|20|{end}|n1")


def test_seconds_and_offsets_need_no_zone() -> None:
    row = one("1|1|c|a|COMPLETED|10|1970-01-01T01:00:20+01:00|1970-01-01T00:00:30Z|n1")
    assert ("20000000000", "30000000000") == (row["start_ns"], row["end_ns"])


def test_requeued_runs_are_numbered_by_order_where_no_column_says() -> None:
    sacct = Sacct(columns=COLUMNS)
    texts = [f"235929|235929|c|a|REQUEUED|5|{s}|{s + 5}|n1" for s in (10, 20, 30, 40)]
    rows = [sacct.parse(Line(i, 0, t.encode())) for i, t in enumerate(texts)]
    assert [0, 1, 2, 3] == [r["restart"] for r in rows]


@pytest.mark.parametrize(
    "text",
    [
        "1|1|c|a|COMPLETED|10|20|30|n1|extra",
        "x|x|c|a|COMPLETED|10|20|30|n1",
        "1|1|c|a|COMPLETED|10|30|20|n1",
        "1|1|c|a|COMPLETED|Unknown|20|30|n1",
        "1|1|c|a|completed!|10|20|30|n1",
        "1|1|c|a|COMPLETED|10|20|30|n[1-",
        "1|1|c|a|COMPLETED|10|99999999999999|30|n1",
        "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_lines_out_of_form_are_quarantined(text: str) -> None:
    with pytest.raises(Unparsed):
        one(text)


@pytest.mark.parametrize("delimiter", ["", ",", "_", "."])
def test_a_delimiter_that_occurs_in_values_is_refused(delimiter: str) -> None:
    with pytest.raises(SourceRefused):
        Sacct(delimiter=delimiter)


def test_a_listing_without_needed_columns_is_refused() -> None:
    with pytest.raises(SourceRefused, match="NodeList"):
        Sacct("c").header(Line(1, 0, b"JobID|Submit|Start|End|State"))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("omni[1,10-12]", ["omni1", "omni10", "omni11", "omni12"]),
        ("a[01-03]", ["a01", "a02", "a03"]),
        ("a[1-2]b[3-4],c", ["a1b3", "a1b4", "a2b3", "a2b4", "c"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("None assigned", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_host_lists_expand(text: str, hosts: list[str]) -> None:
    assert hosts == expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "a[1",
        "a]1[",
        "a[[1]]",
        "a[1-]",
        "a[3-1]",
        "a[x]",
        "a[]",
        ",",
        "a,,b",
        "a b",
        "a[1-999999999]",
        "a[1-9999]b[1-9999]",
    ],
)
def test_host_lists_out_of_form_or_bounds_are_refused(text: str) -> None:
    with pytest.raises(Unparsed):
        expand(text)


@given(st.text(alphabet="ab01[],-9", max_size=40))
def test_a_host_list_expands_within_bounds_or_is_refused(text: str) -> None:
    with contextlib.suppress(Unparsed):
        assert len(expand(text)) <= LIMITS.hostlist_hosts
