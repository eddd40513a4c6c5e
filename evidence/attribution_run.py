"""One attribution run over imported segments, committed scope by scope.

Decides what a scope is told of a run: its own accesses, its own jobs by key, and of runs of others only how
many fit as well (`*_rivals`), which is what keeps "unique" honest on shared nodes. All scopes are joined
first; then each scope's result is computed from exactly what its package will hold, so that `verify` can do
it again.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence import attribution
from evidence.canonical import u64
from evidence.errors import PutBefore, SourceRefused
from evidence.package.workbench import DOUBLE_RUNS, Workbench, sql_text
from evidence.records import Draft
from evidence.sources.segments import Segment, SegmentWriter, read, segment_id

if TYPE_CHECKING:
    from evidence.outbox import Inbox

SOURCE = "attribution"
_LEASE_COLUMNS = ["address", "from", "node", "shared", "to"]
_SHARED = {"": False, "no": False, "yes": True}
_FAR_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Lease:
    """An address was a node's (`cluster/node`) during [from, until), microseconds; or shared by many."""

    address: str
    node: str
    from_us: int
    until_us: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run found for one scope."""

    scope: str
    segment: Segment
    counts: dict[str, int]


def read_leases(data: bytes) -> list[Lease]:
    """Read `address,node,from,to,shared` as CSV; times RFC 3339 with a zone, an empty `to` is open.

    Raises:
        SourceRefused: names the line.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise SourceRefused("the lease list is no text in UTF-8") from None
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        return _leases(reader)
    except (csv.Error, TypeError, ValueError, OverflowError):
        raise SourceRefused(
            f"line {max(reader.reader.line_num, 1)} of the lease list is out of form",
            fix="write CSV under address,node,from,to,shared, no field left out: node as cluster/name,"
            " times as 2025-03-03T00:00:00Z, shared as yes, no or nothing",
        ) from None


def _leases(reader: csv.DictReader[str]) -> list[Lease]:
    if sorted(reader.fieldnames or ()) != _LEASE_COLUMNS:
        raise ValueError
    return [_lease(row) for row in reader]


def _lease(row: dict[str | Any, str | Any]) -> Lease:
    """One line; what stands past the last column is under the key None, a field left out is None."""
    if None in row or None in row.values():
        raise ValueError
    address, shared = row["address"], _SHARED.get(row["shared"])
    if shared is None or not (shared or "/" in row["node"]) or address != address.strip():
        raise ValueError
    until = _us(row["to"]) if row["to"] else _FAR_US
    begin = _us(row["from"])
    if not address or not 0 <= begin < until:
        raise ValueError
    return Lease(address, row["node"], begin, until, shared)


def _us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return (at - datetime.fromisoformat("1970-01-01T00:00:00+00:00")) // timedelta(microseconds=1)


def attribute(
    folder: Path,
    segments: Sequence[Segment],
    leases: Sequence[Lease],
    *,
    inbox: Inbox,
    now_ns: int,
    leases_sha256: str | None = None,
) -> list[RunResult]:
    """Join accesses to jobs and commit the result for every scope that has accesses.

    Args:
        folder: the sources folder.
        segments: access and job segments to join, of all scopes.
        leases: address to node.
        inbox: commits drafts in one transaction, once.
        now_ns: time of the run.
        leases_sha256: digest of the lease list as given.

    Raises:
        SourceRefused: a segment is missing or changed, or two runs go by one key; nothing was committed.
        Unavailable: not enough memory; nothing was committed.
        PutBefore: this very run was committed before.
    """
    access = [s for s in segments if s.schema == "s3_access"]
    jobs = [s for s in segments if s.schema == "slurm_sacct"]
    inputs = sorted({s.segment_id for s in (*access, *jobs)})
    work = segment_id("attribution", *inputs, _digest(leases))  # the same inputs are the same run
    if inbox.has(work):
        raise PutBefore("these accesses were laid to these jobs before", fix="nothing to do")
    with Workbench() as bench:
        for s in (*access, *jobs):
            bench.load_segment(
                s.segment_id, s.schema, read(folder / "segments", s.segment_id, s.schema, s.root, s.rows)
            )
        bench.lay_out()
        _check_runs(bench)
        bench.fill("att_lease", [(x.address, x.node, x.from_us, x.until_us, int(x.shared)) for x in leases])
        rivals = _rivals(bench, access, jobs)
        results = [
            _one_scope(bench, scope, access, jobs, rivals=rivals, folder=folder, work=work)
            for scope in sorted({s.scope for s in access})
        ]
    inbox.commit(
        [_draft(r, access, jobs, now_ns=now_ns, leases_sha256=leases_sha256) for r in results],
        work,
    )
    return results


def _check_runs(bench: Workbench) -> None:
    """Two runs that go by one key would be joined as one, which holds accesses of neither.

    It happens where listings lack the column Restarts: runs are then numbered in each by their order.
    """
    runs = bench.rows(DOUBLE_RUNS)
    if runs:
        raise SourceRefused(
            f"run {runs[0][0]} is listed with more than one start or end"
            + (f", and {len(runs) - 1} more are" if len(runs) > 1 else "")
            + ": accesses can't be laid to it",
            fix="list all runs of a job in one listing, best with the column Restarts, and import that",
        )


def _digest(leases: Sequence[Lease]) -> str:
    return hashlib.sha256(repr(sorted(map(astuple, leases))).encode()).hexdigest()


def _rivals(
    bench: Workbench, access: Sequence[Segment], jobs: Sequence[Segment]
) -> dict[str, dict[str, list[int]]]:
    """Per scope and access: how many runs of other scopes fit (direct, interval)."""
    bench.attribute([s.segment_id for s in access], [s.segment_id for s in jobs])
    scope_of_access = {s.segment_id: s.scope for s in access}
    owners = bench.rows("SELECT DISTINCT job_key, segment_id FROM job_row")
    scope_of_segment = {s.segment_id: s.scope for s in jobs}
    scope_of_job = {str(k): scope_of_segment[str(s)] for k, s in owners}
    found: dict[str, dict[str, list[int]]] = {}
    for access_id, job_key, how in bench.candidates():
        scope = scope_of_access[str(access_id).split(":")[0]]
        if scope_of_job[str(job_key)] != scope:
            counts = found.setdefault(scope, {}).setdefault(str(access_id), [0, 0])
            counts[how == "interval"] += 1
    return found


def _one_scope(
    bench: Workbench,
    scope: str,
    access: Sequence[Segment],
    jobs: Sequence[Segment],
    *,
    rivals: dict[str, dict[str, list[int]]],
    folder: Path,
    work: str,
) -> RunResult:
    mine = [s.segment_id for s in access if s.scope == scope]
    own_jobs = [s.segment_id for s in jobs if s.scope == scope]
    bench.clear("att_rival")
    bench.fill("att_rival", [(a, *n) for a, n in sorted(rivals.get(scope, {}).items())])
    bench.attribute(mine, own_jobs)
    ident = segment_id("attribution", scope, work)
    writer = SegmentWriter(folder / "segments", ident, "attribution", scope, ident)
    counts = dict.fromkeys(attribution.METHODS, 0)
    try:
        for row in bench.attributed():
            values = dict(zip(attribution.COLUMNS, row, strict=True))
            counts[str(values["method"])] += 1
            writer.add(_row(values))
        return RunResult(scope, writer.finish(), counts)
    except BaseException:
        writer.abandon()
        raise


def _row(values: dict[str, Any]) -> dict[str, str | int]:
    wide = ("lease_from_us", "lease_until_us")
    return {k: u64(v) if k in wide else v for k, v in values.items() if v is not None}


def _draft(
    result: RunResult,
    access: Sequence[Segment],
    jobs: Sequence[Segment],
    *,
    now_ns: int,
    leases_sha256: str | None,
) -> Draft:
    import duckdb

    scope, segment = result.scope, result.segment
    public = {
        "run_id": segment.segment_id,
        "method": attribution.METHOD_VERSION,
        "segments": [s.segment_id for s in access if s.scope == scope],
        "jobs_segment": [s.segment_id for s in jobs if s.scope == scope],
        "grace_ns": u64(attribution.GRACE_NS),
        "bucket_ns": u64(attribution.BUCKET_US * 1000),
        "engine": f"duckdb {duckdb.__version__}",
        "sql_digest": hashlib.sha256(sql_text("attribution").encode()).hexdigest(),
        "counts": result.counts,
        "result_root": segment.root,
        "rows": segment.rows,
        "parquet_sha256": segment.parquet_sha256,
        "leases_sha256": leases_sha256,
    }
    return Draft("attribution_run", scope, SOURCE, now_ns, public)
