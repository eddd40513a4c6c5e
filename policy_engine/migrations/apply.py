"""Brings a database to the newest schema, in a process that ends: Alembic stays out of the server.

python -m policy_engine.migrations.apply URL
"""

from __future__ import annotations

import sys

from policy_engine.migrations import upgrade


def main() -> int:
    """Entry point."""
    upgrade(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
