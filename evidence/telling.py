"""What a person at a terminal is told of packages and refusals, and with which exit code.

Exit codes of all commands: 0 done or verified; 1 not verified or refused; 2 wrong usage; 3 consistent, signer
not established; 4 signed by the trusted key, scope not established; 5 nothing in an object to import can be
read. Text from a package or a log is hostile: it moves no terminal.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from evidence.errors import EvidenceError, NotAttributed, PackageInvalid, SourceUnreadable, TrustInvalid

if TYPE_CHECKING:
    from evidence.package.verify import Verdict

OK, NO, USAGE, NO_SIGNER, NO_SCOPE, NO_ROW = 0, 1, 2, 3, 4, 5


def any_terminal() -> None:
    """A character that the terminal's encoding lacks is shown by its number, and stops nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_verdict(verdict: Verdict, as_json: bool) -> None:
    """Print what `verify` established, what it did not, and what to do about that."""
    p = verdict.predicate
    if as_json:
        value = {
            "verdict": verdict.text,
            "labels": list(verdict.labels),
            "notes": list(verdict.notes),
            "sha256": verdict.sha256,
            "fingerprint": verdict.fingerprint,
            "origin": p.origin,
            "ranges": [[r.scope, r.scope_id, r.begin, r.end] for r in p.ranges],
            "findings": verdict.figures["findings"],
        }
        typer.echo(json.dumps(value, indent=2))  # ASCII: nothing in it moves a terminal
        return
    f = verdict.figures
    typer.echo(f"{verdict.text.upper()}  ({'; '.join(verdict.labels)})")
    for r in p.ranges:
        typer.echo(f"scope        {safe(r.scope)}: records {r.begin} to {r.end}, whole range")
    typer.echo(f"window       {f['window'][0]} to {f['window'][1]}")
    typer.echo(f"log          {safe(p.origin)}")
    typer.echo(f"signed by    {verdict.fingerprint}\nsha256       {verdict.sha256}")
    for note in verdict.notes:
        typer.echo(f"note         {safe(note)}")
    for finding in f["findings"]:
        typer.echo(f"finding      {safe(finding)}")
    if (code := code_of(verdict)) in _NEXT:
        typer.echo(f"next         {_NEXT[code]}")


def code_of(verdict: Verdict) -> int:
    """The exit code that says what was established."""
    from evidence.package import verify

    return {verify.VERIFIED: OK, verify.NO_SIGNER: NO_SIGNER, verify.NO_SCOPE: NO_SCOPE}[verdict.text]


#: What to do where something is not established.
_NEXT = {
    NO_SIGNER: "anyone could have made this: give --trust FILE, or --key with --scope, from the operator by "
    "another way than the package",
    NO_SCOPE: "it may be of another tenant: give --scope NAME=ID, from the operator by another way than the "
    "package",
}


def summary(f: Any, members: int) -> str:
    """Lines that say what a package says of itself.

    Raises:
        PackageInvalid: its figures are of another shape.
    """
    try:
        labels, findings = (list(map(_word, f[name])) for name in ("labels", "findings"))
        begin, end = map(_word, f["window"])
        scope, total = _word(f["scope"]), _word(f["records"]["total"])
        admitted, refused = (_word(f["decisions"][name]) for name in ("admitted", "refused"))
        matched, accesses = (_word(f["attribution"][name]) for name in ("matched", "total"))
    except (TypeError, KeyError, ValueError):
        why = "does not have the figures that a package of this form has"
        raise PackageInvalid("15", "figures.json", why) from None
    lines = [
        f"NOT VERIFIED: this is what the package says of itself ({'; '.join(labels)})",
        f"scope        {scope}",
        f"window       {begin} to {end}",
        f"members      {members}",
        f"records      {total}",
        f"decisions    {admitted} admitted, {refused} refused",
        f"accesses     {matched} of {accesses} matched",
        *(f"finding      {t}" for t in findings),
    ]
    return "\n".join(safe(line) for line in lines)


def _word(value: object) -> str:
    """A text or a whole number, as text."""
    if type(value) not in {str, int}:
        raise TypeError
    return str(value)


def safe(text: str) -> str:
    """Text from a package for a terminal: no control characters."""
    return "".join(ch if ch.isprintable() else "?" for ch in text)


@contextmanager
def plain(failure: str) -> Iterator[None]:
    """Turn every error into a line for a person and an exit code; never a traceback."""
    try:
        yield
    except (typer.Exit, typer.BadParameter, BrokenPipeError):  # whoever read it stopped: 1, and no words
        raise
    except EvidenceError as why:
        _tell("imported, not attributed" if isinstance(why, NotAttributed) else failure, why, why.fix)
        raise typer.Exit(_code(why)) from None
    except ModuleNotFoundError as why:
        extra = "verify" if failure in {"not verified", "cannot be shown"} else "server"
        told = f"this needs {why.name}; install the wheel with its extra '{extra}'"
        typer.echo(f"{failure.upper()}: {told}", err=True)
        raise typer.Exit(USAGE) from None
    except OSError as why:
        named = Path(str(why.filename)).name if why.filename else "a file"
        typer.echo(f"{failure.upper()}: {safe(named)}: {why.strerror or type(why).__name__}", err=True)
        typer.echo("  see that it is a file that you may read, or a place where you may write", err=True)
        raise typer.Exit(NO) from None
    except Exception as why:
        fix = getattr(why, "fix", None)
        if isinstance(fix, str):  # made for people by whoever composes the product: the signer's errors
            _tell(failure, why, fix)
        else:  # its text may quote content; the class is enough to report it
            typer.echo(f"{failure.upper()}: could not be read to the end ({type(why).__name__})", err=True)
        raise typer.Exit(NO) from None


def _code(why: EvidenceError) -> int:
    if isinstance(why, TrustInvalid):
        return USAGE  # what was given with the command, nothing about the package
    return NO_ROW if isinstance(why, SourceUnreadable) else NO


def _tell(failure: str, why: Exception, fix: str) -> None:
    typer.echo(f"{failure.upper()}: {safe(str(why))}", err=True)
    if fix:
        typer.echo(f"  {safe(fix)}", err=True)
