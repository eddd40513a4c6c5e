"""The command `sluicegate demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where package, PDF, HTML and logs are left.")] = Path("demo-out"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder too.")] = False,
) -> None:
    """Tell the whole story in about a minute: start, decide, rotate, gate, witness. Every step is checked.

    Runs on this machine only and exits non-zero when any step did not do what it says.
    """
    from policy_engine.demo.story import run

    raise typer.Exit(run(out, keep=keep))
