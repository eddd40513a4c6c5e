"""Access -> job: which run of which job an access can be laid to, and by what method.

Decides per access exactly one of

* `direct`: the request carried a job id (role session name, query), and one run of that id was running;
* `interval-unique`: its address was leased to one node then, and one run was on that node;
* `interval-ambiguous`: more than one run; never reported as matched;
* `unmatched`: an id or a node is known, but no run;
* `unattributable`: no node can be told (`shared`, `redacted`, `no-lease`).

A direct id is tried first and is final: an access that names job 7 is never laid to job 8. Runs are
half-open, [start, end + grace). The join is bucketed by hour and node, an equi-join with the two
inequalities behind it; never ASOF, which loses matches where jobs overlap on a node. It is one Ibis
expression, so that a customer's Spark or Trino runs the same; embedded, DuckDB runs its compiled text
(`package/sql/v1/attribution.sql`, kept equal by a test), which `verify` runs again over a package.

Times are microseconds here: Trino divides through doubles, and nanoseconds pass 2^53.
"""

from __future__ import annotations

from typing import Any

METHOD_VERSION = "1"
BUCKET_US = 3_600_000_000  # one hour
GRACE_NS = 5_000_000_000  # steps were seen to end up to 3 s after their job

METHODS = ("direct", "interval-unique", "interval-ambiguous", "unmatched", "unattributable")

#: Input tables: name -> column -> type (Ibis names). `job` has one line per run and node; `name` one per
#: run and id by which requests may call it; `rival` the number of candidates that may not be shown.
TABLES: dict[str, dict[str, str]] = {
    "access": {
        "access_id": "string",
        "time_us": "int64",
        "address": "string",
        "job_name": "string",
        "conflict": "int64",
    },
    "lease": {
        "address": "string",
        "node": "string",
        "from_us": "int64",
        "until_us": "int64",
        "shared": "int64",
    },
    "job": {"job_key": "string", "node": "string", "start_us": "int64", "stop_us": "int64"},
    "name": {"job_key": "string", "job_name": "string", "start_us": "int64", "stop_us": "int64"},
    "rival": {"access_id": "string", "direct_rivals": "int64", "interval_rivals": "int64"},
}
#: Result columns, in order.
COLUMNS = (
    "access_id",
    "method",
    "reason",
    "job_key",
    "node",
    "lease_from_us",
    "lease_until_us",
    "lease_state",
    "direct_own",
    "interval_own",
    "direct_rivals",
    "interval_rivals",
    "agrees",
)


def tables() -> dict[str, Any]:
    """Unbound Ibis tables of the input, named `att_<name>`."""
    import ibis

    return {name: ibis.table(schema, name=f"att_{name}") for name, schema in TABLES.items()}


def candidates(t: dict[str, Any]) -> Any:
    """Ibis expression: every (access, run) pair that fits, `how` = direct | interval."""
    import ibis

    direct = _direct_pairs(t).mutate(how=ibis.literal("direct"))
    interval = _interval_pairs(t, _nodes(t)).mutate(how=ibis.literal("interval"))
    return direct.union(interval).order_by(["access_id", "job_key", "how"])


def attribution(t: dict[str, Any]) -> Any:
    """Ibis expression: one row per access with `COLUMNS`, ordered by access_id."""
    nodes = _nodes(t)
    direct = _counted(_direct_pairs(t), "direct")
    pairs = _interval_pairs(t, nodes)
    joined = (
        t["access"]
        .left_join(nodes, "access_id")
        .drop("access_id_right")
        .left_join(direct, "access_id")
        .drop("access_id_right")
        .left_join(_counted(pairs, "interval"), "access_id")
        .drop("access_id_right")
        .left_join(t["rival"], "access_id")
        .drop("access_id_right")
    )
    return _verdicts(joined, pairs).select(*COLUMNS).order_by("access_id")


def _nodes(t: dict[str, Any]) -> Any:
    """Per access: the node its address was leased to at that time, or why none can be told."""
    import ibis

    a, lease = t["access"], t["lease"]
    held = a.select("access_id", "time_us", "address").inner_join(
        lease,
        [a.address == lease.address, a.time_us >= lease.from_us, a.time_us < lease.until_us],
    )
    told = held.group_by("access_id").aggregate(
        leases=held.node.nunique(),
        any_shared=held.shared.max(),
        node=held.node.min(),
        lease_from_us=held.from_us.max(),
        lease_until_us=held.until_us.min(),
    )
    one = (told.leases == 1) & (told.any_shared == 0)
    return told.select(
        "access_id",
        lease_state=ibis.ifelse(one, "covered", "shared"),
        node=ibis.ifelse(one, told.node, ibis.null("string")),
        lease_from_us=ibis.ifelse(one, told.lease_from_us, ibis.null("int64")),
        lease_until_us=ibis.ifelse(one, told.lease_until_us, ibis.null("int64")),
    )


def _direct_pairs(t: dict[str, Any]) -> Any:
    a, n = t["access"], t["name"]
    named = a.filter(a.conflict == 0)
    pairs = named.inner_join(
        n, [named.job_name == n.job_name, named.time_us >= n.start_us, named.time_us < n.stop_us]
    )
    return pairs.select("access_id", "job_key").distinct()


def _interval_pairs(t: dict[str, Any], nodes: Any) -> Any:
    """Bucketed equi-join: every run lies in each hour it touches, every access in one."""
    import ibis

    j, a = t["job"], t["access"]
    runs = j.filter(j.stop_us > j.start_us)
    spread = runs.mutate(
        bucket=ibis.range(runs.start_us // BUCKET_US, (runs.stop_us - 1) // BUCKET_US + 1).unnest()
    )
    placed = a.inner_join(nodes, "access_id").select("access_id", "time_us", "node")
    seen = placed.filter(placed.node.notnull()).mutate(bucket=placed.time_us // BUCKET_US)
    pairs = seen.inner_join(
        spread,
        [
            seen.node == spread.node,
            seen.bucket == spread.bucket,
            seen.time_us >= spread.start_us,
            seen.time_us < spread.stop_us,
        ],
    )
    return pairs.select("access_id", "job_key").distinct()


def _counted(pairs: Any, how: str) -> Any:
    return pairs.group_by("access_id").aggregate(
        **{f"{how}_own": pairs.count(), f"{how}_job": pairs.job_key.min()}
    )


def _verdicts(joined: Any, pairs: Any) -> Any:
    """Counts to method and reason; the job is named only where exactly one run fits, and it is ours."""
    import ibis

    counts = joined.mutate(
        **{
            c: joined[c].fill_null(0)
            for c in ("direct_own", "interval_own", "direct_rivals", "interval_rivals")
        },
        lease_state=joined.lease_state.fill_null(
            ibis.ifelse(joined.address.isnull(), "redacted", "no-lease")
        ),
    )
    d = counts.direct_own + counts.direct_rivals
    i = counts.interval_own + counts.interval_rivals
    named = counts.job_name.notnull()
    covered = counts.lease_state == "covered"
    text = ibis.null("string")
    method = ibis.cases(
        (counts.conflict == 1, "unmatched"),
        (named & (d == 1), "direct"),
        (named & (d > 1), "interval-ambiguous"),
        (named, "unmatched"),
        (~covered, "unattributable"),
        (i == 1, "interval-unique"),
        (i > 1, "interval-ambiguous"),
        else_="unmatched",
    )
    reason = ibis.cases(
        (counts.conflict == 1, "two different job ids"),
        (named & (d == 1), text),
        (named & (d > 1), "the id names several runs at that time"),
        (named, "no run of that id at that time"),
        (~covered, counts.lease_state),
        (i == 0, "no run on the node at that time"),
        else_=text,
    )
    job = ibis.cases(
        ((method == "direct") & (counts.direct_own == 1), counts.direct_job),
        ((method == "interval-unique") & (counts.interval_own == 1), counts.interval_job),
        else_=text,
    )
    out = counts.mutate(method=method, reason=reason, job_key=job)
    fits = pairs.mutate(fits=ibis.literal(1))
    both = out.left_join(fits, [out.access_id == fits.access_id, out.job_key == fits.job_key])
    both = both.drop("access_id_right").drop("job_key_right")  # one by one: a set has no order
    told = (both.method == "direct") & both.job_key.notnull() & (both.lease_state == "covered")
    return both.mutate(agrees=ibis.ifelse(told, both.fits.fill_null(0), ibis.null("int64")))


def compile_sql(which: str, dialect: str = "duckdb") -> str:
    """SQL text of an expression for an engine.

    Args:
        which: `attribution` or `candidates`.
        dialect: any that Ibis compiles for: duckdb, pyspark, trino, ...
    """
    import ibis

    expression = {"attribution": attribution, "candidates": candidates}[which](tables())
    return str(ibis.to_sql(expression, dialect=dialect)).rstrip() + "\n"
