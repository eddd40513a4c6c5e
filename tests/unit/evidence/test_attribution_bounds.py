"""The join is bounded by what was seen, not by how long runs last; where memory ends it says that and no more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from package_world import make, trust_of

from evidence import attribution
from evidence.attribution import BUCKET_US
from evidence.errors import SourceRefused, Unavailable
from evidence.limits import LIMITS
from evidence.package.verify import VERIFIED, verify
from evidence.package.workbench import Workbench, sql_text
from evidence.sources import slurm_sacct
from evidence.sources.base import Line, Unparsed
from evidence.sources.hostlist import expand
from evidence.sources.slurm_sacct import Sacct

YEAR_US = 365 * 24 * BUCKET_US


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench() as made:
        for name, schema in attribution.TABLES.items():
            columns = ", ".join(f"{c} {'VARCHAR' if k == 'string' else 'BIGINT'}" for c, k in schema.items())
            made.con.execute(f"CREATE OR REPLACE TEMP TABLE att_{name} ({columns})")
        yield made


def put(bench: Workbench, name: str, rows: list[tuple]) -> None:
    for row in rows:
        bench.con.execute(f"INSERT INTO att_{name} VALUES ({', '.join('?' * len(row))})", row)


def test_a_run_of_many_years_is_spread_over_the_hours_that_were_seen(bench: Workbench) -> None:
    put(bench, "access", [("x", YEAR_US, "a", None, 0), ("y", 20 * YEAR_US, "a", None, 0)])
    put(bench, "lease", [("a", "c/n1", 0, 99 * YEAR_US, 0)])
    put(bench, "job", [("long", f"c/n{n}", 1, 98 * YEAR_US) for n in range(9)])
    found = bench.attributed()
    assert ["long", "long"] == [row[3] for row in found]
    assert [("c/n1", BUCKET_US)] * 2 == bench.rows("SELECT node, stop_us - start_us FROM att_job")


@pytest.mark.parametrize("seed", range(8))
def test_what_is_cut_away_changes_no_result(bench: Workbench, seed: int) -> None:
    rng = random.Random(seed)

    def at() -> int:
        edge = rng.randrange(60) * BUCKET_US + rng.choice((-1, 0, 1))
        return max(0, rng.choice((edge, rng.randrange(60 * BUCKET_US))))

    addresses, nodes = ("a", "b", "c", None), ("n1", "n2", "n3")
    put(bench, "access", [(f"{i:02}", at(), rng.choice(addresses), None, 0) for i in range(60)])
    leases = [(rng.choice("abc"), rng.choice(nodes), at(), int(rng.random() < 0.1)) for _ in range(6)]
    put(bench, "lease", [(a, n, t, t + rng.randrange(1, 30 * BUCKET_US), s) for a, n, t, s in leases])
    jobs = [(f"j{rng.randrange(20)}", rng.choice(nodes), at()) for _ in range(40)]
    put(bench, "job", [(k, n, t, t + rng.choice((0, 1, rng.randrange(40 * BUCKET_US)))) for k, n, t in jobs])
    want = bench.rows(sql_text("attribution")), bench.rows(sql_text("candidates"))
    assert want == (bench.attributed(), bench.candidates())


def test_too_little_memory_says_nothing_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, connect = make(tmp_path), duckdb.connect
    memory = "3MB"

    def starved(*, config: dict[str, str | int]) -> duckdb.DuckDBPyConnection:
        bench = "temp_directory" in config  # and not what reads a stored segment
        return connect(config=config | ({"memory_limit": memory} if bench else {}))

    try:
        done = made.export()
        for memory in ("3MB", "6MB", "9MB"):  # noqa: B007 -- read by `starved`
            with monkeypatch.context() as small:
                small.setattr(duckdb, "connect", starved)
                for ask in (lambda: verify(done.path, trust_of(done)), lambda: made.export(name="other.zip")):
                    with pytest.raises(Unavailable, match="not enough memory") as why:
                        ask()
                    assert why.value.fix
        assert VERIFIED == verify(done.path, trust_of(done)).text
    finally:
        made.db.stop()


def test_the_nodes_that_a_listing_spells_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ("JobIDRaw", "Cluster", "State", "Submit", "Start", "End", "NodeList")
    listing = Sacct(columns=columns)
    line = Line(1, 0, b"7|c|RUNNING|10|20|Unknown|n[1-5]")
    monkeypatch.setattr(slurm_sacct, "LIMITS", replace(LIMITS, listing_hosts=10))
    assert [5, 5] == [listing.parse(line)["nodes"].count("n") for _ in range(2)]
    with pytest.raises(SourceRefused, match="more than 10 nodes"):
        listing.parse(line)


def test_a_host_name_is_no_longer_than_any_host_has() -> None:
    name = "n" * 252
    assert [f"{name}1"] == expand(f"{name}1") == expand(f"{name}[1]")
    for text in (f"{name}[10]", f"{name}[1-2]x", f"{'n' * 60_000}[1-9999]"):
        with pytest.raises(Unparsed, match="too long"):
            expand(text)
