"""Connections to PostgreSQL: a bounded pool, a bound on everything that waits, and one error for "it is gone"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import psycopg
from prometheus_client import Counter
from sqlalchemy import Engine, event, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from services.control.store.kept_connections import REFUSED, KeptConnections
from services.control.store.statements import Statement

CONNECT_TIMEOUT = 3
"""Seconds, whole ones: libpq knows no others."""
STATEMENT_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 3_000
IDLE_TIMEOUT_MS = 10_000
"""How long PostgreSQL lets a transaction sit: a control that hangs must not hold the log's counter row."""
TRANSACTION_TIMEOUT = 8.0
"""Seconds for a transaction from the first byte to the last, also when packets vanish."""
IDLE_S = 1.0
"""If a connection was idle for so long, control checks that PostgreSQL still answers on it before control uses it."""
POOL_SIZE = 5
POOL_TIMEOUT = 3.0

OPTIONS = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
    f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c timezone=UTC "
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=8000"
)
"""PostgreSQL checks the connection, too: a leader that has vanished must lose its lock in seconds.

While data is on its way, TCP sends no keepalives, and repeats the data for 15 min unless `tcp_user_timeout` ends this.
"""
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
}

GONE = (
    OperationalError,
    InterfaceError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    PoolTimeoutError,
    TimeoutError,
    OSError,
)
failures = Counter(
    "kafka_mesh_control_store_failures_total",
    "Transactions and connections that failed because PostgreSQL did not answer.",
)


class StoreUnavailableError(RuntimeError):
    """PostgreSQL does not answer. Writes are refused until it does; reads go on from memory."""


class SchemaMissingError(StoreUnavailableError):
    """The database has not been migrated, or not far enough."""


class Database:
    """The pool. `url` is any PostgreSQL URL; its password never shows in messages."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url).set(drivername="postgresql+psycopg")
        self.place = f"{self.url.host or 'localhost'}:{self.url.port or 5432}/{self.url.database or ''}"
        self._engine = create_async_engine(
            self.url,
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_timeout=POOL_TIMEOUT,
            async_creator=partial(self._connected, "kafka-mesh control"),
        )
        _check_idle_connections(self._engine.sync_engine)
        self._kept = KeptConnections(self._engine.execution_options(isolation_level="AUTOCOMMIT"), IDLE_S)
        """From the same pool: a statement that is a transaction by itself needs no BEGIN and no COMMIT."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One transaction; StoreUnavailableError when PostgreSQL is gone or too slow."""
        with self._errors():
            async with asyncio.timeout(TRANSACTION_TIMEOUT), self._engine.begin() as connection:
                yield connection

    async def carry_out(self, statements: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
        """Carries statements out in one transaction, and returns the rows of each.

        PostgreSQL gets all statements before control waits for an answer. IntegrityError (psycopg) when a statement
        breaks a constraint: then no statement counts. StoreUnavailableError as in `transaction`.
        """
        with self._errors():
            async with asyncio.timeout(TRANSACTION_TIMEOUT):
                if len(statements) == 1:
                    async with self._kept.one() as connection:
                        cursors = [await connection.execute(statements[0].sql, statements[0].values)]
                else:
                    cursors = await self._together(statements)
                return [await each.fetchall() if each.description else [] for each in cursors]

    async def _together(self, statements: Sequence[Statement]) -> list[psycopg.AsyncCursor[Any]]:
        async with self._engine.connect() as pooled:
            connection: Any = (await pooled.get_raw_connection()).driver_connection
            try:
                return await _in_pipeline(connection, statements)
            except REFUSED:
                raise
            except BaseException:
                await pooled.invalidate()  # the connection may be in the middle of an answer
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns the errors of a PostgreSQL that is gone, too slow, or not migrated into StoreUnavailableError."""
        try:
            yield
        except (ProgrammingError, psycopg.ProgrammingError) as error:
            match getattr(error, "orig", error):
                case psycopg.errors.UndefinedTable():
                    what = "has no tables yet"
                case psycopg.errors.UndefinedColumn():
                    what = "has the tables of an older version"
                case _:
                    raise
            raise SchemaMissingError(f"the database {self.place} {what}: run `kafka-mesh migrate`") from error
        except GONE as error:
            self._lost()
            raise StoreUnavailableError(f"PostgreSQL at {self.place} does not answer: {_reason(error)}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                self._lost()
                raise StoreUnavailableError(f"PostgreSQL at {self.place} went away: {_reason(error)}") from error
            raise

    def _lost(self) -> None:
        failures.inc()
        self._kept.doubt()

    async def dedicated(self) -> psycopg.AsyncConnection[tuple[object, ...]]:
        """A connection outside of the pool, in autocommit, for LISTEN and for the leader's lock."""
        self._kept.doubt()  # the connection before this one may have broken, and they with it
        try:
            async with asyncio.timeout(TRANSACTION_TIMEOUT):
                return await self._connected("kafka-mesh control leader", autocommit=True)
        except (psycopg.Error, TimeoutError, OSError) as error:
            failures.inc()
            raise StoreUnavailableError(f"PostgreSQL at {self.place} does not answer: {_reason(error)}") from error

    async def _connected(
        self, application: str, *, autocommit: bool = False
    ) -> psycopg.AsyncConnection[tuple[object, ...]]:
        """A new connection. If the caller is cancelled meanwhile, the connection is closed as soon as it stands:
        psycopg would leave it to the garbage collector, and PostgreSQL would keep a process for it.
        """
        connecting = asyncio.create_task(
            psycopg.AsyncConnection.connect(
                self.url.set(drivername="postgresql").render_as_string(hide_password=False),
                autocommit=autocommit,
                connect_timeout=CONNECT_TIMEOUT,
                options=OPTIONS,
                application_name=application,
                **KEEPALIVE,  # type: ignore[arg-type]  # libpq's own parameters
            )
        )
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close)
            raise

    async def close(self) -> None:
        await self._kept.close()
        await self._engine.dispose()


def _close(connecting: asyncio.Task[psycopg.AsyncConnection[tuple[object, ...]]]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().pgconn.finish()


async def _in_pipeline(connection: Any, statements: Sequence[Statement]) -> list[psycopg.AsyncCursor[Any]]:
    async with connection.pipeline():
        cursors = [await connection.execute(each.sql, each.values) for each in statements]
        await connection.commit()
    return cursors


def _check_idle_connections(engine: Engine) -> None:
    """Checks a connection before its use only where it was idle: a check costs as much as a statement."""

    @event.listens_for(engine, "checkin")
    def note_time(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(connection: Any, record: Any, _proxy: Any) -> None:
        now = time.monotonic()
        if now - record.info.get("used", now) < IDLE_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except psycopg.Error as error:
            raise InvalidatePoolError from error


def _reason(error: BaseException) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else "no answer in time"
