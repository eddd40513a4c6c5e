"""Commands about declared state: `check`, `diff`, `facts`. Mounted by `policy_engine.cli`.

Exit codes: 0 good, 1 the answer is no (invalid state, a denied object), 2 wrong usage. No traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec

import orjson
import typer

from policy_engine.errors import ObjectUnreadable, PolicyEngineError, ResourceErrors, UsageError
from policy_engine.limits import LIMITS

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Declared state.")
_P = ParamSpec("_P")


class Output(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


class Assume(StrEnum):
    """What `check --objects` takes the links to be; nothing is measured offline."""

    encrypted = "encrypted"
    unknown = "unknown"


_Output = Annotated[Output, typer.Option("--output", "-o", help="Text for people, JSON for machines.")]


def _guarded(command: Callable[_P, None]) -> Callable[_P, None]:
    """Turns every error into one readable line and an exit code."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except UsageError as error:
            _fail(error, 2)
        except PolicyEngineError as error:
            _fail(error, 1)

    return run


def _fail(error: PolicyEngineError, code: int) -> NoReturn:
    _say(f"error: {error}", err=True)
    if error.fix:
        _say(f"  fix: {error.fix}", err=True)
    raise typer.Exit(code)


def _say(text: str, *, err: bool = False) -> None:
    """Prints text that may quote a file: what a terminal would obey is shown, not sent."""
    shown = (c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
    typer.echo("".join(shown), err=err)


def _print_json(value: object) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())


@app.command()
@_guarded
def check(
    directory: Annotated[Path, typer.Argument(help="Directory of declared state (YAML).")],
    *,
    objects: Annotated[
        list[Path] | None,
        typer.Option("--objects", help="Kubernetes manifests or AdmissionReviews to decide; - is stdin."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster whose API server would ask; else the only one that can.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Where objects without a namespace go.")] = "default",
    links: Annotated[
        Assume, typer.Option(help="Take keyed links to be proved encrypted and open, or unknown.")
    ] = Assume.encrypted,
    output: _Output = Output.text,
) -> None:
    """Check declared state; with --objects also decide objects under it."""
    from policy_engine.resources.load import load

    _directory(directory)
    try:
        resources = load(directory)
    except ResourceErrors as error:
        _print_problems(error, output)
        raise typer.Exit(1) from None
    if objects is None:
        if cluster is not None:
            raise UsageError("--cluster says for whom --objects are decided", fix="add --objects FILE")
        summary = {"ok": True, "digest": resources.digest, "objects": len(resources.objects), "problems": []}
        if output is Output.json:
            _print_json(summary)
        else:
            typer.echo(f"ok: {len(resources.objects)} objects, digest {resources.digest}")
        return
    from policy_engine.resources.offline import decide_files, render

    files = [(str(path), _read(path)) for path in objects]
    report = decide_files(
        resources, files, cluster=cluster, namespace=namespace, assume_encrypted=links is Assume.encrypted
    )
    if output is Output.json:
        _print_json(report)
    else:
        _say(render(report))
    if report["denied"]:
        raise typer.Exit(1)


@app.command()
@_guarded
def diff(
    old: Annotated[Path, typer.Argument(help="Directory before.")],
    new: Annotated[Path, typer.Argument(help="Directory after.")],
    fail_on_widening: Annotated[
        bool, typer.Option("--fail-on-widening", help="Exit 1 when approval is needed.")
    ] = False,
    output: _Output = Output.text,
) -> None:
    """Say what a change of declared state means: links, namespaces, what widens."""
    from policy_engine.resources.diff import diff as difference
    from policy_engine.resources.diff_text import render
    from policy_engine.resources.load import load

    sets = []
    for directory in (old, new):
        _directory(directory)
        try:
            sets.append(load(directory))
        except ResourceErrors as error:
            _print_problems(error, output, f"in {directory}")
            raise typer.Exit(1) from None
    found = difference(sets[0], sets[1])
    if output is Output.json:
        _print_json(found.as_dict())
    else:
        _say(render(found))
    if fail_on_widening and found.widening:
        raise typer.Exit(1)


@app.command()
@_guarded
def facts(
    file: Annotated[Path, typer.Argument(help="Kubernetes manifests or AdmissionReviews; - is stdin.")],
    cluster: Annotated[str, typer.Option(help="Name of the cluster to put into the facts.")] = "",
    namespace: Annotated[str, typer.Option(help="Where objects without a namespace go.")] = "default",
) -> None:
    """Print the facts of every object, one JSON document a line."""
    from policy_engine.facts import NoLookup
    from policy_engine.facts import facts as draw
    from policy_engine.resources.manifests import read_manifests

    lookup = NoLookup()
    try:
        manifests = read_manifests(_read(file), namespace=namespace)
    except ObjectUnreadable as error:
        raise ObjectUnreadable(f"{file}: {error}", fix=error.fix) from None
    if not manifests:
        raise ObjectUnreadable("the files hold no object", fix="name a file that holds one")
    for manifest in manifests:
        result = draw(manifest.request, lookup, cluster=cluster)
        typer.echo(orjson.dumps(result, option=orjson.OPT_SORT_KEYS).decode())


def _directory(path: Path) -> None:
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", fix="name the directory that holds the YAML files")


def _read(path: Path) -> bytes:
    """A file or stdin, at most the limit plus one byte (which the reader then refuses)."""
    limit = LIMITS.object_file_bytes + 1
    if str(path) == "-":
        return sys.stdin.buffer.read(limit)
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file")
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _print_problems(error: ResourceErrors, output: Output, where: str = "") -> None:
    if output is Output.json:
        _print_json({"ok": False, "problems": [p.as_dict() for p in error.problems]})
        return
    for problem in error.problems:
        _say(str(problem), err=True)
    _say(f"{error} {where}".rstrip(), err=True)
