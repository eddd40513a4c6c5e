"""``alembic check`` on an empty database: do the migrations give the declared tables?

Run by `make lint`: a changed table without its migration fails there, not at a customer's upgrade.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.util import CommandError

from policy_engine.migrations import config, upgrade


def main() -> int:
    """Exit code 0 when nothing is missing, 1 with the differences otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'check.db'}"
        upgrade(url)
        try:
            command.check(config(url))
        except CommandError as error:
            sys.stderr.write(f"migrations: {error}\n  fix: alembic revision --autogenerate -m WHY\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
