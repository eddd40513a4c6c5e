"""Building: from a window of the ledger to the octets of a package, and the trust file beside it.

`collect` reads one snapshot of the ledger; `build` is pure but for the workbench's scratch folder: equal
inputs give equal octets under one lock file (the signature is Ed25519, so it is equal too).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence import dsse, durable
from evidence.canonical import u64
from evidence.checkpoint import Signer, VerifierKey, open_checkpoint, verifier_of
from evidence.errors import EvidenceError, ExportRefused, NotCanonical, NotInLedger
from evidence.package import container, figures, html, pdf
from evidence.package.collect import Collected, collect
from evidence.package.contents import (
    Contents,
    fill_records,
    frozen_members,
    manifest,
    repeatable,
    statement,
    table_members,
)
from evidence.package.decoding import Malformed
from evidence.package.model import (
    CHECKPOINT,
    EMBEDDED,
    ENVELOPE,
    FIGURES,
    HTML,
    MANIFEST,
    PAYLOAD_TYPE,
    PDF,
    SIGNER,
    Predicate,
    proofs_name,
    records_name,
    segment_name,
)
from evidence.package.trust import SignerFile, Trust, trust_path_of
from evidence.package.workbench import Workbench
from evidence.records import Draft

if TYPE_CHECKING:
    from evidence.database import Database

PACKAGE_SOURCE = "export"


@dataclass(frozen=True, slots=True)
class Exported:
    """A package on disk.

    Attributes:
        path: the zip.
        trust_path: the trust file; hand it over by another way than the zip.
        sha256: of the zip; for another channel, since no signature covers the container's headers.
        predicate: what was signed.
        fingerprint: of the signing key.
    """

    path: Path
    trust_path: Path
    sha256: str
    predicate: Predicate
    fingerprint: str

    def draft(self, requested_by: str | None = None) -> Draft:
        """The `package_export` record that the caller puts into its outbox."""
        p = self.predicate
        public = {
            "package_id": self.sha256[:32],
            "package_sha256": self.sha256,
            "scopes": [r.scope for r in p.ranges],
            "window_begin": u64(p.window[0]),
            "window_end": u64(p.window[1]),
            "ranges": [[u64(r.begin), u64(r.end)] for r in p.ranges],
            "provisional": bool(p.provisional),
        }
        sensitive = {} if requested_by is None else {"requested_by": requested_by}
        return Draft("package_export", p.ranges[0].scope, PACKAGE_SOURCE, p.made_ns, public, sensitive)


def export(
    db: Database,
    signer: Signer,
    scope: str,
    window: tuple[int, int],
    out: Path,
    *,
    sources: Path,
    now_ns: int,
    lateness_ns: int = 0,
    custody: str = EMBEDDED,
) -> Exported:
    """Make the package of one scope and window.

    Args:
        db: started database of the ledger; only read.
        signer: of the ledger's key.
        scope: `estate` or a tenant's name.
        window: event window [t0, t1), nanoseconds UTC.
        out: the zip to write; the trust file is written beside it as `<out>.trust.json`.
        sources: the sources folder with segments.
        now_ns: time of making.
        lateness_ns: bound L; the package is provisional before a checkpoint after t1 + L exists.
        custody: printed on page one.

    Raises:
        ExportRefused: no such scope, no signed checkpoint, another signing key, records that do not verify.
        SourceRefused: a segment is gone or was changed.
    """
    from evidence.store import scopes
    from evidence.view import LedgerView

    if window[0] >= window[1]:
        raise ExportRefused("the window is empty", fix="give --from before --to")
    if window[0] >= now_ns:
        raise ExportRefused("the window has not begun", fix="give a window that begins in the past")
    try:
        got = db.read_sync(
            lambda conn: collect(
                LedgerView(conn),
                scope,
                window,
                sources,
                now_ns=now_ns,
                lateness_ns=lateness_ns,
                custody=custody,
            )
        )
    except NotInLedger as why:
        known = ", ".join(sorted(db.read_sync(scopes)))
        raise ExportRefused(str(why), fix=why.fix or f"scopes of this ledger: {known}") from None
    except Malformed as why:
        raise ExportRefused(f"the records of this range would not verify: {why}") from None
    key = verifier_of(signer)
    _check_key(key, got)
    members = build(got, signer)
    digest = _write(out, members)
    trust = Trust(got.predicate.origin, (key,), None, {r.scope: r.scope_id for r in got.predicate.ranges})
    trust_path = trust_path_of(out)
    _replace(trust_path, [trust.encode()])
    return Exported(out, trust_path, digest, got.predicate, key.fingerprint)


def _check_key(key: VerifierKey, got: Collected) -> None:
    """The signer must be connected to whoever signed the checkpoint, else nobody could verify."""
    origin = got.predicate.origin
    try:
        history = SignerFile(key, got.changes).accepted(Trust(origin, (key,)), origin)
        open_checkpoint(got.checkpoint, history.keys, origin)
    except EvidenceError as why:
        raise ExportRefused(f"this signer is not of this ledger: {why}") from None


def build(got: Collected, signer: Signer) -> dict[str, bytes]:
    """All members of the package.

    Raises:
        ExportRefused: what was collected would not verify.
    """
    import duckdb

    predicate = got.predicate
    members = frozen_members()
    members[CHECKPOINT] = got.checkpoint
    members[SIGNER] = SignerFile(verifier_of(signer), got.changes).encode()
    members |= {proofs_name(i): p.encode() for i, p in got.proofs.items()}
    members |= {records_name(r.scope_id): _lines(lines) for r, lines in got.records}
    members |= {segment_name(i): _lines(lines) for i, lines in got.segments.items()}
    try:
        tables, value = tabulate(predicate, got.contents, got.segments)
        members[FIGURES] = figures.encode(value)
    except (Malformed, NotCanonical) as why:
        raise ExportRefused(f"the records cannot be tabulated: {why}") from None
    except duckdb.Error:
        raise ExportRefused("the records cannot be tabulated: values that no table can hold") from None
    members |= tables
    members[HTML], members[PDF] = html.render(value), pdf.render(value)
    members[MANIFEST] = manifest(members)
    body = statement(hashlib.sha256(members[MANIFEST]).hexdigest(), predicate)
    members[ENVELOPE] = dsse.seal(PAYLOAD_TYPE, body, signer)
    return members


def tabulate(
    predicate: Predicate, contents: Contents, segments: Mapping[str, Sequence[bytes]]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Members of all tables, and the figures."""
    with tempfile.TemporaryDirectory(prefix="sluicegate-") as folder, Workbench(Path(folder)) as bench:
        fill_records(bench, predicate, contents)
        for ref in contents.segments.values():
            bench.load_segment(ref.segment_id, ref.schema, segments[ref.segment_id])
        bench.lay_out()
        for run in contents.runs:
            if repeatable(run, contents):
                again, committed = bench.attribute_as_committed(run.access, run.jobs, run.result)
                if again != committed:
                    raise Malformed(f"attribution run at seq {run.seq} does not repeat")
        counts = bench.build_tables()
        return table_members(bench, Path(folder)), figures.figures(bench, predicate, contents, counts)


def _lines(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write(out: Path, members: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    parts = list(container.write(members))
    for part in parts:
        digest.update(part)
    _replace(out, parts)
    return digest.hexdigest()


def _replace(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    try:
        durable.make_folder(path.parent)
        durable.replace(path, parts)
    except OSError as why:
        raise ExportRefused(f"{path.name} cannot be written ({why.strerror})") from None
