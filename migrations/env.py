"""How Alembic runs here: on a connection that the caller opened, in one transaction, one migrator at a time."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from services.control.store import schema

MIGRATION_LOCK = 0x6B6D_0001
"""Advisory lock: replicas that start together migrate one after another."""


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=schema.metadata, transactional_ddl=True)
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        context.run_migrations()


run(context.config.attributes["connection"])
