"""How Alembic runs here: on a connection that the caller opened, each migration in a transaction of its own.

A migrator that was interrupted goes on with the migration that it was at.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from services.control.store import schema


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=schema.metadata,
        transactional_ddl=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
