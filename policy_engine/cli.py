"""The command ``sluicegate``: one root whose commands are imported only when they are called.

The root imports typer and nothing of ours, so that ``sluicegate agent`` and ``sluicegate evidence
verify`` stay small (no FastAPI, sqlmodel, hvac or reportlab; a test asserts it) and ``--help`` is
quick. Every command stands in the ``cli`` module of the part that owns it.

No traceback reaches a user: expected errors print what happened and what to do; anything else
prints one line and the path of the log that holds the details.

Exit codes: 0 done, 1 the answer is no (invalid, refused, a check failed), 2 wrong usage,
3 could not tell, 130 interrupted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a command is found: module, name within its app (``None``: the whole app), help, panel."""

    module: str
    inner: str | None
    help: str
    panel: str


_RUN: Final = "Run"
_POLICY: Final = "Declared state and policy"
_LINKS: Final = "Links and keys"
_EVIDENCE: Final = "Evidence"

MOUNTS: Final[dict[str, Mount]] = {
    "up": Mount("policy_engine.embedded.cli", "up", "Run everything on this machine until Ctrl-C.", _RUN),
    "demo": Mount(
        "policy_engine.demo.cli", "demo", "Tell and check the whole story in about a minute.", _RUN
    ),
    "status": Mount("policy_engine.embedded.cli", "status", "What runs here, and is it healthy.", _RUN),
    "config": Mount("policy_engine.embedded.cli", "config", "Show each setting, value and source.", _RUN),
    "check": Mount(
        "policy_engine.resources.cli", "check", "Check declared state and decide objects.", _POLICY
    ),
    "diff": Mount("policy_engine.resources.cli", "diff", "Say what a change of state means.", _POLICY),
    "facts": Mount("policy_engine.resources.cli", "facts", "Print the facts of Kubernetes objects.", _POLICY),
    "links": Mount("keymgmt.cli", "links", "List links, their keys and posture; --why explains one.", _LINKS),
    "rotate": Mount("keymgmt.cli", "rotate", "Rotate the key of a link now.", _LINKS),
    "agent": Mount("keymgmt.cli", "agent", "Run the agent of one link end.", _LINKS),
    "evidence": Mount("evidence.cli", None, "Export, verify and show auditor packages.", _EVIDENCE),
}


def _resolve(name: str) -> Any:
    """Import the module that owns a command and return it under its mounted name."""
    mount = MOUNTS[name]
    app: typer.Typer = import_module(mount.module).app
    command: Any = typer.main.get_command(app)
    if mount.inner is not None and hasattr(command, "commands"):
        command = command.commands[mount.inner]
    command.name = name
    return command


class LazyGroup(TyperGroup):
    """Lists commands from the table; imports one when it is called or its own help is asked."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return list(MOUNTS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with the command's help text: enough for the root's own help."""
        del ctx
        return _stand_in(cmd_name) if cmd_name in MOUNTS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called: imported now."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _resolve(name) if name in MOUNTS else command, rest


def _stand_in(name: str) -> Any:
    command = typer.core.TyperCommand(name, help=MOUNTS[name].help)
    command.rich_help_panel = MOUNTS[name].panel
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Sluicegate decides what may run across clouds, keeps the links between them encrypted while "
    "their keys rotate, and proves both to an auditor who does not trust it.",
    epilog="Start with `sluicegate demo`, or `sluicegate up` and then `sluicegate links`.",
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"sluicegate {version('sluicegate')}")
        raise typer.Exit


@app.callback()
def _root(
    _version_flag: bool = typer.Option(
        False, "--version", "-V", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Takes the global options; the commands do the work."""


def main() -> None:
    """Entry point: run the command, and turn whatever escapes into one readable line."""
    try:
        app(prog_name="sluicegate")
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:  # the edge of the program: no traceback for a person
        sys.exit(_report(error))


def _report(error: Exception) -> int:
    """Print an escaped error for a person. Ours carry a fix; of others path and line are named.

    The text of a foreign exception may hold what must not be shown; `in_words` knows what may.
    """
    from policy_engine.embedded.plain import in_words, is_ours

    what, fix = in_words(error)
    if is_ours(error):
        typer.echo(f"error: {what}", err=True)
        if fix:
            typer.echo(f"  fix: {fix}", err=True)
        return 1
    if not fix:
        typer.echo(f"error: {what} (set SLUICEGATE_DEBUG=1 to see where)", err=True)
        return _debug(error)
    typer.echo(f"error: {what}", err=True)
    typer.echo(f"  fix: {fix}", err=True)
    _debug(error)
    return 2


def _debug(error: Exception) -> int:
    import os

    if os.environ.get("SLUICEGATE_DEBUG"):
        import traceback

        traceback.print_exception(error, limit=20)
    return 3


if __name__ == "__main__":
    main()
