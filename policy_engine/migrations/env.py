"""Alembic's environment: the metadata of all three packages, in batch mode for SQLite."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool

import keymgmt.store
import policy_engine.store
from evidence.store import metadata

# Importing the modules registers their tables on the one metadata.
_REGISTERED = (keymgmt.store, policy_engine.store)


def run() -> None:
    """Run the asked-for command over one connection, in one transaction."""
    url = context.config.get_main_option("sqlalchemy.url")
    if url is None:
        raise RuntimeError("sqlalchemy.url is not set")
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=metadata,
            render_as_batch=True,
            compare_type=True,
            compare_server_default=True,
            transaction_per_migration=True,
        )
        with context.begin_transaction():
            context.run_migrations()


if context.is_offline_mode():
    raise RuntimeError("migrations run against a database, not offline")
run()
