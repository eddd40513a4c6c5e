"""Import of one log: parse, quarantine, split by scope, commit by segment.

Decides what is committed: per scope one `log_segment` record over its rows, and one `source_object`
record that says what the object was and what became of each line. The estate's copy has the counts of the
whole object; a tenant's has its own rows, and the quarantined lines of the object, which limit what anyone
can state. An object imported before, by the same parser, is not imported again: its rows would count twice.
That it was is committed in the transaction of its records, so a crash at any point repeats nothing.
For the same reason an object in which nothing can be read is refused: a wrong file would stand for ever.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.canonical import u64
from evidence.durable import make_folder
from evidence.errors import SourceRefused, SourceUnreadable
from evidence.records import Draft
from evidence.scope import ESTATE
from evidence.sources import s3_access, slurm_sacct
from evidence.sources.base import (
    Counts,
    FileQuarantine,
    Info,
    Line,
    LineReader,
    Quarantine,
    Row,
    Unparsed,
)
from evidence.sources.segments import (
    ROW_VERSION,
    Segment,
    SegmentWriter,
    discard,
    file_sha256,
    segment_id,
    segments_of,
)
from evidence.sources.tenancy import TenantMap, scopes_of_access, scopes_of_job

if TYPE_CHECKING:
    from evidence.outbox import Inbox

SOURCE = "import"
_DAY_NS = 86_400_000_000_000


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
    """Result of one import; `fresh` is false, and nothing is counted, where it was imported before."""

    object_id: str
    info: Info
    counts: Counts
    segments: tuple[Segment, ...]
    fresh: bool = True


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
    path: Path, fmt: Format, identity: Identity, *, folder: Path, inbox: Inbox, now_ns: int
) -> Imported:
    """Import one file, once.

    Args:
        path: the object as fetched, uncompressed.
        fmt: from `s3_format` or `sacct_format`; used for this file only.
        identity: what is known of the object.
        folder: the sources folder; `segments/` and `quarantine/` are made in it.
        inbox: commits drafts in one transaction, once.
        now_ns: time of import; lines more than a day later go to quarantine.

    Raises:
        SourceUnreadable: nothing in it can be read as this format.
        SourceRefused: for another reason; in both cases nothing was committed, and nothing is left behind.
    """
    info = fmt.info
    digest = file_sha256(path)
    object_id = segment_id("object", info.name, info.version, digest)
    with _alone(folder):
        if inbox.has(object_id):
            return Imported(
                object_id, info, Counts(), tuple(segments_of(folder / "segments", object_id)), False
            )
        result, octets = _read_object(path, fmt, folder, object_id, digest=digest, now_ns=now_ns)
        inbox.commit(_drafts(result, identity, digest, octets, now_ns), object_id)
    return result


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One import at a time per sources folder: two would write into each other's files."""
    make_folder(folder, 0o700)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SourceRefused("another import is at work here", fix="wait until it has ended") from None
    finally:
        os.close(fd)


def _read_object(
    path: Path, fmt: Format, folder: Path, object_id: str, *, digest: str, now_ns: int
) -> tuple[Imported, int]:
    """Read a file into finished segments; returns them with the number of octets."""
    info, store = fmt.info, folder / "segments"
    discard(store, object_id)  # what a killed import finished and never committed
    quarantine = FileQuarantine(folder / "quarantine" / f"{object_id}.ndjson")
    writers: dict[str, SegmentWriter] = {}

    def writer(scope: str) -> SegmentWriter:
        if scope not in writers:
            ident = segment_id("segment", object_id, scope)
            writers[scope] = SegmentWriter(store, ident, info.name, scope, object_id)
        return writers[scope]

    try:
        counts, octets = _read_whole(path, fmt, writer, quarantine, digest=digest, now_ns=now_ns)
        segments = tuple(writers[s].finish() for s in sorted(writers))
    except BaseException:
        for one in writers.values():
            one.abandon()
        quarantine.discard()
        raise
    finally:
        quarantine.close()
    return Imported(object_id, info, counts, segments), octets


def _read_whole(
    path: Path,
    fmt: Format,
    writer: Callable[[str], SegmentWriter],
    quarantine: Quarantine,
    *,
    digest: str,
    now_ns: int,
) -> tuple[Counts, int]:
    with path.open("rb") as stream:
        reader = LineReader(stream)
        counts = _read(reader, fmt, writer, quarantine, now_ns + _DAY_NS)
    if reader.sha256 != digest or not counts.adds_up():
        raise SourceRefused("the object changed while it was read", fix="import a file at rest")
    _check_readable(path.name, fmt.info, counts)
    return counts, reader.size


def _check_readable(name: str, info: Info, counts: Counts) -> None:
    """A listing of a header alone says that there were no jobs; anything else without a row says nothing."""
    if counts.rows or (counts.header and not counts.quarantined):
        return
    reasons = "; ".join(f"{n}: {why}" for why, n in sorted(counts.reasons.items())) or "it is empty"
    raise SourceUnreadable(
        f"{name}: none of {counts.lines} lines can be read as {info.name} ({reasons})",
        fix="nothing of it was written; give the right file, whole and uncompressed, to the right option",
    )


def _read(
    reader: LineReader,
    fmt: Format,
    writer: Callable[[str], SegmentWriter],
    quarantine: Quarantine,
    latest_ns: int,
) -> Counts:
    counts = Counts()
    header = fmt.header
    for line in reader:
        counts.lines += 1
        if line.whole and not line.raw.strip():
            counts.blank += 1
            continue
        try:
            if header is not None:
                header(line)
                header = None
                counts.header += 1
                continue
            row = fmt.parse(line)
            _not_later(fmt.times(row)[0], latest_ns)
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


def _not_later(at_ns: int | None, latest_ns: int) -> None:
    """A time in the future would stretch every join up to it."""
    if at_ns is not None and at_ns > latest_ns:
        raise Unparsed("time lies in the future")


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
