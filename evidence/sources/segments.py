"""Segments: rows of one source object for one scope, immutable in Parquet, committed by one root.

The leaf of a row is the RFC 6962 leaf over its canonical bytes (the row without absent fields), in order.
Columns are text or 64-bit integers, so the bytes come back from Parquet exactly; `read` rebuilds them and
refuses a file that no longer gives the committed root. A row is proved by its path to that root and the
path of the `log_segment` record that carries it (ledger.md section 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evidence.canonical import canonical
from evidence.durable import make_folder, publish
from evidence.errors import NotCanonical, SourceRefused
from evidence.merkle import Frontier, leaf_hash
from evidence.sources.base import Row

if TYPE_CHECKING:
    import duckdb

ROW_VERSION = "1"
_READ_ONLY = 0o400
_BATCH = 2048  # leaves hashed between two steps of the frontier


def _columns(names: str, *, integers: tuple[str, ...]) -> dict[str, str]:
    return {name: "BIGINT" if name in integers else "VARCHAR" for name in names.split()}


#: Columns per row kind, in the order of the Parquet file. `BIGINT` for small integers, else text: a value
#: of 64 bits is a decimal string in a row, and stays one.
SCHEMAS: dict[str, dict[str, str]] = {
    "s3_access": _columns(
        "event_id offset time_ns bucket_owner bucket remote_ip requester request_id operation key request_uri"
        " status error_code bytes_sent object_size total_time_ms turnaround_ms referer user_agent version_id"
        " host_id signature_version cipher auth_type host_header tls_version access_point_arn acl_required"
        " source_region extra job_by job_cluster job_id",
        integers=("status",),
    ),
    "slurm_sacct": _columns(
        "event_id offset cluster job_raw job_id submit_ns restart start_ns end_ns state nodes account user"
        " partition array_job array_task step",
        integers=("restart", "array_task"),
    ),
    "attribution": _columns(
        "access_id method reason job_key node lease_from_us lease_until_us lease_state direct_own"
        " interval_own direct_rivals interval_rivals agrees",
        integers=("direct_own", "interval_own", "direct_rivals", "interval_rivals", "agrees"),
    ),
}


#: Columns that every row has; what tables are ordered, counted and joined by.
REQUIRED: dict[str, frozenset[str]] = {
    "s3_access": frozenset({"event_id", "offset", "time_ns"}),
    "slurm_sacct": frozenset({"event_id", "offset", "cluster", "job_raw", "job_id", "submit_ns", "restart"}),
    "attribution": frozenset(
        {"access_id", "method", "lease_state", "direct_own", "interval_own", "direct_rivals"}
        | {"interval_rivals"}
    ),
}
#: Text columns that hold an unsigned number below 2^63, in decimal.
WIDE: dict[str, frozenset[str]] = {
    "s3_access": frozenset(
        {"offset", "time_ns", "bytes_sent", "object_size", "total_time_ms", "turnaround_ms"}
    ),
    "slurm_sacct": frozenset({"offset", "submit_ns", "start_ns", "end_ns"}),
    "attribution": frozenset({"lease_from_us", "lease_until_us"}),
}


@dataclass(frozen=True, slots=True)
class Segment:
    """What one segment is; written beside the Parquet file as JSON.

    Attributes:
        segment_id: 32 hex digits; derived from what it holds, so an import twice is seen.
        schema: key of `SCHEMAS`.
        scope: scope name.
        object_id: source object, or run, the rows come from.
        root: hex RFC 6962 root over the rows.
        rows: their number.
        min_ns: earliest event time, nanoseconds; None when no row has one.
        max_ns: latest.
        parquet_sha256: hex digest of the file.
    """

    segment_id: str
    schema: str
    scope: str
    object_id: str
    root: str
    rows: int
    min_ns: int | None
    max_ns: int | None
    parquet_sha256: str


def segment_id(*parts: str) -> str:
    """Derived id of a segment: what goes in decides it."""
    return hashlib.sha256(canonical(list(parts))).hexdigest()[:32]


class SegmentWriter:
    """Writes one segment; memory stays bounded, nothing is visible before `finish`."""

    def __init__(self, folder: Path, ident: str, schema: str, scope: str, object_id: str) -> None:
        self._folder, self._ident, self._schema = folder, ident, schema
        self._scope, self._object = scope, object_id
        make_folder(folder, 0o700)
        self._lines_path = folder / f".{ident}.ndjson"
        self._sweep()
        self._lines = self._lines_path.open("wb")
        self._frontier, self._pending = Frontier(), list[bytes]()
        self._min: int | None = None
        self._max: int | None = None
        self._columns, self._required = frozenset(SCHEMAS[schema]), REQUIRED[schema]

    def add(self, row: Row, begin_ns: int | None = None, end_ns: int | None = None) -> int:
        """Append a row; returns its index.

        Args:
            row: values of the schema's columns.
            begin_ns: event time, nanoseconds.
            end_ns: end of the event where it has one.
        """
        if not self._required <= row.keys() <= self._columns:
            raise SourceRefused("a parsed row has a column that the schema lacks, or lacks one that it needs")
        line = canonical(row)
        self._lines.write(line + b"\n")
        self._pending.append(leaf_hash(line))
        for at in (t for t in (begin_ns, end_ns) if t is not None):
            self._min = at if self._min is None else min(self._min, at)
            self._max = at if self._max is None else max(self._max, at)
        index = self._frontier.size + len(self._pending) - 1
        if len(self._pending) >= _BATCH:
            self._fold()
        return index

    def _fold(self) -> None:
        self._frontier = self._frontier.extend(self._pending)
        self._pending = []

    def finish(self) -> Segment:
        """Make the Parquet file and its description durable and read-only."""
        self._fold()
        self._lines.close()
        target = self._folder / f"{self._ident}.parquet"
        temporary = self._folder / f".{self._ident}.parquet"
        to_parquet(self._lines_path, temporary, SCHEMAS[self._schema])
        segment = Segment(
            self._ident,
            self._schema,
            self._scope,
            self._object,
            self._frontier.root().hex(),
            self._frontier.size,
            self._min,
            self._max,
            file_sha256(temporary),
        )
        publish(temporary, target, _READ_ONLY)
        description = self._folder / f".{self._ident}.json"
        description.write_bytes(orjson.dumps(asdict(segment), option=orjson.OPT_SORT_KEYS))
        publish(description, self._folder / f"{self._ident}.json", _READ_ONLY)
        self._lines_path.unlink()
        return segment

    def abandon(self) -> None:
        """Remove what was written so far."""
        self._lines.close()
        self._sweep()

    def _sweep(self) -> None:
        """Remove temporaries, also those of a run that was killed."""
        for name in (f".{self._ident}.ndjson", f".{self._ident}.parquet", f".{self._ident}.json"):
            (self._folder / name).unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def connect() -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with one thread, so that file order and bytes are the same each time."""
    import duckdb

    return duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": "false"})


def to_parquet(lines: Path, target: Path, columns: Mapping[str, str]) -> None:
    """Turn canonical NDJSON lines into Parquet, in order, absent values as NULL."""
    declared = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    with connect() as con:
        con.execute(
            f"COPY (SELECT * FROM read_json($1, format='newline_delimited', columns={{{declared}}}))"  # noqa: S608
            f" TO '{_quoted(target)}' (FORMAT parquet, COMPRESSION zstd)",
            [str(lines)],
        )


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def describe(folder: Path, ident: str) -> Segment:
    """Description of a stored segment.

    Raises:
        SourceRefused: there is none.
    """
    try:
        value: dict[str, Any] = orjson.loads((folder / f"{ident}.json").read_bytes())
        return Segment(**value)
    except (OSError, ValueError, TypeError):
        raise SourceRefused(f"segment {ident} is not stored here", fix="restore the sources folder") from None


def segments_of(folder: Path, object_id: str) -> list[Segment]:
    """Descriptions of all stored segments of an object, by scope."""
    found = [describe(folder, path.stem) for path in folder.glob("*.json") if not path.name.startswith(".")]
    return sorted((s for s in found if s.object_id == object_id), key=lambda s: s.scope)


def discard(folder: Path, object_id: str) -> None:
    """Remove the segments of an object that was never committed."""
    for segment in segments_of(folder, object_id):
        for ending in ("json", "parquet"):
            (folder / f"{segment.segment_id}.{ending}").unlink(missing_ok=True)


def read(folder: Path, ident: str, schema: str, root: str, rows: int) -> Iterator[bytes]:
    """Canonical lines of a stored segment, in order.

    Args:
        folder: where segments stand.
        ident: segment id.
        schema: key of `SCHEMAS`.
        root: hex root that the ledger committed.
        rows: number of rows that the ledger committed.

    Raises:
        SourceRefused: the file is missing, or no longer gives the committed root.
    """
    path = folder / f"{ident}.parquet"
    if not path.is_file():
        raise SourceRefused(f"segment {ident} is not stored here", fix="restore the sources folder")
    frontier = Frontier()
    for lines in _batches(path, ident, list(SCHEMAS[schema])):
        frontier = frontier.extend([leaf_hash(line) for line in lines])
        yield from lines
    if frontier.size != rows or frontier.root().hex() != root:
        raise _changed(ident, "its rows no longer give the committed root")


def _batches(path: Path, ident: str, names: list[str]) -> Iterator[list[bytes]]:
    import duckdb

    broken = (
        duckdb.InvalidInputException,
        duckdb.BinderException,
        duckdb.ConversionException,
        duckdb.OutOfRangeException,
        NotCanonical,
    )
    columns = ", ".join(f'"{name}"' for name in names)
    try:
        with connect() as con:
            cursor = con.execute(
                f"SELECT {columns} FROM read_parquet($1, file_row_number=true)"  # noqa: S608 -- constants
                " ORDER BY file_row_number",
                [str(path)],
            )
            while batch := cursor.fetchmany(_BATCH):
                yield [
                    canonical({k: v for k, v in zip(names, values, strict=True) if v is not None})
                    for values in batch
                ]
    except broken:  # no Parquet, cut off, or other columns or types; its text quotes the file
        raise _changed(ident, "it is no longer the file that was written") from None
    except (duckdb.Error, MemoryError, OSError) as why:
        if not _as_written(path, ident):
            raise _changed(ident, "it is no longer the file that was written") from None
        raise SourceRefused(
            f"segment {ident} could not be read here ({type(why).__name__}): nothing is said of its rows",
            fix="see that there is memory, and that the disk is sound, and try again",
        ) from None


def _as_written(path: Path, ident: str) -> bool:
    """Whether the file has the digest in its description; where that can't be told, it has."""
    try:
        return file_sha256(path) == describe(path.parent, ident).parquet_sha256
    except (OSError, SourceRefused):
        return True


def _changed(ident: str, what: str) -> SourceRefused:
    return SourceRefused(
        f"segment {ident} was changed: {what}",
        fix="restore the file from a backup, or import the source object again and compare",
    )
