"""Enrols agents in a process of its own that ends: their private keys are never in the control plane.

    python -m policy_engine.embedded.enrolment   < one JSON object per line

The wrapping tokens come on standard input, never in argv. Each line: {"host", "port", "ca", "paths",
"name", "role_id", "wrapping_token", "folder"}. Answers one line per agent: its name, or what went wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from policy_engine.errors import StartError


def enrol_all(requests: Iterable[Mapping[str, Any]]) -> None:
    """Enrol agents; returns when each has its certificate.

    Raises:
        StartError: One could not be enrolled; names it and says why.
    """
    lines = [json.dumps(dict(request)) for request in requests]
    if not lines:
        return
    done = subprocess.run(
        [sys.executable, "-m", "policy_engine.embedded.enrolment"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,  # a Ctrl-C in between must not leave half of the agents enrolled
    )
    if done.returncode != 0:
        said = done.stdout.strip().splitlines()[-1:]
        why = said[0] if said and ": " in said[0] else "its process ended before the last agent was enrolled"
        raise StartError(f"enrolment: {why}", fix="see logs/ in the state folder, then start again")


def main() -> int:
    """Entry point of the process."""
    from keymgmt.agents.config import BaoPaths, Server
    from keymgmt.agents.enrol import enrol
    from keymgmt.errors import KeymgmtError

    for line in sys.stdin:
        doc = json.loads(line)
        try:
            enrol(
                server=Server(doc["host"], int(doc["port"]), doc["ca"]),
                paths=BaoPaths(**doc["paths"]),
                name=doc["name"],
                role_id=doc["role_id"],
                wrapping_token=doc["wrapping_token"],
                folder=Path(doc["folder"]),
            )
        except KeymgmtError as error:
            sys.stdout.write(f"{doc['name']}: {error}\n")
            return 1
        sys.stdout.write(f"{doc['name']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
