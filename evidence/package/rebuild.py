"""Steps 11 to 17 of `verify`: everything that follows from the records is made again and compared.

What the records are is proved before (`verify.py`); nothing here asks a signature.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evidence.errors import PackageInvalid
from evidence.merkle import leaf_hash as row_hash
from evidence.merkle import root
from evidence.package import figures, html
from evidence.package.contents import (
    Contents,
    RunRef,
    expected_members,
    fill_records,
    frozen_members,
    method_counts,
    repeatable,
)
from evidence.package.decoding import Malformed
from evidence.package.members import Members, guard, lines
from evidence.package.model import ENVELOPE, FIGURES, HTML, PDF, Predicate, records_name, segment_name
from evidence.package.workbench import TABLES, Workbench


def segments(members: Members, contents: Contents, predicate: Predicate) -> dict[str, list[bytes]]:
    """11. Rows against committed roots; then no member is left that nothing accounts for."""
    out = {}
    for ref in contents.segments.values():
        name = segment_name(ref.segment_id)
        rows = list(lines(members, name, "11"))
        if len(rows) != ref.rows:
            raise PackageInvalid(
                "11", name, f"has {len(rows)} rows, record {ref.scope} {ref.seq} says {ref.rows}"
            )
        if root([row_hash(r) for r in rows]) != ref.root:
            raise PackageInvalid("11", name, f"rows do not give the root in record {ref.scope} {ref.seq}")
        out[ref.segment_id] = rows
    for name in sorted(set(members) ^ expected_members(predicate, contents.segments)):
        raise PackageInvalid("6", name, "is missing, or a package of this form has no such member")
    return out


def frozen(members: Members) -> None:
    """12. What is printed in the package is what runs here."""
    for name, data in sorted(frozen_members().items()):
        if members[name] != data:
            raise PackageInvalid("12", name, "differs from this release's; tables are not verified by it")


def tables(
    members: Members,
    predicate: Predicate,
    contents: Contents,
    segments: Mapping[str, Sequence[bytes]],
    notes: list[str],
) -> dict[str, Any]:
    """13. Attribution again. 14. Every table again. 15. Figures and page again.

    Raises:
        PackageInvalid: one of them is not what the records give.
        Unavailable: not enough memory here; that says nothing of the package.
    """
    import duckdb

    step, member = "14", records_name(predicate.ranges[0].scope_id)
    with tempfile.TemporaryDirectory(prefix="sluicegate-") as folder, Workbench(Path(folder)) as bench:
        try:
            fill_records(bench, predicate, contents)
            for ref in contents.segments.values():
                step, member = "11", segment_name(ref.segment_id)
                bench.load_segment(ref.segment_id, ref.schema, segments[ref.segment_id])
            bench.lay_out()
            for run in contents.runs:
                step, member = "13", segment_name(run.result)
                _attribution(bench, run, contents, notes)
            step, member = "14", "tables"
            counts = bench.build_tables()
        except duckdb.OutOfMemoryException:
            raise  # what fails here and not in the package; the workbench says so
        except (Malformed, duckdb.Error) as why:
            text = str(why) if isinstance(why, Malformed) else "values that no table can hold"
            raise PackageInvalid(step, member, text) from None
        for table in TABLES:
            _csv(members, bench, table)
            _parquet(
                members, bench, table, Path(folder), exact=predicate.tool.get("duckdb") == duckdb.__version__
            )
        if predicate.tool.get("duckdb") != duckdb.__version__:
            notes.append(
                "tables/*.parquet: made with another version of DuckDB, compared by content and not by their"
                " metadata and statistics: rely on the CSV copies"
            )
        value, encoded = _figures(bench, predicate, contents, counts)
    if members[FIGURES] != encoded:
        raise PackageInvalid("15", FIGURES, "differs from the figures computed again from the tables")
    if members[HTML] != html.render(value):
        raise PackageInvalid("15", HTML, "differs from the page rendered again from the figures")
    return value


def _figures(
    bench: Workbench, predicate: Predicate, contents: Contents, counts: dict[str, int]
) -> tuple[dict[str, Any], bytes]:
    """15. The figures, and their octets."""
    import duckdb

    def run() -> tuple[dict[str, Any], bytes]:
        value = figures.figures(bench, predicate, contents, counts)
        return value, figures.encode(value)

    try:
        return guard("15", FIGURES, run)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        raise PackageInvalid("15", FIGURES, "tables with values that no figure can hold") from None


def _attribution(bench: Workbench, run: RunRef, contents: Contents, notes: list[str]) -> None:
    """13. One run."""
    if not repeatable(run, contents):
        notes.append(
            f"attribution run at record {run.scope} {run.seq}: inputs of an earlier window, not repeated"
        )
        return
    again, committed = bench.attribute_as_committed(run.access, run.jobs, run.result)
    if again != committed:
        place = next((a[0] for a, c in zip(again, committed, strict=False) if a != c), "number of rows")
        raise PackageInvalid(
            "13",
            segment_name(run.result),
            "the committed result is not what the inputs give",
            record=f"access {place}",
        )
    if run.counts != method_counts(committed):
        raise PackageInvalid(
            "13", segment_name(run.result), f"record {run.seq} counts otherwise than its rows"
        )


def _csv(members: Members, bench: Workbench, table: str) -> None:
    """14. One table as CSV."""
    name = f"tables/{table}.csv"
    want, have = bench.csv(table), members[name]
    if have != want:
        lines = zip(want.split(b"\r\n"), bytes(have).split(b"\r\n"), strict=False)
        at = next((i for i, (a, b) in enumerate(lines, 1) if a != b), 0)
        raise PackageInvalid(
            "14", name, "differs from the table rebuilt from the records", record=f"line {at}"
        )


def _parquet(members: Members, bench: Workbench, table: str, folder: Path, *, exact: bool) -> None:
    """14. One table as Parquet: the same writer gives the same octets, so nothing in them is free.

    (Equal content is not enough there: changed statistics would make readers skip rows.)
    """
    name, path = f"tables/{table}.parquet", folder / "table.parquet"
    bench.write_parquet(table, path)
    same = path.read_bytes() == members[name]
    if not same and not exact:
        path.write_bytes(members[name])
        same = bench.same_parquet(table, path)
    path.unlink()
    if not same:
        raise PackageInvalid("14", name, "differs from the table rebuilt from the records")


def labels(predicate: Predicate, contents: Contents) -> None:
    """16. Labels are not milder than the records."""
    if contents.faults and not predicate.faults:
        raise PackageInvalid("16", ENVELOPE, "hides that faults were enabled, as a record in it says")
    if not predicate.provisional and predicate.made_ns < predicate.window[1] + predicate.lateness_ns:
        raise PackageInvalid("16", ENVELOPE, "was made before the end of its window, and is not provisional")


def rendering(members: Members, predicate: Predicate, value: dict[str, Any], notes: list[str]) -> None:
    """17. The PDF, where it can be rendered again."""
    label = "report.pdf: rendering, not verified"
    try:
        from evidence.package import pdf

        again = pdf.render(value) if version("reportlab") == predicate.tool.get("reportlab") else None
    except (ImportError, PackageNotFoundError):
        notes.append(f"{label} (install the extra 'report' to render it again)")
        return
    if again is None:
        notes.append(f"{label} (made with another version of its renderer)")
    elif members[PDF] != again:
        raise PackageInvalid("17", PDF, "differs from the report rendered again from the figures")
