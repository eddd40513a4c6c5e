"""Layout: figures to blocks. The report and its twin draw the same blocks, so they say the same.

Text in blocks is plain; each renderer escapes it. Nothing here reads anything but figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Heading:
    """A section's title."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    tone: Literal["plain", "note", "finding"] = "plain"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: header, rows, relative widths, and which columns are numbers."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    widths: Sequence[int]
    numbers: frozenset[int] = frozenset()


Block = Heading | Text | Grid


def title(f: dict[str, Any]) -> str:
    """The document's title."""
    return f"Evidence package: {cut(f['scope'], 64)}"


def cut(text: str, room: int) -> str:
    """A text that is cut, visibly, to so many characters."""
    return text if len(text) <= room else text[: room - 4] + " ..."


def blocks(f: dict[str, Any]) -> list[Block]:
    """All blocks of the report, in order."""
    return [
        *_first_page(f),
        *_decisions(f["decisions"]),
        *_links(f),
        *_attribution(f),
        *_appendix(f),
    ]


def _first_page(f: dict[str, Any]) -> list[Block]:
    facts = [
        ["Scope", f["scope"] + (" (operator's own)" if f["estate"] else "")],
        ["Window", f"{f['window'][0]} to {f['window'][1]} (end excluded)"],
        ["Lateness bound", f"{_n(int(f['lateness_ns']) // 1_000_000_000)} s after the window"],
        ["Made", f["made"]],
        ["Log", f["origin"]],
        ["Standing", "; ".join(f["labels"])],
    ]
    a, d = f["attribution"], f["decisions"]
    totals = [
        ["Records in range", _n(f["records"]["total"])],
        ["Decisions: admitted / refused", f"{_n(d['admitted'])} / {_n(d['refused'])}"],
        [
            "Link intervals: encrypted / not / unknown",
            " / ".join(_n(sum(x[i] for x in f["links"])) for i in (2, 3, 4)),
        ],
        ["Accesses: matched / all", f"{_n(a['matched'])} / {_n(a['total'])}"],
    ]
    if f["estate"]:
        totals.insert(
            3, ["Rotations ended", ", ".join(f"{_n(n)} {e}" for e, n in f["rotations"]["by_end"]) or "0"]
        )
    found: list[Block] = [Text(t, "finding") for t in f["findings"]] or [Text("None.")]
    return [
        Grid("About this package", ("Field", "Value"), facts, (26, 74)),
        Heading("What it states"),
        Text(f["claim"]),
        *(Text(t, "note") for t in f["limits"]),
        Heading("Findings"),
        *found,
        Heading("In figures"),
        Grid("Totals of the window", ("Measure", "Value"), totals, (60, 40)),
    ]


def _decisions(d: dict[str, Any]) -> list[Block]:
    out: list[Block] = [Heading("Decisions")]
    out.append(
        Text(
            f"{_n(d['admitted'])} admitted, {_n(d['refused'])} refused; "
            f"dry runs among them: {_n(d['dry_run'])}."
        )
    )
    if d["by_rule"]:
        out.append(Grid("Refusals by rule", ("Rule", "Refusals"), _t(d["by_rule"]), (80, 20), frozenset({1})))
    if d["shown"]:
        rows = [[r[0], "/".join(p for p in r[1:3] if p), " ".join(r[3:5]), r[5], r[6]] for r in d["shown"]]
        head: tuple[str, ...] = ("Time", "Cluster/namespace", "Object", "Rules", "Reason given")
        out.append(Grid("Refusals (first ones; all in tables/decisions)", head, rows, (19, 17, 15, 17, 32)))
    return out


def _links(f: dict[str, Any]) -> list[Block]:
    out: list[Block] = [Heading("Links")]
    if not f["links"]:
        out.append(Text("No link verdicts in this window.", "note"))
    else:
        head: tuple[str, ...] = ("Link", "Intervals", "Encrypted", "Not", "Unknown", "From", "To")
        widths: tuple[int, ...] = (18, 10, 12, 8, 14, 19, 19)
        out.append(Grid("Verdicts by link", head, _t(f["links"]), widths, frozenset({1, 2, 3, 4})))
    if f["rotations"]["shown"]:
        head = ("Ended at", "Link", "How", "Why", "Frames lost", "ms")
        widths = (22, 18, 14, 26, 12, 8)
        out.append(
            Grid(
                "Rotations (first ones; all in tables/rotations)",
                head,
                _t(f["rotations"]["shown"]),
                widths,
                frozenset({4, 5}),
            )
        )
    if f["gate"]["by_kind"]:
        out.append(
            Grid(
                "Gate orders and violations",
                ("Link", "Kind", "Records"),
                _t(f["gate"]["by_kind"]),
                (50, 30, 20),
                frozenset({2}),
            )
        )
    if f["gate"]["shown"]:
        head = ("Time", "Kind", "Link", "Endpoint", "Reason")
        out.append(
            Grid(
                "Closings, reopenings, violations (first ones)",
                head,
                _t(f["gate"]["shown"]),
                (22, 12, 18, 18, 30),
            )
        )
    return out


def _attribution(f: dict[str, Any]) -> list[Block]:
    a = f["attribution"]
    out: list[Block] = [Heading("Accesses and jobs")]
    if f["sources"]:
        out += _sources(f["sources"])
        out.append(
            Text(
                "Of best-effort sources a package says what was reported, never that nothing else happened.",
                "note",
            )
        )
    head: tuple[str, ...] = ("Method", "Accesses", "Octets sent")
    out.append(
        Grid(
            "Accesses by method; only direct and interval-unique are matched",
            head,
            [[m, _n(n), _n(int(o))] for m, n, o in a["methods"]],
            (50, 20, 30),
            frozenset({1, 2}),
        )
    )
    out.append(
        Text(
            "Leases of addresses, and how many runs of others fit, are the operator's statement as committed "
            "when the accesses were laid to jobs; all else is computed again by `verify`.",
            "note",
        )
    )
    share = f"{a['matched_permille'] // 10}.{a['matched_permille'] % 10} %"
    out.append(Text(f"Matched: {_n(a['matched'])} of {_n(a['total'])}, {share} (rounded down)."))
    if a["by_job"]:
        head = ("Job run (cluster/id/submit/restart)", "Method", "Accesses", "Octets sent")
        out.append(
            Grid(
                "Accesses by job (first ones)",
                head,
                [[j, m, _n(n), _n(int(o))] for j, m, n, o in a["by_job"]],
                (46, 22, 14, 18),
                frozenset({2, 3}),
            )
        )
    return out


def _sources(sources: Sequence[Sequence[Any]]) -> list[Block]:
    """Imported objects; a tenant is not told the lines of the whole object, so those columns are left out."""
    columns: list[tuple[str, int, bool]] = [
        ("Source", 12, False), ("Class", 11, False), ("Time is", 10, False), ("Step ms", 12, True),
        ("Object", 23, False), ("Rows", 7, True), ("Lines", 8, True), ("Dup.", 8, True), ("Quar.", 9, True),
    ]  # fmt: skip
    withheld = not any(s[6] or s[7] for s in sources)
    kept = [i for i in range(len(columns)) if not (withheld and i in {6, 7})]
    rows = [[_n(s[i]) if isinstance(s[i], int) else str(s[i]) for i in kept] for s in sources]
    shown = [columns[i] for i in kept]
    numbers = frozenset(at for at, column in enumerate(shown) if column[2])
    out: list[Block] = [
        Grid("Imported objects", [c[0] for c in shown], rows, [c[1] for c in shown], numbers),
    ]
    if withheld:
        text = "Lines and repeated lines are counted over the whole object, others' rows too: not told here."
        out.append(Text(text, "note"))
    return out


def _appendix(f: dict[str, Any]) -> list[Block]:
    kinds = [[k, _n(n), _n(w), _n(s)] for k, n, w, s in f["records"]["by_kind"]]
    head: tuple[str, ...] = ("Kind", "Records", "In window", "Sensitive part withheld")
    ranges = [[s, i, _n(m), _n(n)] for s, i, m, n in f["ranges"]]
    return [
        Heading("Range and contents"),
        Grid(
            "Ranges between checkpoints (end excluded)",
            ("Scope", "Scope id", "From", "To"),
            ranges,
            (20, 50, 15, 15),
            frozenset({2, 3}),
        ),
        Grid("Records by kind", head, kinds, (40, 18, 18, 24), frozenset({1, 2, 3})),
        Grid("Tables", ("Table (CSV and Parquet)", "Rows"), _t(f["tables"]), (70, 30), frozenset({1})),
        Grid("Made with", ("Part", "Version"), _t(f["tool"]), (50, 50)),
        Heading("How to verify"),
        Text("sluicegate evidence verify PACKAGE.zip --trust TRUST.json"),
        Text(
            "The trust file must have reached you by another way than this package. It runs offline, "
            "rebuilds every table and this page from the records, and names the file and record of the first "
            "wrong thing. "
            "README.md in the package lists its steps and has a second, independent script.",
            "note",
        ),
    ]


def _n(value: int) -> str:
    """An integer with thin groups: 12 345."""
    return f"{value:,}".replace(",", " ")


def _t(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[_n(v) if isinstance(v, int) else str(v) for v in row] for row in rows]
