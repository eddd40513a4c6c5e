"""Runs a `sluicegate` command in a process in which opening any socket ends in an error.

    python -m policy_engine.demo.offline evidence verify ...

An auditor verifies on a machine of their own; here the same is shown on this one: the interpreter's
audit hook refuses every `socket.*` event before it happens.
"""

from __future__ import annotations

import sys

OPENED = 97  # exit code when something tried


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event.startswith("socket."):
        sys.stderr.write(f"a socket was opened: {event}\n")
        sys.exit(OPENED)


def main() -> None:
    """Entry point."""
    sys.addaudithook(_refuse)
    from policy_engine.cli import main as sluicegate

    sys.argv = ["sluicegate", *sys.argv[1:]]
    sluicegate()


if __name__ == "__main__":
    main()
