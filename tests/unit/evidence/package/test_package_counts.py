"""Counts of a package: what page one must say of them, and who counts otherwise than the rows is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from package_checks import refused
from package_world import DAY, END, HOUR, LOGS, T0, World, make, small, tenants, trust_of

from evidence import attribution_run
from evidence.attribution_run import attribute
from evidence.errors import EvidenceError, NotCanonical, PackageInvalid, Unavailable
from evidence.package import figures
from evidence.package.attacks import unpack
from evidence.package.decoding import Malformed
from evidence.package.model import FIGURES
from evidence.package.trust import Trust
from evidence.package.verify import VERIFIED, verify, verify_octets
from evidence.sources.importer import Format, Identity, Imported, import_log, s3_format, sacct_format
from evidence.sources.slurm_sacct import Sacct

LINE = (LOGS / "s3-access.log").read_text().splitlines()[0]
HEADER = "JobIDRaw|Cluster|Account|State|Submit|Start|End|Restarts|NodeList"


def imported(world: World, fmt: Format, *lines: str) -> Imported:
    """A log of these lines; each goes by the same name."""
    path = world.folder / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return import_log(
        path, fmt, Identity("file:log"), folder=world.folder / "sources", inbox=world.inbox,
        now_ns=T0 + DAY,
    )  # fmt: skip


def told(folder: Path, fill: Callable[[World], object]) -> list[str]:
    """Findings of a package that verifies."""
    world = small(folder, [])
    try:
        fill(world)
        world.tick(END + 2 * HOUR)
        done = world.export(window=(T0, END + HOUR + 1))
        verdict = verify(done.path, trust_of(done))
    finally:
        world.db.stop()
    assert VERIFIED == verdict.text
    return list(verdict.figures["findings"])


def test_two_objects_of_one_name_are_counted_each(tmp_path: Path) -> None:
    def fill(world: World) -> None:
        for n in (2, 1):
            imported(world, s3_format(tenants()), LINE.replace("shards/", f"{n}/"), *["junk"] * n)

    line = "of file:log not understood and in quarantine: no statement covers what was there."
    findings = told(tmp_path, fill)
    assert {f"1 line {line}", f"2 lines {line}"} == {f for f in findings if "quarantine" in f}


def test_accesses_outside_the_window_are_told(tmp_path: Path) -> None:
    def fill(world: World) -> None:
        early = [LINE.replace("03/Mar", "02/Mar").replace(":05:01", f":05:0{n}") for n in range(3)]
        imported(world, s3_format(tenants()), LINE, *early)
        imported(world, s3_format(tenants()), early[0])  # delivered twice

    want = {
        "3 accesses outside the window by event time: listed, not counted.",
        "1 access: not-attributed.",
    }
    assert want == {f for f in told(tmp_path, fill) if "access" in f}


def test_runs_that_go_by_one_key_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's own build joins them; page one says so."""
    monkeypatch.setattr(attribution_run, "_check_runs", lambda _: None)

    def fill(world: World) -> None:
        jobs = [
            f"7|train-us|acme|COMPLETED|1740960000|{1740960000 + s}|{1740960000 + s + 9}|0|n1"
            for s in (9, 99)
        ]
        done = imported(world, sacct_format(tenants(), Sacct()), HEADER, *jobs)
        log = imported(world, s3_format(tenants()), LINE)
        segments = [*done.segments, *log.segments]
        attribute(world.folder / "sources", segments, [], inbox=world.inbox, now_ns=T0)

    assert "1 run listed with more than one start or end: taken as one." in told(tmp_path, fill)


def test_a_run_whose_record_counts_otherwise_than_its_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = attribution_run._draft

    def more(*args, **named):
        made = draft(*args, **named)
        counts = {**made.public["counts"], "direct": made.public["counts"]["direct"] + 1}
        return replace(made, public={**made.public, "counts": counts})

    monkeypatch.setattr(attribution_run, "_draft", more)
    made = make(tmp_path)
    try:
        done = made.export()
        refused(unpack(done.path.read_bytes()), trust_of(done), "13", "counts otherwise than its rows")
    finally:
        made.db.stop()


@pytest.mark.parametrize("name", ["figures", "encode"])
@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        (Malformed("odd"), PackageInvalid),
        (NotCanonical("odd"), PackageInvalid),
        (duckdb.ConversionException("odd"), PackageInvalid),
        (duckdb.OutOfMemoryException("odd"), Unavailable),
    ],
)
def test_figures_that_cannot_be_computed_are_named(
    octets: bytes, trust: Trust, monkeypatch: pytest.MonkeyPatch, name: str, trouble: Exception,
    outcome: type[EvidenceError],
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(figures, name, fail)
    with pytest.raises(outcome) as why:
        verify_octets(octets, trust)
    assert outcome is Unavailable or ("15", FIGURES) == (why.value.step, why.value.member)
