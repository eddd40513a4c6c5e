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
        str | None, typer.Option(help="`auto` takes free ports and writes them to run/endpoints.json.")
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: OpenBao, control plane, agents, links.

    Stops without orphans. After kill -9 the next `up` on the same state folder takes over the agents
    and data planes that are still alive.
    """
    from policy_engine.embedded.up import run

    overrides: dict[str, Any] = {"state_dir": state, "estate_dir": estate, "traffic": traffic}
    if ports == "auto":
        overrides |= dict.fromkeys(("admission_port", "api_port", "agents_port"), 0)
    elif ports is not None:
        raise typer.BadParameter("only `auto` is known", param_hint="--ports")
    raise typer.Exit(run(overrides, config))


@app.command()
def status(
    state: State = None, config: Config = None, as_json: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """Whether an `up` runs on this state folder, where it listens, and what it says of itself."""
    from policy_engine.embedded.state import StateFolder, holder
    from policy_engine.settings import load

    folder = StateFolder(load({"state_dir": state}, file=config).settings.state_dir.absolute())
    pid = holder(folder)
    if pid is None:
        typer.echo(f"nothing runs on {folder.root}")
        typer.echo("  start it with `sluicegate up`")
        raise typer.Exit(1)
    found = json.loads(folder.endpoints.read_text(encoding="utf-8")) if folder.endpoints.exists() else {}
    if as_json:
        typer.echo(json.dumps({"pid": pid, "state": str(folder.root), **found}, indent=2))
        return
    typer.echo(f"up (pid {pid}) on {folder.root}")
    for name in ("admission", "api", "agents", "openbao"):
        if name in found:
            typer.echo(f"  {name:<10} {found[name]}")
    typer.echo("  next: sluicegate links")


@app.command()
def config(state: State = None, config: Config = None) -> None:
    """Show each setting, its value and where the value came from. Secrets are redacted."""
    from policy_engine.settings import load

    rows = load({"state_dir": state}, file=config).rows()
    names, values = (max(len(row[i]) for row in rows) for i in (0, 1))
    for name, value, source in rows:
        typer.echo(f"{name:<{names}}  {value:<{min(values, 48)}}  {source}")
