"""The workbench is shut: no file outside its scratch folder, no extension, no setting that opens it again."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from evidence.package.workbench import Workbench


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    path = tmp_path / "outside.csv"
    path.write_text("a\n1\n")
    return path


@pytest.mark.parametrize("scratch", [True, False])
def test_it_reads_and_writes_no_file_outside_its_scratch_folder(outside: Path, scratch: bool) -> None:
    target = outside.with_name("new.csv")
    with Workbench(outside.parent / "scratch" if scratch else None) as bench:
        for sql in (
            f"SELECT * FROM read_csv('{outside}')",
            f"SELECT * FROM '{outside.parent}/scratch/../outside.csv'",
            f"COPY (SELECT 1) TO '{target}'",
            f"ATTACH '{outside.with_name('x.db')}'",
        ):
            with pytest.raises(duckdb.Error):
                bench.rows(sql)
    assert ["outside.csv", "scratch"] == sorted(p.name for p in outside.parent.iterdir())


def test_its_scratch_folder_is_open_to_it(outside: Path) -> None:
    with Workbench(outside.parent / "scratch") as bench:
        bench.write_parquet("param", path := outside.parent / "scratch" / "t.parquet")
        assert bench.same_parquet("param", path)


@pytest.mark.parametrize(
    "sql",
    [
        "SET enable_external_access = true", "SET lock_configuration = false", "SET allowed_directories = ['/']",
        "INSTALL httpfs", "LOAD httpfs", "SET temp_directory = '/tmp'",
    ],
)  # fmt: skip
def test_nothing_opens_it_again(sql: str) -> None:
    with Workbench() as bench, pytest.raises(duckdb.Error):
        bench.rows(sql)
