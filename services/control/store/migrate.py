"""`kafka-mesh migrate`: creates the database where it is absent, and brings its tables up to date.

Needs no alembic.ini: the configuration is made here, so that it works from an installed package too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psycopg
import structlog
from alembic import command
from alembic.config import Config
from psycopg import sql
from sqlalchemy import URL, Engine, NullPool, create_engine, func, make_url, select
from sqlalchemy.exc import OperationalError

import migrations
from mesh.settings import AddressList, load
from mesh.telemetry import configure_logging
from services.control.settings import ControlSettings
from services.control.store.database import CONNECT_TIMEOUT

STATEMENT_TIMEOUT_MS = 300_000
"""A migration may rewrite a table of decisions, which are few."""
LOCK_TIMEOUT_MS = 2_000
"""Most milliseconds that a statement waits for a lock: later statements on the table wait behind it."""
WAIT_FOR_LOCKS = 600.0
"""Seconds to try for, while others hold what a migration needs: another migrator, or a long query."""
WAIT_FOR_DATABASE = 30.0
"""Seconds to wait for a database that is just starting."""
RETRY_EVERY = 0.5
MIGRATION_LOCK = 0x6B6D_0001
"""Advisory lock of a session: replicas that start together migrate one after another."""
HOPELESS = ("password", "authentication failed", "no pg_hba.conf entry", 'role "')
"""Reasons that waiting does not cure; libpq gives no code for a failed connection, so control compares words."""

log = structlog.get_logger(__name__)


class LockedError(RuntimeError):
    """Another migrator is at work."""


class MigrateSettings(ControlSettings, service="control"):
    """Creates control's database where it is absent, and brings its tables up to date. Takes control's settings."""

    home_bootstrap_servers: AddressList = ()
    """Not needed here."""


def migrate(database_url: str, *, wait: float = WAIT_FOR_DATABASE, revision: str = "head") -> None:
    """Migrates the database to the newest schema, or to that of a revision. Safe to call again, and from several
    processes at once.
    """
    url = make_url(database_url).set(drivername="postgresql+psycopg")
    _create_if_absent(url, wait)
    engine = create_engine(
        url,
        poolclass=NullPool,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT,
            "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}",
        },
    )
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    try:
        _upgrade(engine, config, revision)
    finally:
        engine.dispose()


def _upgrade(engine: Engine, config: Config, revision: str) -> None:
    deadline, is_told = time.monotonic() + WAIT_FOR_LOCKS, False
    while True:
        try:
            with engine.connect() as connection:
                # one that waited for it in a transaction would keep indexes from being made
                if connection.scalar(select(func.pg_try_advisory_lock(MIGRATION_LOCK))):
                    connection.commit()
                    config.attributes["connection"] = connection
                    command.upgrade(config, revision)
                    connection.commit()
                    return
            if time.monotonic() > deadline:
                raise LockedError(f"another migrator was at work for {WAIT_FOR_LOCKS:g} s: look for it, or start again")
        except OperationalError as error:
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable) or time.monotonic() > deadline:
                raise
        if not is_told:
            log.info("waiting for another migrator, or for queries that hold a table")
        is_told = True
        time.sleep(RETRY_EVERY)


def _create_if_absent(url: URL, wait: float) -> None:
    deadline = time.monotonic() + wait
    said = ""
    while True:
        try:
            return _connect_or_create(url)
        except (psycopg.OperationalError, OperationalError) as error:
            reason = str(error).strip().splitlines()[0]
            if time.monotonic() > deadline or any(words in reason for words in HOPELESS):
                raise
            if reason != said:
                log.info("waiting for PostgreSQL", reason=reason)
            said = reason
            time.sleep(RETRY_EVERY)


def _connect_or_create(url: URL) -> None:
    plain = url.set(drivername="postgresql")
    try:
        psycopg.connect(plain.render_as_string(hide_password=False), connect_timeout=CONNECT_TIMEOUT).close()
    except psycopg.OperationalError as error:
        if not url.database or f'database "{url.database}" does not exist' not in str(error):
            raise
        administration = plain.set(database="postgres").render_as_string(hide_password=False)
        with psycopg.connect(administration, autocommit=True, connect_timeout=CONNECT_TIMEOUT) as connection:
            try:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(url.database)))
            except psycopg.errors.DuplicateDatabase:
                return  # another migrator was faster
        log.info("created database", database=url.database)


def main(argv: list[str] | None = None) -> None:
    """Entry of `kafka-mesh migrate`."""
    configure_logging("migrate")
    settings = load(MigrateSettings, argv, command="migrate")
    try:
        migrate(settings.database_url.get_secret_value())
    except (psycopg.Error, OperationalError, LockedError) as error:
        print(f"kafka-mesh migrate: {str(error).strip().splitlines()[0]}", file=sys.stderr)  # noqa: T201
        raise SystemExit(1) from None
    log.info("database is up to date")


if __name__ == "__main__":
    main()
