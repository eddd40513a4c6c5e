"""figures.json: every number that report and twin show, computed from the rebuilt tables and nothing else.

`verify` computes it again and compares octets. It states counts with the class of the source beside them;
a negative statement ("no access from ...") is never made here: on a best-effort source it would be false.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from evidence.canonical import canonical, u64
from evidence.package.contents import Contents, repeatable
from evidence.package.model import REPORT, Predicate
from evidence.package.workbench import DOUBLE_RUNS, Workbench

SHOWN = 25  # rows of a list in the report; the tables have all

CLAIM = (
    "Nothing was removed from, added to or reordered in the scopes below between the two checkpoints. This "
    "does not prove that an event was recorded at all, nor that it was filed under the right scope."
)
SELF_ASSERTED = (
    "Self-asserted: no party outside the operator has anchored these checkpoints. It does not hold against "
    "the operator, who could have kept another history."
)
REVEALS = (
    "Of other tenants a tenant's package shows: requests of others to its own buckets as its access log "
    "has them; how many runs of others fit an access (not which); the number of quarantined lines of a "
    "shared log object, its size and digest; verdicts on shared links."
)


def figures(
    bench: Workbench, predicate: Predicate, contents: Contents, tables: dict[str, int]
) -> dict[str, Any]:
    """All figures of a package.

    Args:
        bench: tables are built.
        predicate: what the signer states.
        contents: segments and runs that the records commit to.
        tables: number of rows of each table.

    Returns:
        A canonical JSON value: integers, text, lists and objects.
    """
    return {
        "v": 1,
        "report": REPORT,
        "scope": predicate.ranges[0].scope,
        "estate": predicate.is_estate,
        "origin": predicate.origin,
        "window": [utc(t) for t in predicate.window],
        "window_ns": [u64(t) for t in predicate.window],
        "lateness_ns": u64(predicate.lateness_ns),
        "made": utc(predicate.made_ns),
        "labels": labels(predicate),
        "claim": CLAIM,
        "limits": [SELF_ASSERTED, *([] if predicate.is_estate else [REVEALS])],
        "ranges": [[r.scope, r.scope_id, r.begin, r.end] for r in predicate.ranges],
        "tool": sorted([k, v] for k, v in predicate.tool.items()),
        "tables": [[name, tables[name]] for name in sorted(tables)],
        "findings": findings(bench, predicate, contents),
        "records": _records(bench),
        "decisions": _decisions(bench),
        "links": _links(bench),
        "rotations": _rotations(bench),
        "gate": _gate(bench),
        "sources": _sources(bench),
        "attribution": _attribution(bench),
    }


def encode(value: dict[str, Any]) -> bytes:
    """Octets of figures.json."""
    return canonical(value)


def utc(ns: int) -> str:
    """Nanoseconds as text, to the second, rounded down."""
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def plural(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def labels(predicate: Predicate) -> list[str]:
    """Labels that stand on page one and in every verdict."""
    out = [predicate.anchored, f"custody: {predicate.custody}"]
    if predicate.faults:
        out.append("faults enabled")
    if predicate.provisional:
        out.append("provisional")
    return out


def findings(bench: Workbench, predicate: Predicate, contents: Contents) -> list[str]:
    """What a reader must not miss, most serious first."""
    out = [f"Provisional: {why}." for why in predicate.provisional]
    if predicate.faults:
        out.append("Fault injection was enabled in the window: what it shows is a test, not operation.")
    for link, verdict, n in bench.rows(
        "SELECT coalesce(link, '(not named)'), encrypted, count(*) FROM links"
        " WHERE in_window = 1 AND encrypted IS DISTINCT FROM 'yes' GROUP BY ALL ORDER BY ALL"
    ):
        word = "was not encrypted" if verdict == "no" else "could not be told to be encrypted"
        out.append(f"Link {link} {word} in {plural(n, 'interval')}.")
    for ended, n in bench.rows(
        "SELECT coalesce(ended, '(not told)'), count(*) FROM rotations"
        " WHERE in_window = 1 AND ended IS DISTINCT FROM 'complete' GROUP BY ALL ORDER BY ALL"
    ):
        out.append(f"{plural(n, 'rotation')} ended as {ended}.")
    for uri, n in bench.rows(  # an object each: two may go by one name
        "SELECT uri, quarantined FROM sources WHERE quarantined > 0 ORDER BY uri, object_id"
    ):
        out.append(
            f"{plural(n, 'line')} of {uri} not understood and in quarantine:"
            " no statement covers what was there."
        )
    for method, accesses, _, other in bench.rows("SELECT * FROM methods"):
        if accesses and method in ("interval-ambiguous", "unmatched", "unattributable", "not-attributed"):
            out.append(f"{plural(accesses, 'access', 'accesses')}: {method}.")
        if other:
            out.append(
                f"{plural(other, 'access', 'accesses')} by a job id that was not on the node of the address."
            )
    (outside,) = bench.rows("SELECT count(*) FROM accesses WHERE in_window = 0 AND repeat = 0")[0]
    if outside:
        out.append(
            f"{plural(outside, 'access', 'accesses')} outside the window by event time: listed, not counted."
        )
    if double := len(bench.rows(DOUBLE_RUNS)):
        out.append(f"{plural(double, 'run')} listed with more than one start or end: taken as one.")
    (unclear,) = bench.rows(
        "SELECT count(*) FROM decisions WHERE in_window = 1 AND allowed NOT IN ('true', 'false')"
        " OR allowed IS NULL"
    )[0]
    if unclear:
        out.append(f"{plural(unclear, 'decision')} neither admitted nor refused: counted in neither.")
    for run in contents.runs:
        if not repeatable(run, contents):
            (n,) = bench.rows("SELECT count(*) FROM attribution_row WHERE segment_id = $1", [run.result])[0]
            out.append(
                f"{plural(n, 'access', 'accesses')} laid to jobs by record {run.seq}, whose inputs are not in"
                " this package: the operator's statement, not repeated."
            )
    (twice,) = bench.rows(
        "SELECT count(*) FROM (SELECT access_id FROM attribution_row GROUP BY access_id"
        " HAVING count(DISTINCT segment_id) > 1)"
    )[0]
    if twice:
        out.append(f"{plural(twice, 'access', 'accesses')} attributed more than once: the latest run counts.")
    late = bench.rows("SELECT kind, count(*) FROM records WHERE in_window = 0 GROUP BY kind ORDER BY kind")
    if late:
        kinds = ", ".join(f"{n} {kind}" for kind, n in late)
        out.append(
            f"{plural(sum(n for _, n in late), 'record')} of the range outside the window by event time"
            f" ({kinds}): listed, not counted."
        )
    return out


def _records(bench: Workbench) -> dict[str, Any]:
    kinds = bench.rows(
        "SELECT kind, count(*), CAST(sum(in_window) AS BIGINT), CAST(sum(sensitive_withheld) AS BIGINT)"
        " FROM records GROUP BY kind ORDER BY kind"
    )
    return {"by_kind": _lists(kinds), "total": sum(k[1] for k in kinds)}


def _decisions(bench: Workbench) -> dict[str, Any]:
    admitted, refused, dry = bench.rows(
        "SELECT count(*) FILTER (allowed = 'true'), count(*) FILTER (allowed = 'false'),"
        " count(*) FILTER (dry_run = 'true')"
        " FROM decisions WHERE in_window = 1"
    )[0]
    rules = bench.rows(
        "SELECT rule, count(*) FROM (SELECT unnest(string_split(rules, ' ')) AS rule FROM decisions"
        " WHERE in_window = 1 AND allowed = 'false') WHERE rule <> '' GROUP BY rule ORDER BY rule"
    )
    shown = bench.rows(
        "SELECT time_utc, coalesce(cluster, ''), coalesce(namespace, ''), coalesce(kind, ''),"
        " coalesce(name, ''), coalesce(rules, ''), coalesce(reasons, '') FROM decisions"
        " WHERE in_window = 1 AND allowed = 'false' ORDER BY rowid LIMIT $1",
        [SHOWN],
    )
    return {
        "admitted": admitted,
        "refused": refused,
        "dry_run": dry,
        "by_rule": _lists(rules),
        "shown": _lists(shown),
    }


def _links(bench: Workbench) -> list[list[Any]]:
    return _lists(
        bench.rows(
            "SELECT link, count(*), count(*) FILTER (encrypted = 'yes'), count(*) FILTER (encrypted = 'no'),"
            " count(*) FILTER (encrypted NOT IN ('yes', 'no') OR encrypted IS NULL),"
            " strftime(make_timestamp(min(begin_ns) // 1000), '%Y-%m-%dT%H:%M:%SZ'),"
            " strftime(make_timestamp(max(end_ns) // 1000), '%Y-%m-%dT%H:%M:%SZ')"
            " FROM links WHERE in_window = 1 GROUP BY link ORDER BY link"
        )
    )


def _rotations(bench: Workbench) -> dict[str, Any]:
    ends = bench.rows(
        "SELECT ended, count(*) FROM rotations WHERE in_window = 1 GROUP BY ended ORDER BY ended"
    )
    shown = bench.rows(
        "SELECT strftime(make_timestamp(time_ns // 1000), '%Y-%m-%dT%H:%M:%SZ'), link, ended,"
        " coalesce(why, ''), coalesce(CAST(frames_lost AS VARCHAR), ''),"
        " coalesce(CAST(elapsed_ms AS VARCHAR), '') FROM rotations"
        " WHERE in_window = 1 ORDER BY rowid LIMIT $1",
        [SHOWN],
    )
    return {"by_end": _lists(ends), "shown": _lists(shown)}


def _gate(bench: Workbench) -> dict[str, Any]:
    by = bench.rows(
        "SELECT coalesce(link, ''), kind, count(*) FROM gate WHERE in_window = 1 GROUP BY ALL ORDER BY ALL"
    )
    shown = bench.rows(
        "SELECT time_utc, kind, coalesce(link, ''), coalesce(endpoint, ''), coalesce(reason, '') FROM gate"
        " WHERE in_window = 1 AND kind <> 'permit' ORDER BY rowid LIMIT $1",
        [SHOWN],
    )
    return {"by_kind": _lists(by), "shown": _lists(shown)}


def _sources(bench: Workbench) -> list[list[Any]]:
    return _lists(
        bench.rows(
            "SELECT source_name, source_class, time_means, CAST(resolution_ns // 1000000 AS VARCHAR),"
            " coalesce(uri, ''), coalesce(rows, 0), coalesce(CAST(lines AS VARCHAR), ''),"
            " coalesce(CAST(duplicates AS VARCHAR), ''), coalesce(quarantined, 0), coalesce(sha256, '')"
            " FROM sources ORDER BY rowid"
        )
    )


def _attribution(bench: Workbench) -> dict[str, Any]:
    methods = bench.rows("SELECT method, accesses, bytes_sent FROM methods")
    tenant_jobs = bench.rows(
        "SELECT job_key, method, count(*), CAST(coalesce(sum(bytes_sent), 0) AS VARCHAR) FROM accesses"
        " WHERE in_window = 1 AND repeat = 0 AND job_key IS NOT NULL GROUP BY job_key, method"
        " ORDER BY job_key, method LIMIT $1",
        [SHOWN],
    )
    total = sum(m[1] for m in methods)
    matched = sum(m[1] for m in methods if m[0] in ("direct", "interval-unique"))
    return {
        "methods": [[name, n, str(octets)] for name, n, octets in methods],
        "total": total,
        "matched": matched,
        "matched_permille": matched * 1000 // total if total else 0,
        "by_job": _lists(tenant_jobs),
    }


def _lists(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as lists; integers past 2^53 never occur here, they are text."""
    return [list(row) for row in rows]
