"""Import of the files of one command: each by its format, then accesses are laid to jobs.

Decides the order (access logs, job lists, attribution) and what a person is told of each. Each file is
committed on its own, so what was told stands when a later file is refused; the same command goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evidence.attribution_run import attribute, read_leases
from evidence.errors import NotAttributed, PutBefore, SourceRefused
from evidence.outbox import Inbox
from evidence.scope import ESTATE
from evidence.sources.importer import Format, Identity, Imported, import_log, s3_format, sacct_format
from evidence.sources.segments import Segment
from evidence.sources.slurm_sacct import Sacct
from evidence.sources.tenancy import TenantMap

if TYPE_CHECKING:
    from evidence.database import Database


def import_files(
    db: Database,
    s3: list[Path],
    sacct: list[Path],
    *,
    tenants: TenantMap,
    sacct_options: Sacct,
    leases: bytes | None,
    sources: Path,
    now_ns: int,
    uri: str | None = None,
) -> Iterator[str]:
    """Import files and, when there are accesses, attribute them; yields lines for a person.

    Args:
        db: started database with a ledger.
        s3: access logs.
        sacct: job lists.
        tenants: declared tables.
        sacct_options: settings that are used for each list.
        leases: lease list (CSV), or None.
        sources: the sources folder.
        now_ns: time of import.
        uri: origin of the one file.

    Raises:
        SourceUnreadable: nothing in a file can be read; nothing of it was committed.
        SourceRefused: a file can't be imported as asked, or all of this was imported before.
        NotAttributed: the files are imported, and their accesses can't be laid to jobs.
    """
    known = [] if leases is None else read_leases(leases)
    fresh, inbox, segments = False, Inbox(db), list[Segment]()
    for path, fmt in _formats(s3, sacct, tenants, sacct_options):
        identity = Identity(uri or f"file:{path.name}")
        done = import_log(path, fmt, identity, folder=sources, inbox=inbox, now_ns=now_ns)
        segments += done.segments
        fresh = fresh or done.fresh
        yield from _told(path.name, done, declared=tenants != TenantMap())
    if any(s.schema == "s3_access" for s in segments):
        digest = None if leases is None else hashlib.sha256(leases).hexdigest()
        try:
            runs = attribute(sources, segments, known, inbox=inbox, now_ns=now_ns, leases_sha256=digest)
        except PutBefore:
            runs = []
        except SourceRefused as why:
            raise NotAttributed(str(why), fix=why.fix) from None
        for run in runs:
            yield f"{run.scope}: " + ", ".join(f"{n} {m}" for m, n in run.counts.items() if n)
        fresh = fresh or bool(runs)
    if not fresh:
        raise SourceRefused(
            "all of this was imported before", fix="nothing to do; see the source_object records"
        )


def _formats(
    s3: list[Path], sacct: list[Path], tenants: TenantMap, options: Sacct
) -> Iterator[tuple[Path, Format]]:
    """A format of its own for each file: it remembers columns and repeated lines."""
    for path in s3:
        yield path, s3_format(tenants)
    for path in sacct:
        yield path, sacct_format(tenants, replace(options))


def _told(name: str, done: Imported, *, declared: bool) -> Iterator[str]:
    if not done.fresh:
        yield f"{name}: imported before, not again"
        return
    c = done.counts
    yield (
        f"{name}: {c.lines} lines, {c.rows} rows, {c.duplicates} repeated,"
        f" {c.quarantined} quarantined ({done.info.source_class})"
    )
    for reason, n in sorted(c.reasons.items()):
        yield f"  quarantined {n}: {reason}"
    nobodys = sum(s.rows for s in done.segments if s.scope == ESTATE)
    if nobodys and declared:
        yield f"  of no declared tenant {nobodys}: filed under {ESTATE}"
