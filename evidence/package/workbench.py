"""The workbench: an embedded DuckDB in which rows and records are laid out and every table is built.

The same frozen SQL runs when a log is joined, when a package is made and when it is verified. The database
is in memory, has one thread, no network, no extensions, and no files but those under `scratch`, if given;
its configuration is locked. It never runs SQL that came with a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evidence.attribution import BUCKET_US, GRACE_NS
from evidence.canonical import decode_canonical, parse_u64
from evidence.errors import NotCanonical, Unavailable
from evidence.package.decoding import Malformed
from evidence.sources.segments import REQUIRED, SCHEMAS, WIDE

SQL_FILES = (
    "accesses", "attribution", "candidates", "committed", "decisions", "gate", "inputs", "jobs", "links",
    "methods", "records", "rotations", "rows", "sources",
)  # fmt: skip
#: Report tables in the order in which they are built: later ones may read earlier ones.
TABLES = ("records", "decisions", "links", "rotations", "gate", "sources", "jobs", "accesses", "methods")
_BATCH = 20_000
_COLUMNS = {
    "record": "scope VARCHAR, seq BIGINT, kind VARCHAR, version BIGINT, event_ns BIGINT,"
    " received_ns BIGINT, source VARCHAR, boot_id VARCHAR, source_seq BIGINT, in_window BIGINT,"
    " public VARCHAR, sensitive VARCHAR,"
    " withheld BIGINT",
    "segment": "segment_id VARCHAR, schema VARCHAR",
    "segment_line": "segment_id VARCHAR, row BIGINT, line VARCHAR",
    "param": "from_ns BIGINT, to_ns BIGINT",
    "run_part": "role VARCHAR, segment_id VARCHAR",
    "run_grace": "grace_us BIGINT",
    "att_lease": "address VARCHAR, node VARCHAR, from_us BIGINT, until_us BIGINT, shared BIGINT",
    "att_rival": "access_id VARCHAR, direct_rivals BIGINT, interval_rivals BIGINT",
}


#: Keys of runs that rows give more than one start or end: rows of several runs, or one that was corrected.
DOUBLE_RUNS = (
    "SELECT job_key FROM job_row WHERE step IS NULL GROUP BY job_key"
    " HAVING count(DISTINCT start_ns) > 1 OR count(DISTINCT end_ns) > 1 ORDER BY job_key"
)
#: Cuts each run on a node to the hours in which an address of that node was seen: what the join spreads over
#: hours is then bounded by the accesses, not by how long a run lasted or on how many nodes. No pair of an
#: access and a run is lost or gained, so a result is the same with it or without.
_NARROW = f"""
CREATE OR REPLACE TEMP TABLE att_job AS
WITH seen AS (
  SELECT DISTINCT l.node, a.time_us // {BUCKET_US} AS bucket
  FROM att_access AS a JOIN att_lease AS l
    ON a.address = l.address AND a.time_us >= l.from_us AND a.time_us < l.until_us
), placed AS (
  SELECT node, bucket, row_number() OVER (PARTITION BY node ORDER BY bucket) AS place FROM seen
), spans AS (
  SELECT j.*, f.place AS first, t.place AS last
  FROM (SELECT * FROM att_job WHERE stop_us > start_us) AS j
  ASOF JOIN placed AS f ON j.node = f.node AND j.start_us // {BUCKET_US} <= f.bucket
  ASOF JOIN placed AS t ON j.node = t.node AND (j.stop_us - 1) // {BUCKET_US} >= t.bucket
), cut AS (
  SELECT job_key, node, start_us, stop_us, unnest(range(first, last + 1)) AS place FROM spans
)
SELECT c.job_key, c.node, greatest(c.start_us, p.bucket * {BUCKET_US}) AS start_us,
  least(c.stop_us, (p.bucket + 1) * {BUCKET_US}) AS stop_us
FROM cut AS c JOIN placed AS p ON p.node = c.node AND p.place = c.place
"""  # noqa: S608 -- own numbers


#: What a spreadsheet may take for a formula, also behind blanks and in full width; or our own apostrophe.
_FORMULA = re.compile("[\\s\x00\ufeff\u200b]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n\x00']")


def sql_text(name: str) -> str:
    """Frozen SQL of this report version."""
    return files("evidence").joinpath("package", "sql", "v1", f"{name}.sql").read_text("ascii")


class Workbench:
    """Use as a context manager; where memory ran out inside, it raises `Unavailable`."""

    def __init__(self, scratch: Path | None = None) -> None:
        import duckdb

        self.con = duckdb.connect(
            config={
                "threads": 1,
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "allow_community_extensions": "false",
                "temp_directory": "",  # nothing spills beside the caller's files
            }
        )
        if scratch is not None:
            self.con.execute("SET allowed_directories = $1", [[str(scratch)]])
        self.con.execute("SET TimeZone = 'UTC'")
        self.con.execute("SET enable_external_access = false")
        self.con.execute("SET lock_configuration = true")
        for name, columns in _COLUMNS.items():
            self.con.execute(f"CREATE TEMP TABLE {name} ({columns})")
        self.lay_out()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        import duckdb

        self.con.close()
        if isinstance(value, duckdb.OutOfMemoryException | duckdb.IOException | MemoryError):
            raise Unavailable(
                "not enough memory or scratch space here: nothing is said of what was asked",
                fix="ask again where there is more of both, or for a shorter time",
            ) from None

    def script(self, name: str) -> None:
        """Run a frozen script."""
        self.con.execute(sql_text(name))

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query of our own."""
        return self.con.execute(sql, list(values)).fetchall()

    def fill(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Append rows to one of the input tables, column-wise: far faster than row by row."""
        kinds = [c.split()[1] for c in _COLUMNS[table].split(", ")]
        select = ", ".join(f"unnest(${i}::{kind}[])" for i, kind in enumerate(kinds, 1))
        batch: list[Sequence[Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) >= _BATCH:
                self._flush(table, select, batch)
                batch = []
        self._flush(table, select, batch)

    def _flush(self, table: str, select: str, batch: list[Sequence[Any]]) -> None:
        if batch:
            columns = [list(column) for column in zip(*batch, strict=True)]
            self.con.execute(f"INSERT INTO {table} SELECT {select}", columns)

    def clear(self, *tables: str) -> None:
        """Empty input tables."""
        for table in tables:
            self.con.execute(f"DELETE FROM {table}")  # noqa: S608 -- own names

    def load_segment(self, segment_id: str, schema: str, lines: Iterable[bytes]) -> None:
        """Lay out the rows of a segment.

        Raises:
            Malformed: a line that is no row of this schema.
        """
        self.fill("segment", [(segment_id, schema)])
        self.fill(
            "segment_line", ((segment_id, i, check_row(line, schema, i)) for i, line in enumerate(lines))
        )

    def lay_out(self) -> None:
        """Parse the rows of all loaded segments, once: call it after the last `load_segment`."""
        self.script("rows")

    def attribute(self, access: Iterable[str], jobs: Iterable[str]) -> None:
        """Prepare the inputs of one attribution run over segments (leases and rivals are filled apart)."""
        self.clear("run_part", "run_grace")
        self.fill("run_part", [*(("access", s) for s in access), *(("job", s) for s in jobs)])
        self.fill("run_grace", [(GRACE_NS // 1000,)])
        self.script("inputs")

    def attribute_as_committed(
        self, access: Iterable[str], jobs: Iterable[str], result: str
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Run a committed attribution again.

        Returns:
            Rows as recomputed and rows as committed, both in order of access.
        """
        self.attribute(access, jobs)
        self.fill("run_part", [("result", result)])
        self.script("committed")
        committed = self.rows("SELECT * EXCLUDE (segment_id, row) FROM att_result ORDER BY access_id")
        return self.attributed(), committed

    def attributed(self) -> list[tuple[Any, ...]]:
        """The result of the run that was prepared, in order of access."""
        return self._laid("attribution")

    def candidates(self) -> list[tuple[Any, ...]]:
        """Every (access, run) pair that fits, of the run that was prepared."""
        return self._laid("candidates")

    def _laid(self, name: str) -> list[tuple[Any, ...]]:
        self.con.execute(_NARROW)  # only now: leases may be filled after the rest was prepared
        return self.rows(sql_text(name))

    def build_tables(self) -> dict[str, int]:
        """Build every report table from records and rows; returns the number of rows of each."""
        counts = {}
        for name in TABLES:
            self.con.execute(f"CREATE TEMP TABLE {name} AS {sql_text(name)}")
            counts[name] = int(self.rows(f"SELECT count(*) FROM {name}")[0][0])  # noqa: S608 -- own names
        return counts

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Names and types of a report table."""
        described = self.rows(f"SELECT column_name, column_type FROM (DESCRIBE {table})")  # noqa: S608
        return [(str(name), str(kind)) for name, kind in described]

    def csv(self, table: str) -> bytes:
        """A report table as CSV (RFC 4180): a header, CRLF, NULL as nothing, all text quoted.

        Text that a spreadsheet would take for a formula gets one leading apostrophe, as does text that
        begins with one; take one away to have the value. The Parquet copy has values as they are.
        """
        names = [name for name, _ in self.columns(table)]
        out = [",".join(names)]
        cursor = self.con.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608 -- own names
        while batch := cursor.fetchmany(_BATCH):
            out += [",".join(map(_cell, row)) for row in batch]
        return ("\r\n".join(out) + "\r\n").encode()

    def write_parquet(self, table: str, path: Path) -> None:
        """A report table as Parquet under the scratch folder."""
        target = str(path).replace("'", "''")
        self.con.execute(
            f"COPY (SELECT * FROM {table} ORDER BY rowid) TO '{target}' (FORMAT parquet)"  # noqa: S608
        )

    def same_parquet(self, table: str, path: Path) -> bool:
        """Whether a Parquet file under the scratch folder holds exactly this table, in order."""
        import duckdb

        want = f"SELECT rowid AS place, * FROM {table}"  # noqa: S608 -- own names
        have = (
            "SELECT file_row_number AS place, * EXCLUDE (file_row_number)"
            " FROM read_parquet($1, file_row_number=true)"
        )
        try:
            described = self.rows(f"SELECT column_name, column_type FROM (DESCRIBE {have})", [str(path)])  # noqa: S608
            if [(str(n), str(k)) for n, k in described[1:]] != self.columns(table):
                return False
            differ = f"SELECT count(*) FROM (({want} EXCEPT ALL {have}) UNION ALL ({have} EXCEPT ALL {want}))"  # noqa: S608
            return bool(self.rows(differ, [str(path)])[0][0] == 0)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            return False


def check_row(line: bytes, schema: str, index: int) -> str:
    """The line as text, when it is a canonical row of the schema.

    Raises:
        Malformed: anything else.
    """
    columns = SCHEMAS[schema]
    try:
        row = decode_canonical(line)
    except NotCanonical:
        raise Malformed(f"row {index} is not canonical") from None
    if type(row) is not dict or not REQUIRED[schema] <= row.keys() <= columns.keys():
        raise Malformed(f"row {index} has other columns")
    for name, value in row.items():
        kind = int if columns[name] == "BIGINT" else str
        if type(value) is not kind:
            raise Malformed(f"row {index}: {name} has another type")
        if name in WIDE[schema] and not _is_number(value):
            raise Malformed(f"row {index}: {name} is no number in decimal below 2^63")
    return line.decode()


def _is_number(value: object) -> bool:
    try:
        return parse_u64(value) < 1 << 63
    except NotCanonical:
        return False


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _FORMULA.match(text):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"'
