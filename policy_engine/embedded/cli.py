"""Commands that run the system: up, status, config. Imports stay inside: `--help` is quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True)

State = Annotated[
    Path | None,
    typer.Option("--state", help="State folder (default: ./sluicegate-state or $SLUICEGATE_STATE)."),
]
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (default: ./sluicegate.yaml).")]


@app.command()
def up(
    state: State = None,
    estate: Annotated[
        Path | None, typer.Option("--estate", help="Folder of declared resources (default: the example).")
    ] = None,
    config: Config = None,
    traffic: Annotated[
        bool | None, typer.Option("--traffic/--no-traffic", help="Example traffic over the links.")
    ] = None,
    ports: Annotated[
        str | None, typer.Option(help="`auto`: free ports at the first start, the same ones afterwards.")
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: OpenBao, control plane, agents, links.

    Stops without orphans. After kill -9 the next `up` on the same state folder takes over the agents
    and data planes that are still alive.
    """
    from policy_engine.embedded.up import run

    overrides: dict[str, Any] = {"state": state, "estate_dir": estate, "traffic": traffic}
    if ports == "auto":
        overrides |= dict.fromkeys(("admission_port", "api_port", "agents_port"), 0)
    elif ports is not None:
        raise typer.BadParameter("only `auto` is known", param_hint="--ports")
    raise typer.Exit(run(overrides, config))


@app.command()
def status(
    state: State = None, config: Config = None, as_json: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """Whether an `up` runs on this state folder, where it listens, and what it says of itself.

    Exit code 1: nothing runs, or what runs does not answer.
    """
    from policy_engine.embedded.ask import ask, lines
    from policy_engine.embedded.state import StateFolder, holder
    from policy_engine.embedded.survivors import survivors, told
    from policy_engine.errors import CouldNotTell
    from policy_engine.settings import load

    folder = StateFolder(load({"state": state}, file=config).settings.state.absolute())
    pid = holder(folder)
    if pid is None:
        left = survivors(folder)
        if as_json:
            shown = {f"{one.role}/{one.name}": one.pid for one in left}
            typer.echo(json.dumps({"pid": None, "state": str(folder.root), "survivors": shown}, indent=2))
        else:
            typer.echo("\n".join([f"nothing runs on {folder.root}", *told(left, folder)]))
        raise typer.Exit(1)
    found: dict[str, Any] = _endpoints(folder.endpoints)
    said: dict[str, Any] = {}
    silent = ""
    if found:
        try:
            said = ask(found)
        except CouldNotTell as error:
            silent = f"{error}; {error.fix}"
    else:
        silent = "it is starting or stopping: no address is noted yet"
    if as_json:
        doc = {"pid": pid, "state": str(folder.root), **found, "says": said, "error": silent or None}
        typer.echo(json.dumps(doc, indent=2))
        raise typer.Exit(1 if silent else 0)
    typer.echo(f"up (pid {pid}) on {folder.root}")
    for name in ("admission", "api", "agents", "openbao"):
        if name in found:
            typer.echo(f"  {name:<10} {found[name]}")
    if silent:
        typer.echo(f"error: pid {pid} is there, but {silent}", err=True)
        raise typer.Exit(1)
    typer.echo("\n".join(lines(said)))
    typer.echo("  next: sluicegate links")


def _endpoints(file: Path) -> dict[str, Any]:
    """What a running `up` noted; empty while it starts or stops."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


@app.command()
def config(state: State = None, config: Config = None) -> None:
    """Show each setting, its value and where the value came from. Secrets are redacted.

    When a setting is refused it lists every known one with its default instead, and exits with 1.
    """
    from policy_engine.errors import SettingsError
    from policy_engine.settings import known, load

    try:
        rows = load({"state": state}, file=config).rows()
    except SettingsError as error:
        typer.echo("known settings and their defaults:")
        for name, default, meaning in known():
            typer.echo(f"  {name:<22} {default:<17} {meaning}")
        typer.echo(f"error: {error}", err=True)
        typer.echo("  fix: correct it; environment names are SLUICEGATE_ and the name in capitals", err=True)
        raise typer.Exit(1) from None
    names, values = (max(len(row[i]) for row in rows) for i in (0, 1))
    for name, value, source in rows:
        typer.echo(f"{name:<{names}}  {value:<{min(values, 48)}}  {source}")
