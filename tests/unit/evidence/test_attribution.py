"""Attribution: shared nodes, requeues, running jobs, arrays, reused ids; DuckDB text equals the expression."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from inboxes import ListInbox

from evidence import attribution
from evidence.attribution_run import Lease, attribute, read_leases
from evidence.errors import PutBefore, SourceRefused
from evidence.package.workbench import Workbench, sql_text
from evidence.records import encode
from evidence.sources.base import Line
from evidence.sources.segments import SegmentWriter, segment_id
from evidence.sources.slurm_sacct import Sacct

S = 1_000_000
OPEN = 1 << 50


def run(access=(), jobs=(), leases=None, names=(), rivals=()) -> dict[str, dict]:
    """Rows by access id. access: (id, second, address, job name); jobs: (key, node, start, stop)."""
    with Workbench() as bench:
        con = bench.con
        for name, schema in attribution.TABLES.items():
            columns = ", ".join(f"{c} {'VARCHAR' if k == 'string' else 'BIGINT'}" for c, k in schema.items())
            con.execute(f"CREATE OR REPLACE TEMP TABLE att_{name} ({columns})")
        nodes = sorted({n for _, n, _, _ in jobs} | {"c/n1"})
        leases = [(n, n, 0, OPEN, 0) for n in nodes] if leases is None else leases
        for table, rows in {
            "access": [(i, t * S, a, j, int(j == "conflict")) for i, t, a, j in access],
            "lease": leases,
            "job": [(k, n, s * S, e * S) for k, n, s, e in jobs],
            "name": [(k, j, s * S, e * S) for k, j, s, e in names],
            "rival": rivals,
        }.items():
            for row in rows:
                con.execute(f"INSERT INTO att_{table} VALUES ({', '.join('?' * len(row))})", list(row))
        found = bench.rows(sql_text("attribution"))
    return {r[0]: dict(zip(attribution.COLUMNS, r, strict=True)) for r in found}


def test_overlapping_jobs_on_one_node_are_ambiguous_and_their_edges_unique() -> None:
    got = run(
        access=[(str(t), t, "c/n1", None) for t in (10, 15, 20, 25, 30)],
        jobs=[("A", "c/n1", 10, 20), ("B", "c/n1", 15, 30)],
    )
    methods = [(g["method"], g["job_key"]) for g in got.values()]
    assert [
        ("interval-unique", "A"),
        ("interval-ambiguous", None),
        ("interval-unique", "B"),
        ("interval-unique", "B"),
        ("unmatched", None),
    ] == methods


def test_no_match_is_lost_where_an_asof_join_would_lose_it() -> None:
    got = run(access=[("x", 100, "c/n1", None)], jobs=[("long", "c/n1", 0, 1000), ("short", "c/n1", 90, 95)])
    assert ("interval-unique", "long") == (got["x"]["method"], got["x"]["job_key"])


def test_a_run_over_many_buckets_is_found_in_each() -> None:
    hours = range(0, 100 * 3600, 3599)
    got = run(access=[(f"{t:09d}", t, "c/n1", None) for t in hours], jobs=[("A", "c/n1", 0, 100 * 3600)])
    assert {"interval-unique"} == {g["method"] for g in got.values()}


def test_a_direct_id_wins_over_the_interval_and_says_whether_the_node_agrees() -> None:
    got = run(
        access=[("x", 15, "c/n1", "c.7"), ("y", 15, "c/n2", "c.7")],
        jobs=[("seven", "c/n1", 10, 20), ("eight", "c/n1", 10, 20), ("eight", "c/n2", 10, 20)],
        names=[("seven", "c.7", 10, 20)],
    )
    assert [("direct", "seven", 1), ("direct", "seven", 0)] == [
        (g["method"], g["job_key"], g["agrees"]) for g in got.values()
    ]


def test_a_direct_id_without_a_run_is_never_laid_to_another_job() -> None:
    got = run(access=[("x", 15, "c/n1", "c.9")], jobs=[("A", "c/n1", 10, 20)])
    assert ("unmatched", None) == (got["x"]["method"], got["x"]["job_key"])


def test_a_reused_id_is_told_apart_by_time() -> None:
    names = [("42/first", "c.42", 10, 20), ("42/second", "c.42", 100, 120)]
    got = run(
        access=[("x", 15, None, "c.42"), ("y", 110, None, "c.42"), ("z", 50, None, "c.42")], names=names
    )
    assert ["42/first", "42/second", None] == [g["job_key"] for g in got.values()]
    assert "unmatched" == got["z"]["method"]


def test_an_id_that_names_two_runs_at_once_is_ambiguous() -> None:
    got = run(access=[("x", 15, None, "c.42")], names=[("a", "c.42", 10, 20), ("b", "c.42", 12, 20)])
    assert "interval-ambiguous" == got["x"]["method"]


def test_contradicting_ids_match_nothing() -> None:
    got = run(access=[("x", 15, "c/n1", "conflict")], jobs=[("A", "c/n1", 10, 20)])
    assert "unmatched" == got["x"]["method"]


@pytest.mark.parametrize(
    ("leases", "address", "reason"),
    [
        ([("a", "c/n1", 0, 10 * S, 0)], "a", "no-lease"),  # ended before the access
        ([("a", "c/n1", 15 * S + 1, OPEN, 0)], "a", "no-lease"),
        ([("a", "c/n1", 0, OPEN, 0), ("a", "c/n2", 0, OPEN, 0)], "a", "shared"),
        ([("a", "", 0, OPEN, 1)], "a", "shared"),
        ([], None, "redacted"),
    ],
)
def test_an_address_without_a_lease_of_its_own_is_unattributable(
    leases: list, address: str | None, reason: str
) -> None:
    got = run(access=[("x", 15, address, None)], jobs=[("A", "c/n1", 10, 20)], leases=leases)
    assert ("unattributable", reason, None) == (got["x"]["method"], got["x"]["reason"], got["x"]["job_key"])


def test_the_lease_is_half_open() -> None:
    leases = [("a", "c/n1", 10 * S, 20 * S, 0), ("a", "c/n2", 20 * S, 30 * S, 0)]
    got = run(access=[("x", 20, "a", None)], jobs=[("A", "c/n1", 0, 99), ("B", "c/n2", 0, 99)], leases=leases)
    assert "B" == got["x"]["job_key"]


def test_a_rival_of_another_tenant_keeps_unique_honest() -> None:
    got = run(access=[("x", 15, "c/n1", None)], jobs=[("A", "c/n1", 10, 20)], rivals=[("x", 0, 1)])
    assert ("interval-ambiguous", None) == (got["x"]["method"], got["x"]["job_key"])


def test_random_jobs_agree_with_a_plain_interval_join() -> None:
    rng = random.Random(3)
    jobs = []
    for i in range(200):
        start = rng.randrange(0, 40_000)
        jobs.append((f"j{i}", f"c/n{rng.randrange(5)}", start, start + rng.randrange(1, 9_000)))
    access = [(f"{i:04d}", rng.randrange(0, 50_000), f"c/n{rng.randrange(5)}", None) for i in range(300)]
    got = run(access=access, jobs=jobs, leases=[(f"c/n{n}", f"c/n{n}", 0, OPEN, 0) for n in range(5)])
    for ident, at, node, _ in access:
        fits = [k for k, n, s, e in jobs if n == node and s <= at < e]
        want = "interval-unique" if len(fits) == 1 else "interval-ambiguous" if fits else "unmatched"
        assert (want, len(fits)) == (got[ident]["method"], got[ident]["interval_own"])


@pytest.mark.parametrize("which", ["attribution", "candidates"])
def test_the_frozen_text_is_what_the_expression_compiles_to(which: str) -> None:
    assert attribution.compile_sql(which) == sql_text(which)


@pytest.mark.parametrize("dialect", ["pyspark", "trino"])
def test_the_expression_compiles_for_a_customers_engine(dialect: str) -> None:
    assert "ASOF" not in attribution.compile_sql("attribution", dialect).upper()


def _segment(folder: Path, schema: str, scope: str, rows: list[dict]):
    writer = SegmentWriter(folder / "segments", segment_id(schema, scope), schema, scope, "o" * 32)
    for row in rows:
        writer.add(row)
    return writer.finish()


def _job(
    raw: str, start: int, end: int | None, nodes: str = "n1", restart: int = 0, submit: int = 1, **more
) -> dict:
    row = {
        "event_id": "e", "offset": "0", "cluster": "c", "job_raw": raw, "job_id": raw, "state": "X",
        "submit_ns": str(submit * 10**9), "restart": restart, "start_ns": str(start * 10**9), "nodes": nodes,
    }  # fmt: skip
    return row | ({} if end is None else {"end_ns": str(end * 10**9)}) | more


def _access(at: int, address: str = "10.0.0.1", **more) -> dict:
    return {"event_id": "e", "offset": "0", "time_ns": str(at * 10**9), "remote_ip": address} | more


LEASES = read_leases(b"address,node,from,to,shared\n10.0.0.1,c/n1,1970-01-01T00:00:00Z,,\n")


def committed(tmp_path: Path, access: dict[str, list], jobs: dict[str, list]) -> dict[str, list[dict]]:
    segments = [_segment(tmp_path, "s3_access", s, rows) for s, rows in access.items()]
    segments += [_segment(tmp_path, "slurm_sacct", s, rows) for s, rows in jobs.items()]
    inbox = ListInbox()
    results = attribute(tmp_path, segments, LEASES, inbox=inbox, now_ns=5)
    with pytest.raises(PutBefore):
        attribute(tmp_path, segments, LEASES, inbox=inbox, now_ns=6)
    for d in inbox.drafts:
        encode(d, scope_id="0" * 32, source_seq=0, boot_id="b", received_time_ns=1, salts=bytes(48))
    import orjson

    from evidence.sources.segments import read

    return {
        r.scope: [
            orjson.loads(x)
            for x in read(
                tmp_path / "segments", r.segment.segment_id, "attribution", r.segment.root, r.segment.rows
            )
        ]
        for r in results
    }


def test_a_running_job_keeps_its_accesses(tmp_path: Path) -> None:
    got = committed(tmp_path, {"acme": [_access(1000)]}, {"acme": [_job("7", 10, None)]})
    assert ("interval-unique", "c/7/1/0") == (got["acme"][0]["method"], got["acme"][0]["job_key"])


def test_each_run_of_a_requeued_job_matches_its_own_time(tmp_path: Path) -> None:
    runs = [_job("7", 10, 20, restart=0), _job("7", 100, 120, restart=1), _job("7", 200, 220, restart=2)]
    got = committed(tmp_path, {"acme": [_access(15), _access(110), _access(50)]}, {"acme": runs})
    assert ["c/7/1/0", "c/7/1/1", None] == [r.get("job_key") for r in got["acme"]]


def test_the_same_id_submitted_again_is_another_job(tmp_path: Path) -> None:
    runs = [_job("42", 10, 20, submit=5), _job("42", 100, 120, submit=90)]
    hint = {"job_by": "query", "job_cluster": "c", "job_id": "42"}
    got = committed(tmp_path, {"acme": [_access(15, **hint), _access(110, **hint)]}, {"acme": runs})
    assert ["c/42/5/0", "c/42/90/0"] == [r["job_key"] for r in got["acme"]]


def test_an_array_task_is_found_by_shown_and_by_raw_id(tmp_path: Path) -> None:
    task = _job("127", 10, 20, job_id="123_4")
    hints = [{"job_by": "query", "job_cluster": "c", "job_id": i} for i in ("123_4", "127", "123")]
    got = committed(tmp_path, {"acme": [_access(15, **h) for h in hints]}, {"acme": [task]})
    assert ["direct", "direct", "unmatched"] == [r["method"] for r in got["acme"]]


def test_a_job_listed_running_and_later_ended_is_one_run_with_an_end(tmp_path: Path) -> None:
    got = committed(
        tmp_path, {"acme": [_access(15), _access(900)]}, {"acme": [_job("7", 10, None), _job("7", 10, 20)]}
    )
    assert ["interval-unique", "unmatched"] == [r["method"] for r in got["acme"]]


@pytest.mark.parametrize(
    "again",
    [
        _job("7", 100, 120, nodes="n2"),  # requeued; the joined run would reach from 10 to 120 on both nodes
        _job("7", 10, 21),
        _job("7", 11, None),
    ],
)
def test_two_runs_that_go_by_one_key_are_laid_to_nothing(tmp_path: Path, again: dict) -> None:
    inbox = ListInbox()
    access = _segment(tmp_path, "s3_access", "acme", [_access(50)])
    jobs = [
        _segment(tmp_path, "slurm_sacct", s, [row])
        for s, row in (("acme", _job("7", 10, 20)), ("globex", again))
    ]
    with pytest.raises(SourceRefused, match="c/7/1/0 is listed with more than one start or end") as why:
        attribute(tmp_path, [access, *jobs], LEASES, inbox=inbox, now_ns=5)
    assert (True, [], []) == ("Restarts" in why.value.fix, inbox.drafts, inbox.works)


def test_runs_numbered_apart_in_two_listings_are_refused_and_in_one_are_told_apart(tmp_path: Path) -> None:
    columns = ("JobIDRaw", "Cluster", "State", "Submit", "Start", "End", "NodeList")
    lines = (b"7|c|REQUEUED|1|10|20|n1", b"7|c|COMPLETED|1|100|120|n2")
    alone = [Sacct(columns=columns).parse(Line(1, 0, line)) for line in lines]
    whole = Sacct(columns=columns)
    together = [whole.parse(Line(1, 0, line)) for line in lines]
    with pytest.raises(SourceRefused, match="more than one start"):
        committed(tmp_path / "alone", {"acme": [_access(50)]}, {"acme": alone})
    got = committed(tmp_path / "whole", {"acme": [_access(15), _access(50)]}, {"acme": together})
    assert ["c/7/1/0", None] == [r.get("job_key") for r in got["acme"]]


def test_grace_is_half_open(tmp_path: Path) -> None:
    got = committed(tmp_path, {"acme": [_access(24), _access(25)]}, {"acme": [_job("7", 10, 20)]})
    assert ["interval-unique", "unmatched"] == [r["method"] for r in got["acme"]]


def test_steps_are_no_jobs(tmp_path: Path) -> None:
    got = committed(
        tmp_path, {"acme": [_access(15)]}, {"acme": [_job("7", 10, 20), _job("7", 10, 23, step="batch")]}
    )
    assert ("interval-unique", 1) == (got["acme"][0]["method"], got["acme"][0]["interval_own"])


def test_a_scope_is_told_how_many_runs_of_others_fit_and_not_which(tmp_path: Path) -> None:
    got = committed(
        tmp_path,
        {"acme": [_access(15)], "globex": [_access(15)]},
        {"acme": [_job("7", 10, 20)], "globex": [_job("8", 10, 20)]},
    )
    for scope in ("acme", "globex"):
        (row,) = got[scope]
        assert ("interval-ambiguous", 1, 1) == (row["method"], row["interval_own"], row["interval_rivals"])
    assert "c/8" not in str(got["acme"])


def test_a_foreign_direct_job_is_direct_and_not_named(tmp_path: Path) -> None:
    hint = {"job_by": "query", "job_cluster": "c", "job_id": "8"}
    got = committed(tmp_path, {"acme": [_access(15, **hint)]}, {"globex": [_job("8", 10, 20)]})
    assert ("direct", None, 1) == (
        got["acme"][0]["method"],
        got["acme"][0].get("job_key"),
        got["acme"][0]["direct_rivals"],
    )


FIVE = "address,node,from,to,shared"
FROM = "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("header", "line", "number"),
    [
        (FIVE, f"1.2.3.4,n1,{FROM},,", 2),  # node without its cluster
        (FIVE, "1.2.3.4,c/n1,1970-01-01T00:00:00,,", 2),  # no zone
        (FIVE, f"1.2.3.4,c/n1,1970-01-02T00:00:00Z,{FROM},", 2),
        (FIVE, f"\n1.2.3.4,c/n1,{FROM},,\n1.2.3.4,c/n2,{FROM}", 4),  # cut off: neither open nor unshared
        (FIVE, f"1.2.3.4,c/n1,{FROM},", 2),
        ("shared,address,node,from,to", f",1.2.3.4,c/n1,{FROM}", 2),
        (FIVE, f"1.2.3.4,c/n1,{FROM},,,yes", 2),
        *((FIVE, f"1.2.3.4,c/n1,{FROM},,{word}", 2) for word in ("true", "YES", "1", " yes", "shared", "No")),
        (FIVE, f" 1.2.3.4,c/n1,{FROM},,", 2),
        (FIVE, f",c/n1,{FROM},,", 2),
        (FIVE, f'1.2.3.4,c/n1,{FROM},,"', 2),
        ("address,node,from,to", f"1.2.3.4,c/n1,{FROM},", 1),
        ("address,node,from,to,Shared", f"1.2.3.4,c/n1,{FROM},,yes", 1),
        (FIVE + ",shared", f"1.2.3.4,c/n1,{FROM},,yes,", 1),
        ("", "", 1),
    ],
)
def test_lease_lists_out_of_form_are_refused_by_line(header: str, line: str, number: int) -> None:
    with pytest.raises(SourceRefused, match=f"line {number} of"):
        read_leases(f"{header}\n{line}".encode())


def test_a_lease_list_that_is_no_text_is_refused() -> None:
    with pytest.raises(SourceRefused, match="UTF-8"):
        read_leases(b"\xff\xfe")


@pytest.mark.parametrize(("word", "shared"), [("", False), ("no", False), ("yes", True)])
def test_a_lease_is_shared_where_it_says_so(word: str, shared: bool) -> None:
    assert [Lease("1.2.3.4", "c/n1", 0, 1 << 62, shared)] == read_leases(
        f"shared,{FIVE[:-7]}\n{word},1.2.3.4,c/n1,{FROM},\n\n".encode()
    )
