"""`sluicegate evidence`: verify and show packages; import logs and export packages of a state folder.

`verify` and `show` import only what an auditor's machine needs (extra `verify`): no web framework, no
database layer, no KMS client. What a person is told, and the exit codes, are in `telling.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.errors import ExportRefused
from evidence.telling import any_terminal, code_of, plain, print_verdict, safe, summary

if TYPE_CHECKING:
    from evidence.checkpoint import Signer
    from evidence.database import Database

SIGNER_ENTRY_POINTS = "sluicegate.evidence_signer"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Export, verify and show auditor packages; import access logs and job lists.",
)
_State = Annotated[Path, typer.Option("--state", envvar="SLUICEGATE_STATE", help="State folder.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]
DEFAULT_STATE = Path("sluicegate-state")


@app.callback()
def _any_terminal() -> None:
    any_terminal()


@app.command()
def verify(
    package: Annotated[Path, typer.Argument(help="The zip.", exists=True, dir_okay=False)],
    trust: Annotated[
        Path | None, typer.Option(help="Trust file, from outside the package.", exists=True, dir_okay=False)
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Fingerprint of the ledger's key, instead of a trust file.")
    ] = None,
    scope: Annotated[list[str] | None, typer.Option(help="NAME=ID of a scope, with --key.")] = None,
    as_json: _Json = False,
) -> None:
    """Verify a package offline; names the first wrong thing."""
    from evidence.package.verify import verify as run

    with plain("not verified"):
        root = _trust(trust, key, scope or [])
        verdict = run(package, root)
    with plain("verdict not printed"):
        print_verdict(verdict, as_json)
    raise typer.Exit(code_of(verdict))


@app.command()
def show(
    package: Annotated[Path, typer.Argument(help="The zip.", exists=True, dir_okay=False)],
    extract: Annotated[Path | None, typer.Option(help="Unpack the members into this new folder.")] = None,
    as_json: _Json = False,
) -> None:
    """Show what a package says of itself. Verifies nothing but the container: use `verify` for that."""
    from evidence.package import container
    from evidence.package.decoding import load
    from evidence.package.members import guard, member
    from evidence.package.model import FIGURES

    with plain("cannot be shown"):
        members = container.read(package.read_bytes(), "2", package.name)
        value = guard("15", FIGURES, lambda: load(member(members, "6", FIGURES)))
        told = summary(value, len(members))
        if extract is not None:
            _extract(members, extract)
        typer.echo(json.dumps(value, indent=2) if as_json else told)


@app.command("import")
def import_(  # noqa: PLR0917
    s3: Annotated[
        list[Path] | None, typer.Option(help="S3 server access log.", exists=True, dir_okay=False)
    ] = None,
    sacct: Annotated[
        list[Path] | None, typer.Option(help="Text of `sacct -P --duplicates`.", exists=True, dir_okay=False)
    ] = None,
    tenants: Annotated[
        Path | None,
        typer.Option(help="JSON: buckets, principals, accounts to tenants.", exists=True, dir_okay=False),
    ] = None,
    no_tenants: Annotated[
        bool, typer.Option("--no-tenants", help="File every row under `estate`, for good.")
    ] = False,
    leases: Annotated[
        Path | None,
        typer.Option(help="CSV: address,node,from,to,shared.", exists=True, dir_okay=False),
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="Where the object was fetched from; only with one file.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Slurm cluster, when the listing has no such column.")
    ] = None,
    delimiter: Annotated[str, typer.Option(help="As given to sacct.")] = "|",
    zone: Annotated[
        str | None, typer.Option(help="IANA zone of the listing's times, when they have none.")
    ] = None,
    state: _State = DEFAULT_STATE,
) -> None:
    """Import logs into the ledger by segment, and lay accesses to jobs.

    An object is imported once: under which tenants its rows were filed can't be changed later.
    """
    from evidence.sources.files import import_files
    from evidence.sources.slurm_sacct import Sacct
    from evidence.sources.tenancy import TenantMap

    files = [*(s3 or []), *(sacct or [])]
    if not files or (uri is not None and len(files) > 1):
        raise typer.BadParameter("give --s3 or --sacct; --uri only with one file")
    if (tenants is None) is not no_tenants:
        raise typer.BadParameter(
            "give --tenants FILE, or --no-tenants: every row is then filed under `estate`, for good, and no "
            "tenant's package has it"
        )
    with plain("not imported"), _database(state) as (db, now):
        table = TenantMap() if tenants is None else TenantMap.from_json(tenants.read_bytes())
        options = Sacct(cluster, delimiter, zone)
        lease_data = None if leases is None else leases.read_bytes()
        lines = import_files(
            db, s3 or [], sacct or [], tenants=table, sacct_options=options, leases=lease_data,
            sources=state / "sources", now_ns=now, uri=uri,
        )  # fmt: skip
        for line in lines:  # as each file is done: what is told is committed, whatever comes after
            typer.echo(safe(line))


@app.command()
def export(  # noqa: PLR0917
    scope: Annotated[str, typer.Option(help="Tenant, or `estate`.")],
    begin: Annotated[str, typer.Option("--from", help="Start of the window, RFC 3339 with a zone.")],
    end: Annotated[str, typer.Option("--to", help="End of the window (excluded), RFC 3339 with a zone.")],
    out: Annotated[Path, typer.Option(help="The zip to write; the trust file is written beside it.")],
    lateness: Annotated[int, typer.Option(help="Lateness bound L, seconds.", min=0)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a package and trust file there.")] = False,
    state: _State = DEFAULT_STATE,
) -> None:
    """Export the auditor package of one scope and window.

    Signing needs the running system, which holds the ledger's key: start `sluicegate up` first.
    """
    from evidence.outbox import put
    from evidence.package.build import export as run

    window = _time(begin), _time(end)
    with plain("not exported"):
        _check_place(out, force)
        with _database(state) as (db, now):
            done = run(
                db, _signer(state), scope, window, out,
                sources=state / "sources", now_ns=now, lateness_ns=lateness * 1_000_000_000,
            )  # fmt: skip
            db.write_sync(lambda conn: put(conn, done.draft()))
    with plain("exported, not told"):
        typer.echo(f"package      {done.path}\nsha256       {done.sha256}\ntrust file   {done.trust_path}")
        typer.echo(f"signed by    {done.fingerprint}")
        for why in done.predicate.provisional:
            typer.echo(f"provisional  {why}")
        typer.echo("Hand the trust file and the two digests over by another way than the package.")


def _check_place(out: Path, force: bool) -> None:
    """A package that was handed over, and its trust file, are not replaced by mistake."""
    if not out.parent.is_dir():
        raise ExportRefused(f"there is no folder {out.parent.name}", fix="make it first, or see --out")
    from evidence.package.trust import trust_path_of

    for path in (out, trust_path_of(out)):
        if path.is_dir() or (path.exists() and not force):
            raise ExportRefused(f"{path.name} is there already", fix="name another --out, or give --force")


@contextmanager
def _database(state: Path) -> Iterator[tuple[Database, int]]:
    from evidence.database import Database
    from evidence.errors import StoreUnavailable

    path = state / "sluicegate.db"
    if not path.is_file():
        raise StoreUnavailable(
            f"there is no ledger in {state.name}", fix="give --state, or run `sluicegate up` first"
        )
    db = Database(path)
    db.start()
    try:
        yield db, time.time_ns()
    finally:
        db.stop()


def _signer(state: Path) -> Signer:
    """The ledger's signer, from whoever composes the product (entry point `state folder -> Signer`)."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=SIGNER_ENTRY_POINTS))
    if not found:
        raise ExportRefused(
            "this installation has no signer for the ledger's key", fix="export through the control plane"
        )
    factory: Callable[[Path], Signer] = found[0].load()
    return factory(state)


def _trust(file: Path | None, key: str | None, scopes: list[str]) -> Any:
    from evidence.package.trust import Trust, read_trust, trust_of_fingerprint

    if file is not None and (key is not None or scopes):
        raise typer.BadParameter("give --trust, or --key with --scope, not both")
    if file is not None:
        return read_trust(file.read_bytes())
    if key is None:
        if scopes:
            raise typer.BadParameter("--scope needs --key")
        return Trust()
    pairs = dict(s.split("=", 1) for s in scopes if "=" in s)
    if len(pairs) != len(scopes):
        raise typer.BadParameter("write --scope NAME=ID")
    return trust_of_fingerprint(key, pairs)


def _time(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        return (at - epoch) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError):
        raise typer.BadParameter("write a time with a zone, as 2025-03-03T00:00:00Z") from None


def _extract(members: Mapping[str, memoryview], folder: Path) -> None:
    """Unpack into a new folder; names were checked by the container."""
    if folder.exists():
        raise ExportRefused(f"{folder.name} is there already", fix="name a new folder")
    if not folder.parent.is_dir():
        raise ExportRefused(f"there is no folder {folder.parent}", fix="make it, or name a folder in another")
    folder.mkdir()
    for name, data in members.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def main() -> None:
    """Entry point for a verifier's machine without the rest."""
    app(prog_name="sluicegate evidence")


if __name__ == "__main__":
    main()
