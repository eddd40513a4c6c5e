"""Collecting: records, proofs and segments of one window, from one snapshot of the ledger."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence.errors import ExportRefused
from evidence.package.contents import Contents, read_contents
from evidence.package.model import (
    STILL_OPEN,
    TOOLS,
    Predicate,
    Range,
    parse_record_line,
    record_line,
    releases,
)
from evidence.package.proofs import Before, HeadProof, ScopeProofs
from evidence.scope import EMPTY_HEAD, ESTATE
from evidence.signing import KIND as SIGNING_KEY
from evidence.sources.segments import read

if TYPE_CHECKING:
    from evidence.view import LedgerView, Tick


@dataclass(frozen=True, slots=True)
class Collected:
    """What one snapshot of the ledger gave for a package; `contents` is what its records were read as."""

    predicate: Predicate
    checkpoint: bytes
    changes: Sequence[Mapping[str, Any]]
    proofs: Mapping[str, ScopeProofs]
    records: Sequence[tuple[Range, Sequence[bytes]]]
    contents: Contents
    segments: Mapping[str, Sequence[bytes]]


def collect(
    view: LedgerView,
    scope: str,
    window: tuple[int, int],
    sources: Path,
    *,
    now_ns: int,
    lateness_ns: int,
    custody: str,
) -> Collected:
    """Read records, proofs and segments of a window from one snapshot.

    Raises:
        ExportRefused: no signed checkpoint.
        NotInLedger: no such scope.
        Malformed: the records would not verify.
        SourceRefused: a segment is gone or was changed.
    """
    scope_id = view.find_scope(scope)
    begin, end, provisional = _ticks(view, window, lateness_ns)
    proofs = _proofs(view, scope_id, _early(view, scope_id, begin, window[0]), end)
    rng = Range(scope, scope_id, proofs.frontier.size, proofs.end.head.size)
    lines = [
        record_line(r.seq, r.parts, release=releases(r.kind, estate=scope == ESTATE))
        for r in view.records(scope_id, rng.begin, rng.end)
    ]
    contents = read_contents([(rng, [parse_record_line(line) for line in lines])])
    segments = {
        s.segment_id: list(read(sources / "segments", s.segment_id, s.schema, s.root.hex(), s.rows))
        for s in contents.segments.values()
    }
    estate = view.find_scope(ESTATE)
    changes = [r.parts.public_fields() for r in view.records(estate, kind=SIGNING_KEY)]
    faults = contents.faults or _faults(view, estate, window)
    predicate = Predicate(
        view.origin(),
        window,
        lateness_ns,
        (rng,),
        max(now_ns, end.time_ns),
        tuple(provisional),
        custody=custody,
        faults=faults,
        tool=tool_versions(),
    )
    return Collected(
        predicate, view.checkpoint(end.tick), changes, {scope_id: proofs}, [(rng, lines)], contents, segments
    )


def _ticks(
    view: LedgerView, window: tuple[int, int], lateness_ns: int
) -> tuple[Tick | None, Tick, list[str]]:
    """The last tick before t0 and the first signed one after t1 + L; else the latest, and why."""
    count = view.tick_count()
    last = next((t for n in range(count - 1, -1, -1) if (t := view.tick(n)).note is not None), None)
    if last is None:
        raise ExportRefused("the ledger has no signed checkpoint yet", fix="wait for the first tick")
    first_inside = _first_after(view, window[0], count)
    begin = view.tick(first_inside - 1) if first_inside else None
    first_past = _first_after(view, window[1] + lateness_ns, count)
    past = next((t for n in range(first_past, count) if (t := view.tick(n)).note is not None), None)
    if past is not None:
        return begin, past, []
    if begin is not None and begin.tick > last.tick:
        raise ExportRefused("the window begins after the last signed checkpoint", fix="wait for a tick")
    return begin, last, [STILL_OPEN]


def _first_after(view: LedgerView, time_ns: int, count: int) -> int:
    """Number of the first tick later than a time; ticks are in order of time."""
    return bisect.bisect_right(range(count), time_ns, key=lambda n: view.tick(n).time_ns)


def _proofs(view: LedgerView, scope_id: str, begin: Tick | None, end: Tick) -> ScopeProofs:
    last = _head_proof(view, scope_id, end, end)
    first = None if begin is None else _head_proof(view, scope_id, begin, end)
    if first is None or first.head.size == 0:
        first = None
    size = 0 if first is None else first.head.size
    return ScopeProofs(view.frontier(scope_id, size), first, _before(view, scope_id, size), last)


def _early(view: LedgerView, scope_id: str, begin: Tick | None, from_ns: int) -> Tick | None:
    """Go back until the last record before the range was received before the window (clocks may differ)."""
    while begin is not None:
        before = _before(view, scope_id, view.heads_at(begin.tick).get(scope_id, EMPTY_HEAD).size)
        if before is None or before.received_ns() <= from_ns:
            return begin
        begin = view.tick(begin.tick - 1) if begin.tick else None
    return None


def _before(view: LedgerView, scope_id: str, size: int) -> Before | None:
    """The last record of the first `size`, with its path; None where there is none."""
    if size == 0:
        return None
    (record,) = view.records(scope_id, size - 1, size)
    parts, path = record.parts, tuple(view.inclusion(scope_id, size - 1, size))
    return Before(parts.header.decode(), parts.salts[:16], *parts.digests()[1:], path)


def _head_proof(view: LedgerView, scope_id: str, tick: Tick, end: Tick) -> HeadProof:
    found = view.map_proof(tick.tick, scope_id)
    path = view.tick_proof(tick.tick, end.tick + 1)
    return HeadProof(tick.tick, found.head, tick.map_root, found.siblings, tuple(path))


def _faults(view: LedgerView, estate: str, window: tuple[int, int]) -> bool:
    """Whether the estate's scope says so for this window: a tenant's own records need not."""
    return any(
        int(r.parts.header_fields().get("event_time", "0")) < window[1]
        for r in view.records(estate, kind="faults_enabled")
    )


def tool_versions() -> dict[str, str]:
    """Versions of what makes the members: equal versions give equal octets."""
    out = {}
    for name in TOOLS:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            fix = "install the wheel with its extra 'report'"
            raise ExportRefused(f"{name} is not installed", fix=fix) from None
    return out
