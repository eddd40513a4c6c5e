"""Whether the database must be migrated, told without Alembic; and the migration as a child process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

from policy_engine.errors import StartError

VERSIONS: Final = Path(__file__).resolve().parent.parent / "migrations" / "versions"


def newest() -> str:
    """The newest revision: files are named ``NNNN_what.py`` and revisions ``NNNN``."""
    return max(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py"))


def stands_at(database: Path) -> str | None:
    """The revision of a database file, ``None`` when it is new."""
    if not database.exists():
        return None
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        try:
            row = db.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError as error:
            raise StartError(
                f"{database} cannot be read as a database ({error})",
                fix="restore it from a backup, or start anew with another state folder",
            ) from None
    return str(row[0]) if row else None


class Migration:
    """A migration that may run while other things start."""

    def __init__(self, database: Path) -> None:
        self._process: subprocess.Popen[str] | None = None
        at = stands_at(database)
        if at is not None and at > newest():
            raise StartError(
                f"the database is at revision {at}, newer than this program", fix="use the newer release"
            )
        if at != newest():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "policy_engine.migrations.apply", f"sqlite:///{database}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # a Ctrl-C in between must not end it half-way
            )

    def wait(self) -> None:
        """Return when the schema is the newest.

        Raises:
            StartError: It failed; the text is its last line.
        """
        if self._process is None:
            return
        _, errors = self._process.communicate(timeout=60)
        if self._process.returncode != 0:
            last = (errors.strip().splitlines() or ["no output"])[-1]
            raise StartError(f"the database could not be migrated: {last}", fix="restore it, or start anew")
