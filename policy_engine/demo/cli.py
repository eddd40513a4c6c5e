"""The command `sluicegate demo`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

app = typer.Typer(no_args_is_help=False)
# One of each extra that the story needs; the system runs in a process of its own and would end there.
NEEDED: Final = (
    "pydantic_settings",
    "fastapi",
    "hvac",
    "sqlmodel",
    "uvicorn",
    "wasmtime",
    "duckdb",
    "reportlab",
)


def refuse_without_server() -> None:
    """Say what is missing before anything starts.

    Raises:
        ModuleNotFoundError: The first that is not installed.
    """
    for name in NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where package, PDF, HTML and logs are left.")] = Path("demo-out"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder too.")] = False,
) -> None:
    """Tell the whole story in about a minute: start, decide, rotate, gate, witness. Every step is checked.

    Runs on this machine only. Exits with 1 when any step did not do what it says, with 130 when interrupted.
    """
    refuse_without_server()
    from policy_engine.demo.story import run

    raise typer.Exit(run(out, keep=keep))
