"""Schema of the database as migrations: one history over the tables of all three packages.

Each package owns its tables (`evidence.store`, `keymgmt.store`, `policy_engine.store`); only this
package runs Alembic over them. A migration is part of the release that needs it.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

HERE = Path(__file__).parent


def config(url: str) -> Config:
    """Alembic's configuration for a database URL, without any file."""
    made = Config()
    made.set_main_option("script_location", str(HERE))
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    # Alembic interpolates %, which may stand in a URL.
    made.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return made


def upgrade(url: str, revision: str = "head") -> None:
    """Bring a database to a revision; does nothing when it is there."""
    command.upgrade(config(url), revision)


def downgrade(url: str, revision: str) -> None:
    """Go back to a revision (``base``: an empty database)."""
    command.downgrade(config(url), revision)


def head() -> str | None:
    """The newest revision that this program knows."""
    return ScriptDirectory.from_config(config("sqlite://")).get_current_head()


def current(url: str) -> str | None:
    """The revision a database stands at, ``None`` when it was never migrated."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()
