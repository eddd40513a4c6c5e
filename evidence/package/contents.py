"""Contents: what records and rows mean to a package. The same steps when it is made and when it is verified.

Decides which segments a range commits to, which attribution runs can be done again from the package alone,
how records are laid out on the workbench, and how tables become members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from evidence.attribution import BUCKET_US, GRACE_NS, METHOD_VERSION, METHODS
from evidence.canonical import canonical, u64
from evidence.package.decoding import Malformed, number
from evidence.package.model import (
    CHECKPOINT,
    ENVELOPE,
    FIGURES,
    HTML,
    MANIFEST,
    PDF,
    PREDICATE_TYPE,
    README,
    SCRIPT,
    SIGNER,
    STATEMENT_TYPE,
    PackedRecord,
    Predicate,
    Range,
    proofs_name,
    records_name,
    segment_name,
)
from evidence.package.resources import resource
from evidence.package.workbench import SQL_FILES, TABLES, Workbench, sql_text
from evidence.scope import ESTATE
from evidence.sources import s3_access, slurm_sacct
from evidence.sources.segments import SCHEMAS

_I63 = 1 << 63
SOURCES = {info.name: info for info in (s3_access.INFO, slurm_sacct.INFO)}


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment that a record commits to."""

    segment_id: str
    schema: str
    root: bytes
    rows: int
    scope: str
    seq: int


@dataclass(frozen=True, slots=True)
class RunRef:
    """An attribution run that a record commits to."""

    result: str
    access: tuple[str, ...]
    jobs: tuple[str, ...]
    counts: Mapping[str, Any]
    scope: str
    seq: int


@dataclass(slots=True)
class Contents:
    """Everything that tables are built from."""

    records: list[tuple[Range, Sequence[PackedRecord]]]
    segments: dict[str, SegmentRef] = field(default_factory=dict)
    runs: list[RunRef] = field(default_factory=list)

    @property
    def faults(self) -> bool:
        """Whether a record of the range says that fault injection was enabled."""
        return any(_says_faults(r) for _, records in self.records for r in records)


def _says_faults(record: PackedRecord) -> bool:
    kind = record.fields.get("kind")
    if kind == "link_verdict":
        return orjson.loads(record.public).get("faults_enabled") is True
    return kind == "faults_enabled"


def read_contents(records: list[tuple[Range, Sequence[PackedRecord]]]) -> Contents:
    """Find segments and runs among records.

    Raises:
        Malformed: a record that commits to rows is out of form, or two commit differently to one segment.
    """
    contents = Contents(records)
    for rng, packed in records:
        for record in packed:
            kind = record.fields.get("kind")
            if kind == "source_object":
                _check_source(orjson.loads(record.public), rng, record)
            elif kind == "log_segment":
                body = orjson.loads(record.public)
                _check_source(body, rng, record)
                _add(
                    contents, body, rng, record,
                    name="segment_id", root="root", schema=body.get("source_name"),
                )  # fmt: skip
            elif kind == "attribution_run":
                body = orjson.loads(record.public)
                _add(contents, body, rng, record, name="run_id", root="result_root", schema="attribution")
                contents.runs.append(_run(body, rng, record))
        _check_rows(rng, packed)
    return contents


def _check_source(body: dict[str, Any], rng: Range, record: PackedRecord) -> None:
    """What a source is (its class above all) is a property of its format, not the operator's to say."""
    info = SOURCES.get(str(body.get("source_name")))
    if info is None:
        raise Malformed(f"{rng.scope} {record.seq}: a source that this release does not know")
    want: dict[str, str] = {"source_class": info.source_class, "time_means": info.time_means}
    want["resolution_ns"] = u64(info.resolution_ns)
    if any(body.get(name, value) != value for name, value in want.items()) or "source_class" not in body:
        raise Malformed(f"{rng.scope} {record.seq}: claims another class or time than {info.name} has")


def _check_rows(rng: Range, packed: Sequence[PackedRecord]) -> None:
    """Each object has as many committed rows as its record says (the estate's tells those of all scopes)."""
    said: dict[str, int] = {}
    committed: dict[str, int] = {}
    for record in packed:
        kind = record.fields.get("kind")
        if kind in ("source_object", "log_segment"):
            body = orjson.loads(record.public)
            name, rows = str(body.get("object_id")), body.get("rows")
            table = said if kind == "source_object" else committed
            if name in table or type(rows) is not int:
                raise Malformed(f"{rng.scope} {record.seq}: an object counted twice, or without a count")
            if kind == "source_object" and not _counts_fit(body):
                raise Malformed(f"{rng.scope} {record.seq}: lines of an object are counted wrongly, or not")
            table[name] = rows
    for name in sorted(said.keys() | committed.keys()):
        have, want = committed.get(name, 0), said.get(name, -1)
        if not (have <= want if rng.scope == ESTATE else have == want):
            raise Malformed(
                f"{rng.scope}: {have} rows are committed of object {name}, its record says {want}"
            )


def _counts_fit(body: dict[str, Any]) -> bool:
    """Whether the counts of an object's lines are counts, and no more than its lines where these are told."""
    told = {n: body[n] for n in ("rows", "quarantined", "duplicates", "lines") if n in body}
    if "quarantined" not in told or any(type(n) is not int or n < 0 for n in told.values()):
        return False
    lines = told.pop("lines", None)
    return lines is None or sum(told.values()) <= lines


def _add(
    contents: Contents,
    body: dict[str, Any],
    rng: Range,
    record: PackedRecord,
    *,
    name: str,
    root: str,
    schema: object,
) -> None:
    try:
        ref = SegmentRef(
            str(body[name]), str(schema), bytes.fromhex(body[root]), int(body["rows"]), rng.scope, record.seq
        )
    except (KeyError, TypeError, ValueError):
        raise Malformed(f"{rng.scope} {record.seq}: a segment record is out of form") from None
    if ref.schema not in SCHEMAS or len(ref.root) != 32 or not ref.segment_id.isalnum():
        raise Malformed(f"{rng.scope} {record.seq}: a segment of a form that this release does not know")
    known = contents.segments.setdefault(ref.segment_id, ref)
    if (known.root, known.rows, known.schema) != (ref.root, ref.rows, ref.schema):
        raise Malformed(f"{rng.scope} {record.seq}: commits otherwise to a segment than {known.seq} does")


def _run(body: dict[str, Any], rng: Range, record: PackedRecord) -> RunRef:
    access, jobs, counts = body.get("segments"), body.get("jobs_segment"), body.get("counts")
    if not isinstance(access, list) or not isinstance(jobs, list) or not isinstance(counts, dict):
        raise Malformed(f"{rng.scope} {record.seq}: an attribution run is out of form")
    digest = hashlib.sha256(sql_text("attribution").encode()).hexdigest()
    if (body.get("method"), body.get("sql_digest")) != (METHOD_VERSION, digest):
        raise Malformed(f"{rng.scope} {record.seq}: an attribution by another method than this release's")
    if (body.get("grace_ns"), body.get("bucket_ns")) != (u64(GRACE_NS), u64(BUCKET_US * 1000)):
        raise Malformed(f"{rng.scope} {record.seq}: an attribution with another grace than {GRACE_NS} ns")
    return RunRef(
        body["run_id"], tuple(map(str, access)), tuple(map(str, jobs)), counts, rng.scope, record.seq
    )


def repeatable(run: RunRef, contents: Contents) -> bool:
    """Whether all that a run read is in this package (a job list may belong to an earlier window)."""
    return all(s in contents.segments for s in (*run.access, *run.jobs))


def method_counts(rows: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    """Accesses by method, of the rows of an attribution."""
    counts = dict.fromkeys(METHODS, 0)
    for row in rows:
        counts[row[1]] = counts.get(row[1], 0) + 1
    return counts


def fill_records(bench: Workbench, predicate: Predicate, contents: Contents) -> None:
    """Lay out records and the window.

    Raises:
        Malformed: a header without the fields that tables need.
    """
    bench.fill("param", [predicate.window])
    for rng, packed in contents.records:
        bench.fill("record", (_record_row(rng, r, predicate.window) for r in packed))


def _record_row(rng: Range, record: PackedRecord, window: tuple[int, int]) -> tuple[Any, ...]:
    f = record.fields
    names = f.get("kind"), f.get("version"), f.get("source"), f.get("boot_id")
    try:
        event = number(f["event_time"]) if "event_time" in f else None
        received, source_seq = number(f.get("received_time")), number(f.get("source_seq"))
    except Malformed:
        raise Malformed(f"seq {record.seq}: the header is out of form") from None
    if tuple(map(type, names)) != (str, int, str, str):
        raise Malformed(f"seq {record.seq}: the header is out of form")
    at = received if event is None else event
    if max(at, received, source_seq) >= _I63:
        raise Malformed(f"seq {record.seq}: a time or number is out of range")
    inside = int(window[0] <= at < window[1])
    kind, version, source, boot = names
    return (
        rng.scope, record.seq, kind, version, event, received, source, boot, source_seq, inside,
        record.public, record.sensitive, int(record.sensitive is None),
    )  # fmt: skip


def table_members(bench: Workbench, scratch: Path) -> dict[str, bytes]:
    """CSV and Parquet of every table."""
    members = {}
    for table in TABLES:
        members[f"tables/{table}.csv"] = bench.csv(table)
        path = scratch / f"{table}.parquet"
        bench.write_parquet(table, path)
        members[f"tables/{table}.parquet"] = path.read_bytes()
        path.unlink()
    return members


def frozen_members() -> dict[str, bytes]:
    """Members that are this release's own, the same in every package: README, script and SQL."""
    own = {README: resource(README), SCRIPT: resource(SCRIPT)}
    return own | {f"sql/{name}.sql": sql_text(name).encode("ascii") for name in SQL_FILES}


def expected_members(predicate: Predicate, segments: Iterable[str]) -> set[str]:
    """Names of every member that a package of this form has, none optional."""
    names = {MANIFEST, ENVELOPE, CHECKPOINT, SIGNER, FIGURES, HTML, PDF, *frozen_members()}
    names |= {proofs_name(r.scope_id) for r in predicate.ranges}
    names |= {records_name(r.scope_id) for r in predicate.ranges}
    names |= {segment_name(s) for s in segments}
    return names | {f"tables/{t}.{e}" for t in TABLES for e in ("csv", "parquet")}


def manifest(members: Mapping[str, bytes | memoryview]) -> bytes:
    """The manifest over all members but itself and the envelope that signs it."""
    return canonical(
        {
            "v": 1,
            "members": [
                {"name": n, "size": u64(len(d)), "sha256": hashlib.sha256(d).hexdigest()}
                for n, d in sorted(members.items())
                if n not in (MANIFEST, ENVELOPE)
            ],
        }
    )


def statement(manifest_sha256: str, predicate: Predicate) -> bytes:
    """The in-toto statement: its one subject is the manifest."""
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": MANIFEST, "digest": {"sha256": manifest_sha256}}],
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate.encode(),
        }
    )
