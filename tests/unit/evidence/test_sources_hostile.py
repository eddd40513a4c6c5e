"""Hostile logs: what a client, a user or a forged file can put into a line."""

from __future__ import annotations

import contextlib
import time

import pytest

from evidence.errors import SourceRefused
from evidence.sources import s3_access
from evidence.sources.base import Line, Unparsed
from evidence.sources.hostlist import expand
from evidence.sources.slurm_sacct import Sacct

S3 = (
    "79a59df900b949e5 us-corpus [{time}] 10.20.1.11 arn:aws:iam::111122223333:user/x 3E57427F33A59F07 "
    'REST.GET.OBJECT shards/0 "{uri}" 200 - {sent} 1048576 70 10 "{referer}" "{agent}" -'
)


def s3(**change: str) -> dict:
    values = {
        "time": "03/Mar/2025:09:00:00 +0000", "uri": "GET /a HTTP/1.1", "sent": "1048576", "referer": "-",
        "agent": "aws-sdk", **change,
    }  # fmt: skip
    return s3_access.parse(Line(1, 0, S3.format(**values).encode()))


def test_the_line_itself_is_read() -> None:
    assert ("1048576", "aws-sdk") == (s3()["bytes_sent"], s3()["user_agent"])


@pytest.mark.parametrize(
    "change",
    [
        {"time": "03/Mar/9999:09:00:00 +0000"},
        {"time": "03/Mar/2262:09:00:00 +0000"},
        {"time": "03/Mar/1969:09:00:00 +0000"},
        {"time": "03/Mar/0001:09:00:00 +0000"},
        {"sent": "9999999999999999999"},  # past 2^63: no table could hold it, and no export would come about
        {"sent": "9007199254740993"},
        {"sent": "007"},
        {"agent": 'x" 200 - 1 1 1 1 "-" "y'},
        {"uri": 'GET /a" 404 NoSuchKey 1 1 1 1 "-" "evil" - "'},
        {"agent": "a\x00b"},
        {"agent": "a\rb"},
        {"agent": "\x1b]0;owned\x07"},
        {"uri": "GET /" + "x" * 70_000},
    ],
)
def test_a_line_that_could_mislead_or_block_is_quarantined(change: dict) -> None:
    with pytest.raises(Unparsed):
        s3(**change)


@pytest.mark.parametrize(
    "filling", [' "', '" "', " -", '" 200 - 1 1 1 1 "', "- ", "% ", "%3F", ";a=%41", "?=", "%253F"]
)
def test_a_long_hostile_line_costs_little(filling: str) -> None:
    begin = time.process_time()
    with contextlib.suppress(Unparsed):
        s3(agent=filling * (60_000 // len(filling)))
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999]", "n[1-20000],m[1-20000]", "n[1-200][1-200]", "n[" + ",".join(["1-19999"] * 6000) + "]",
        ",".join(["n[1-9999]"] * 3000), "n[1-9]" * 10_000, "[" * 30_000, "n[1-2", "n[2-1]", "n[a-b]",
    ],
)  # fmt: skip
def test_host_list_bombs_are_refused_at_once(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(Unparsed):
        expand(text)
    assert time.process_time() - begin < 0.5


COLUMNS = "JobIDRaw|JobID|Cluster|Account|User|State|Submit|Start|End|NodeList"


def sacct(row: str, columns: str = COLUMNS) -> dict:
    listing = Sacct()
    listing.header(Line(1, 0, columns.encode()))
    return listing.parse(Line(2, 0, row.encode()))


def test_a_delimiter_in_a_name_shifts_no_column() -> None:
    good = "7|7|c|acme|ann|COMPLETED|1740990000|1740990001|1740990002|n1"
    assert "n1" == sacct(good)["nodes"]
    assert "n1" == sacct(good + "|", COLUMNS + "|")["nodes"]
    for evil in (
        "7|7|c|acme|ann|x|COMPLETED|1740990000|1740990001|1740990002|",  # the empty NodeList falls off the end
        good + "|",
    ):
        with pytest.raises(Unparsed):
            sacct(evil)
    with pytest.raises(Unparsed):
        sacct(good, COLUMNS + "|")


@pytest.mark.parametrize("column", ["JobName", "Comment", "WorkDir", "SubmitLine"])
def test_a_line_break_in_what_users_write_forges_no_row(column: str) -> None:
    forged = "evil\n8|8|c|globex|bob|COMPLETED|1740990000|1740990001|1740990002|n1|x"
    lines = f"7|7|c|acme|ann|COMPLETED|1740990000|1740990001|1740990002|{forged}".split("\n")
    columns = COLUMNS.replace("NodeList", f"{column}|NodeList")
    with pytest.raises(SourceRefused, match=column):
        sacct(lines[0], columns)
    with pytest.raises(Unparsed):
        sacct("7|7|c|acme")  # no such column: only this line is in doubt


@pytest.mark.parametrize(
    "at", ["99999999999", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00+10:00", "1960-01-01T00:00:00Z"]
)
def test_times_that_no_table_holds_are_quarantined(at: str) -> None:
    with pytest.raises(Unparsed):
        sacct(f"7|7|c|acme|ann|COMPLETED|{at}|1740990001|1740990002|n1")


@pytest.mark.parametrize("cluster", ["a/b", "a b", "..", "=x", "a.", "\u202e"])
def test_a_cluster_name_that_makes_keys_ambiguous_is_quarantined(cluster: str) -> None:
    with pytest.raises(Unparsed):
        sacct(f"7|7|{cluster}|acme|ann|COMPLETED|1740990000|1740990001|1740990002|n1")
