"""Stored segments that can't be read: changed on disk, or trouble of this machine, and the two told apart."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from evidence.errors import SourceRefused
from evidence.sources import segments
from evidence.sources.segments import Segment, SegmentWriter, read


@pytest.fixture
def stored(tmp_path: Path) -> Segment:
    writer = SegmentWriter(tmp_path, "5e9" * 10, "s3_access", "acme", "o" * 32)
    writer.add({"event_id": "e", "offset": "0", "time_ns": "5", "status": 200})
    return writer.finish()


def reading(folder: Path, s: Segment) -> str:
    """What a person is told who reads it."""
    with pytest.raises(SourceRefused) as why:
        list(read(folder, s.segment_id, s.schema, s.root, s.rows))
    assert why.value.fix
    return str(why.value)


@pytest.mark.parametrize(
    "trouble",
    [duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InternalException, MemoryError, OSError],
)
def test_trouble_of_the_machine_is_not_told_as_a_change(
    tmp_path: Path, stored: Segment, monkeypatch: pytest.MonkeyPatch, trouble: type[Exception]
) -> None:
    def fail() -> None:
        raise trouble("of the machine")

    monkeypatch.setattr(segments, "connect", fail)
    assert f"segment {stored.segment_id} could not be read here" in reading(tmp_path, stored)
    path = tmp_path / f"{stored.segment_id}.parquet"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"x")
    assert f"segment {stored.segment_id} was changed" in reading(tmp_path, stored)


@pytest.mark.parametrize("value", ["now()", "1.5::DOUBLE", "'ff'::BLOB", "[1]", "''", "7"])
def test_a_file_with_the_same_columns_and_other_values_is_told_by_name(
    tmp_path: Path, stored: Segment, value: str
) -> None:
    path = tmp_path / f"{stored.segment_id}.parquet"
    path.chmod(0o600)
    columns = ", ".join(f'{value} AS "{name}"' for name in segments.SCHEMAS[stored.schema])
    duckdb.connect().execute(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")
    assert f"segment {stored.segment_id} was changed" in reading(tmp_path, stored)
