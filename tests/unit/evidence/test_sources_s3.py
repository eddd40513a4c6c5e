"""S3 access log: the public samples, and what a hostile client can put into a line."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed import parse_all

from evidence.sources.base import Line, Unparsed
from evidence.sources.importer import s3_format
from evidence.sources.s3_access import parse
from evidence.sources.tenancy import TenantMap

FIELDS = {
    "principal": "requester", "bucket": "bucket", "key": "key", "source_ip": "remote_ip", "operation": "operation",
    "request_id": "request_id", "error_code": "error_code", "acl_required": "acl_required", "cipher": "cipher",
    "source_region": "source_region", "tls_version": "tls_version", "access_point_arn": "access_point_arn",
    "request_uri": "request_uri", "status": "status", "bytes_sent": "bytes_sent", "object_size": "object_size",
    "total_time_ms": "total_time_ms", "turnaround_ms": "turnaround_ms",
}  # fmt: skip
OWNER = "79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be"
SUFFIX = " - hostid= SigV4 TLS_AES_128_GCM_SHA256 AuthHeader b.s3.amazonaws.com TLSv1.3 - - us-east-1"


def line(
    middle: str,
    suffix: str = SUFFIX,
    requester: str = "-",
    key: str = "k",
    operation: str = "REST.GET.OBJECT",
) -> Line:
    text = f"{OWNER} b [06/Feb/2019:00:00:38 +0000] 192.0.2.3 {requester} 3E57 {operation} {key} {middle}{suffix}"
    return Line(1, 0, text.encode())


GOOD = '"GET /k HTTP/1.1" 200 - 113 - 7 - "-" "agent"'


@pytest.mark.samples
def test_the_public_samples_come_out_as_read_by_hand(samples: Path) -> None:
    expected = json.loads((samples / "evidence" / "expected.json").read_text())["files"]
    for name, want in expected.items():
        if not name.startswith("s3-access/"):
            continue
        rows, quarantine, counts = parse_all(samples / "evidence" / name, s3_format(TenantMap()))
        assert (want["records"], want["quarantined"]) == (len(rows), len(quarantine.kept)), name
        assert counts.adds_up()
        for fact in want.get("facts", []):
            _check(fact, rows[fact["record"] - 1])


def _check(fact: dict, row: dict) -> None:
    at = datetime.fromisoformat(fact["time"])
    assert str(int(at.timestamp()) * 10**9) == row["time_ns"]
    for name, value in fact.items():
        if name in FIELDS:
            have = row.get(FIELDS[name])
            assert (None if value is None else str(value)) == (None if have is None else str(have)), name
        elif name == "extra_fields":
            assert " ".join(value) == row["extra"]


@pytest.mark.parametrize(
    ("suffix", "fields"),
    [
        (" -", 18),
        (" - h SigV4 TLS_AES AuthHeader b.s3", 23),
        (" - h SigV4 TLS_AES AuthHeader b.s3 TLSv1.2", 24),
        (" - h SigV4 TLS_AES AuthHeader b.s3 TLSv1.2 -", 25),
        (" - h SigV4 TLS_AES AuthHeader b.s3 TLSv1.2 - Yes", 26),
        (" - h SigV4 TLS_AES AuthHeader b.s3 TLSv1.2 - - eu-west-1", 27),
    ],
)
def test_every_generation_is_read(suffix: str, fields: int) -> None:
    row = parse(line(GOOD, suffix))
    assert (200, "113", "agent") == (row["status"], row["bytes_sent"], row["user_agent"])
    assert fields == 17 + len(suffix.split())


@pytest.mark.parametrize("suffix", [" - h", " - h SigV4 TLS_AES", " - h SigV4 TLS_AES AuthHeader", ""])
def test_a_line_of_no_known_generation_is_quarantined(suffix: str) -> None:
    with pytest.raises(Unparsed):
        parse(line(GOOD, suffix))


def test_a_raw_quote_in_the_uri_keeps_the_fields_in_place() -> None:
    row = parse(line('"GET /a"b HTTP/1.1" 404 NoSuchKey 300 - 7 - "-" "agent"'))
    assert ('GET /a"b HTTP/1.1', 404, "NoSuchKey") == (row["request_uri"], row["status"], row["error_code"])


@pytest.mark.parametrize(
    "middle",
    [
        '"GET /k" 200 - 1 1 1 1 "-" "x HTTP/1.1" 403 AccessDenied 243 - 7 - "-" "agent"',  # a URI that brings a status
        '"GET /k HTTP/1.1" 403 AccessDenied 243 - 7 - "a" 200 - 1 1 1 1 "-" "agent"',  # a referer that does
        '"GET /k HTTP/1.1" 200 - 113 - 7 - "a" "b" "c"',  # two ways to part referer and agent
        '"GET /k HTTP/1.1" 200 - 113 - 7 -',
        '"GET /k HTTP/1.1" abc - 113 - 7 - "-" "agent"',
    ],
)
def test_what_can_be_read_in_two_ways_or_none_is_quarantined(middle: str) -> None:
    with pytest.raises(Unparsed):
        parse(line(middle))


def test_injected_fields_after_the_agent_never_shift_the_suffix() -> None:
    row = parse(
        line(
            '"GET /k HTTP/1.1" 200 - 113 - 7 - "-" "a" - h SigV4 X AuthHeader evil TLSv1.3 - Yes us-east-1 "'
        )
    )
    assert ("b.s3.amazonaws.com", False) == (row["host_header"], "acl_required" in row)
    assert row["user_agent"].startswith('a" - h SigV4')


def test_a_partial_status_inside_the_referer_is_no_status() -> None:
    row = parse(line('"GET /k HTTP/1.1" 403 AccessDenied 243 - 7 - "http://x/" 200 - 1 " "agent"'))
    assert 403 == row["status"]


def test_an_unquoted_dash_as_uri_is_absent() -> None:
    row = parse(line("- 204 - - 14 - - - -", " v1" + SUFFIX[2:], operation="BATCH.DELETE.OBJECT"))
    assert ("v1", 204, False) == (row["version_id"], row["status"], "request_uri" in row)


def test_an_unquoted_dash_as_uri_beside_quoted_fields() -> None:
    row = parse(line('- - - - - - - "-" "agent"'))
    assert ("agent", False, False) == (row["user_agent"], "status" in row, "request_uri" in row)


@pytest.mark.parametrize(
    "time",
    [
        "31/Feb/2019:00:00:38 +0000",
        "06/Feb/2019:00:00:38 +0100",
        "06/Xxx/2019:00:00:38 +0000",
        "06/Feb/2019:25:00:38 +0000",
    ],
)
def test_times_out_of_form_are_quarantined(time: str) -> None:
    raw = line(GOOD).raw.replace(b"06/Feb/2019:00:00:38 +0000", time.encode())
    with pytest.raises(Unparsed, match="time"):
        parse(Line(1, 0, raw))


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"a\x00b", b"x" * 70_000, b"", b'"' * 5000, b"- " * 3000])
def test_hostile_octets_are_quarantined(raw: bytes) -> None:
    with pytest.raises(Unparsed):
        parse(Line(1, 0, raw))


def test_presigned_secrets_do_not_reach_a_row() -> None:
    row = parse(
        line(
            '"GET /k?X-Amz-Signature=CANARYSIG&x=1&X-Amz-Security-Token=CANARYTOK HTTP/1.1" 200 - 1 1 1 1 "http://h/?sig=CANARY3" "a"'
        )
    )
    assert "CANARY" not in json.dumps(row)
    assert "x=1" in row["request_uri"]


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("/k?X-Amz%2DSignature=CANARY&x=1", "/k?X-Amz%2DSignature=REDACTED&x=1"),
        ("/k?%58-Amz-Security%2dToken=CANARY", "/k?%58-Amz-Security%2dToken=REDACTED"),
        ("/k?x=1;X-Amz-Signature=CANARY", "/k?x=1;X-Amz-Signature=REDACTED"),
        ("/k?password=CANARY;CANARY?CANARY=&x=1", "/k?password=REDACTED&x=1"),
        ("/k%3FX-Amz-Signature=CANARY", "/k%3FX-Amz-Signature=REDACTED"),
        ("/k%3Fsig%3DCANARY", "REDACTED"),
        ("/k?to=https%3A%2F%2Fh%2Fk%3Fx%3D1%26sig%3DCANARY&x=1", "/k?to=REDACTED&x=1"),
        ("/k?to=%253Ftoken%253DCANARY", "/k?to=REDACTED"),
        ("/k?to=%3Fsig%3DCANARY;token=CANARY", "/k?to=REDACTED"),
        ("sig=CANARY", "sig=REDACTED"),
        ("/k%20a?x=1%3D2&assign=1&versionId=a;b", "/k%20a?x=1%3D2&assign=1&versionId=a;b"),
        ("/k?x=%", "/k?x=%"),
    ],
)
@pytest.mark.parametrize("field", ["request_uri", "referer", "user_agent"])
def test_secrets_are_left_out_however_they_are_written(field: str, told: str, kept: str) -> None:
    values = dict.fromkeys(("request_uri", "referer", "user_agent"), "a") | {field: f"a {told} b"}
    uri, referer, agent = (f'"{value}"' for value in values.values())
    assert f"a {kept} b" == parse(line(f"{uri} 200 - 1 1 1 1 {referer} {agent}"))[field]


@pytest.mark.parametrize(
    ("requester", "query", "want"),
    [
        (
            "arn:aws:sts::111122223333:assumed-role/r/slurm.train-us.12_3",
            "",
            ("role-session", "train-us", "12_3"),
        ),
        ("-", "?x-sluicegate-job=train-us.77", ("query", "train-us", "77")),
        (
            "arn:aws:sts::111122223333:assumed-role/r/slurm.c.1",
            "?x-sluicegate-job=c.2",
            ("conflict", None, None),
        ),
        (
            "arn:aws:sts::111122223333:assumed-role/r/notslurm.c.1",
            "?xx-sluicegate-job=c.2",
            (None, None, None),
        ),
    ],
)
def test_a_job_id_in_the_request_is_taken_as_a_hint(requester: str, query: str, want: tuple) -> None:
    row = parse(line(f'"GET /k{query} HTTP/1.1" 200 - 1 1 1 1 "-" "a"', requester=requester))
    assert want == (row.get("job_by"), row.get("job_cluster"), row.get("job_id"))


@given(st.binary(max_size=300))
def test_no_octets_make_the_parser_fail_otherwise(raw: bytes) -> None:
    for candidate in (raw, line(GOOD).raw.replace(b"agent", raw), line(GOOD).raw.replace(b"/k ", raw)):
        try:
            row = parse(Line(1, 0, candidate))
        except Unparsed:
            continue
        assert row["status"] == 200
