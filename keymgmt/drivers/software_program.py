"""How programs of the software driver are started by hand: `--config FILE`; one line when it is wrong."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keymgmt.drivers.software_ports import addresses


def configured(
    description: str,
    argv: Sequence[str] | None,
    check: Callable[[Mapping[str, Any]], object],
    *flags: tuple[str, str],
) -> dict[str, Any]:
    """Return a process's configuration from `--config FILE`, with each flag (name, help) that was given.

    A file that is no configuration ends the program with one line and status 2.

    Args:
        description: what the process is, for --help.
        argv: arguments; None takes the command line.
        check: reads the configuration; its result is thrown away.
        flags: switches that count only on the command line: one in the file is overruled.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", required=True, help="JSON file; see docs/agents.md")
    for name, text in flags:
        parser.add_argument(f"--{name}", action="store_true", help=text)
    given = vars(parser.parse_args(argv))
    path = given.pop("config")
    try:
        doc: dict[str, Any] = json.loads(Path(path).read_bytes()) | given
        check(doc)
    except OSError as error:
        parser.error(f"{path}: {error.strerror}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as bad:
        parser.error(f"{path} is no configuration of this process ({type(bad).__name__}: {str(bad)[:64]})")
    return doc


def wired(doc: Mapping[str, Any]) -> None:
    """Check what relay and traffic need: "control", and "links" with "name" and the addresses "a", "b"."""
    for link in doc["links"]:
        _ = link["name"], addresses(link["a"]), addresses(link["b"])
    Path(doc["control"])
