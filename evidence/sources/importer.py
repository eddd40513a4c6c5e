"""Import of one log: parse, quarantine, split by scope, commit by segment.

Decides what is committed: per scope one `log_segment` record over its rows, and one `source_object`
record that says what the object was and what became of each line. The estate's copy has the counts of the
whole object; a tenant's has its own rows, and the quarantined lines of the object, which limit what anyone
can state. An object imported before, by the same parser, is refused: its rows would count twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evidence.canonical import u64
from evidence.errors import SourceRefused
from evidence.records import Draft
from evidence.scope import ESTATE
from evidence.sources import s3_access, slurm_sacct
from evidence.sources.base import (
    Counts,
    FileQuarantine,
    Info,
    Line,
    LineReader,
    MemoryQuarantine,
    Quarantine,
    Row,
    Unparsed,
)
from evidence.sources.segments import ROW_VERSION, Segment, SegmentWriter, file_sha256, segment_id
from evidence.sources.tenancy import TenantMap, scopes_of_access, scopes_of_job

Commit = Callable[[Sequence[Draft]], None]
SOURCE = "import"


@dataclass(frozen=True, slots=True)
class Identity:
    """What is known of the source object besides its octets."""

    uri: str
    version_id: str | None = None
    etag: str | None = None
    fetched_at_ns: int | None = None
    fetched_by: str | None = None
    end_of_source: bool = True


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of one import."""

    object_id: str
    info: Info
    counts: Counts
    segments: tuple[Segment, ...]


@dataclass(slots=True)
class Format:
    """One way to read a file: how a line becomes a row, and where the row goes."""

    info: Info
    parse: Callable[[Line], Row]
    scopes: Callable[[Row], list[str]]
    times: Callable[[Row], tuple[int | None, int | None]]
    header: Callable[[Line], None] | None = None
    seen: set[bytes] = field(default_factory=set)


def s3_format(tenants: TenantMap) -> Format:
    """S3 server access log."""

    def times(row: Row) -> tuple[int, None]:
        return int(row["time_ns"]), None

    return Format(s3_access.INFO, s3_access.parse, lambda row: scopes_of_access(row, tenants), times)


def sacct_format(tenants: TenantMap, sacct: slurm_sacct.Sacct) -> Format:
    """Slurm listing; its first line is the header unless the columns were given."""

    def times(row: Row) -> tuple[int | None, int | None]:
        begin, end = row.get("start_ns", row["submit_ns"]), row.get("end_ns")
        return int(begin), None if end is None else int(end)

    header = sacct.header if sacct.columns is None else None
    return Format(slurm_sacct.INFO, sacct.parse, lambda row: scopes_of_job(row, tenants), times, header)


def import_log(
    path: Path, fmt: Format, identity: Identity, *, folder: Path, commit: Commit, now_ns: int
) -> Imported:
    """Import one file.

    Args:
        path: the object as fetched, uncompressed.
        fmt: from `s3_format` or `sacct_format`; used for this file only.
        identity: what is known of the object.
        folder: the sources folder; `segments/` and `quarantine/` are made in it.
        commit: writes drafts in one transaction (to the outbox).
        now_ns: time of import.

    Raises:
        SourceRefused: nothing was committed, and nothing is left behind.
    """
    info = fmt.info
    digest = file_sha256(path)
    object_id = segment_id("object", info.name, info.version, digest)
    store = folder / "segments"
    if (folder / "objects" / object_id).exists():
        raise SourceRefused(
            "this object was imported before", fix="nothing to do; see its source_object record"
        )
    quarantine = FileQuarantine(folder / "quarantine" / f"{object_id}.ndjson")
    writers: dict[str, SegmentWriter] = {}

    def writer(scope: str) -> SegmentWriter:
        if scope not in writers:
            ident = segment_id("segment", object_id, scope)
            writers[scope] = SegmentWriter(store, ident, info.name, scope, object_id)
        return writers[scope]

    try:
        counts, octets = _read_whole(path, fmt, writer, quarantine, digest)
        segments = tuple(writers[s].finish() for s in sorted(writers))
    except BaseException:
        for one in writers.values():
            one.abandon()
        raise
    finally:
        quarantine.close()
    result = Imported(object_id, info, counts, segments)
    commit(_drafts(result, identity, digest, octets, now_ns))
    _mark(folder, object_id)
    return result


def _read_whole(
    path: Path,
    fmt: Format,
    writer: Callable[[str], SegmentWriter],
    quarantine: Quarantine,
    digest: str,
) -> tuple[Counts, int]:
    with path.open("rb") as stream:
        reader = LineReader(stream)
        counts = _read(reader, fmt, writer, quarantine)
    if reader.sha256 != digest or not counts.adds_up():
        raise SourceRefused("the object changed while it was read", fix="import a file at rest")
    return counts, reader.size


def _read(
    reader: LineReader, fmt: Format, writer: Callable[[str], SegmentWriter], quarantine: Quarantine
) -> Counts:
    counts = Counts()
    header = fmt.header
    for line in reader:
        counts.lines += 1
        if not line.raw.strip():
            counts.blank += 1
            continue
        try:
            if header is not None:
                header(line)
                header = None
                counts.header += 1
                continue
            row = fmt.parse(line)
        except Unparsed as why:
            counts.quarantine(str(why))
            quarantine.keep(line, str(why))
            continue
        ident = bytes.fromhex(str(row["event_id"]))
        if ident in fmt.seen:
            counts.duplicates += 1
            continue
        fmt.seen.add(ident)
        counts.rows += 1
        for scope in fmt.scopes(row):
            writer(scope).add(row, *fmt.times(row))
    return counts


def parse_all(path: Path, fmt: Format) -> tuple[list[Row], MemoryQuarantine, Counts]:
    """Read a small file wholly, committing nothing: for `show` and tests."""
    rows, quarantine, counts = list[Row](), MemoryQuarantine(), Counts()

    class _Keep(SegmentWriter):
        def __init__(self) -> None:
            pass

        def add(self, row: Row, begin_ns: int | None = None, end_ns: int | None = None) -> int:
            del begin_ns, end_ns
            if not rows or rows[-1] is not row:
                rows.append(row)
            return len(rows) - 1

    keep = _Keep()
    with path.open("rb") as stream:
        counts = _read(LineReader(stream), fmt, lambda _scope: keep, quarantine)
    return rows, quarantine, counts


def _mark(folder: Path, object_id: str) -> None:
    (folder / "objects").mkdir(exist_ok=True, mode=0o700)
    (folder / "objects" / object_id).touch(mode=0o400)


def _drafts(result: Imported, identity: Identity, digest: str, octets: int, now_ns: int) -> list[Draft]:
    info, counts = result.info, result.counts
    own = {s.scope: s for s in result.segments}
    drafts = []
    for scope in sorted({ESTATE, *own}):
        public: dict[str, object] = {
            "object_id": result.object_id,
            "source_name": info.name,
            "source_class": info.source_class,
            "time_means": info.time_means,
            "resolution_ns": u64(info.resolution_ns),
            "parser": info.name,
            "parser_digest": parser_digest(info),
            "uri": identity.uri,
            "version_id": identity.version_id,
            "etag": identity.etag,
            "sha256_stored": digest,
            "octets": u64(octets),
            "fetched_at": None if identity.fetched_at_ns is None else u64(identity.fetched_at_ns),
            "end_of_source": identity.end_of_source,
            "rows": own[scope].rows if scope in own else 0,
            "quarantined": counts.quarantined,
        }
        if scope == ESTATE:
            public |= {"lines": counts.lines, "rows": counts.rows, "duplicates": counts.duplicates}
        sensitive = {} if identity.fetched_by is None else {"fetched_by": identity.fetched_by}
        drafts.append(Draft("source_object", scope, SOURCE, now_ns, public, sensitive))
    return drafts + [_segment_draft(s, info, now_ns) for s in result.segments]


def _segment_draft(segment: Segment, info: Info, now_ns: int) -> Draft:
    public = {
        "segment_id": segment.segment_id,
        "object_id": segment.object_id,
        "source_name": info.name,
        "source_class": info.source_class,
        "root": segment.root,
        "rows": segment.rows,
        "min_event_time": None if segment.min_ns is None else u64(segment.min_ns),
        "max_event_time": None if segment.max_ns is None else u64(segment.max_ns),
        "parser": info.name,
        "parser_version": info.version,
        "row_version": ROW_VERSION,
        "parquet_sha256": segment.parquet_sha256,
    }
    return Draft("log_segment", segment.scope, SOURCE, segment.max_ns or now_ns, public)


def parser_digest(info: Info) -> str:
    """Hex SHA-256 of the parser's source text, so that a record says which code read the lines."""
    module = {"s3_access": s3_access, "slurm_sacct": slurm_sacct}[info.name]
    return file_sha256(Path(str(module.__file__)))
