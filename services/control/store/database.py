"""Connections to PostgreSQL: a bounded pool, a bound on everything that waits, and one error for "it is gone"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import psycopg
from prometheus_client import Counter
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

CONNECT_TIMEOUT = 3
"""Seconds, whole ones: libpq knows no others."""
STATEMENT_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 3_000
IDLE_TIMEOUT_MS = 10_000
"""How long PostgreSQL lets a transaction sit: a control that hangs must not hold the log's counter row."""
TRANSACTION_TIMEOUT = 8.0
"""Seconds for a transaction from the first byte to the last, also when packets vanish."""
ROWS_AT_ONCE = 500
"""Rows of one statement: 500 of them take about 20 ms."""
POOL_SIZE = 5
POOL_TIMEOUT = 3.0

OPTIONS = (
    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
    f"-c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c timezone=UTC "
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
"""The server's own keepalives too: a leader that has vanished must lose its lock in seconds, not hours."""
KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
}

T = TypeVar("T")

failures = Counter("control_store_failures_total", "Transactions that failed because PostgreSQL did not answer.")


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
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT,
                "options": OPTIONS,
                "application_name": "kafka-mesh control",
                **KEEPALIVE,
            },
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One transaction; StoreUnavailableError when PostgreSQL is gone or too slow."""
        try:
            async with asyncio.timeout(TRANSACTION_TIMEOUT), self._engine.begin() as connection:
                yield connection
        except ProgrammingError as error:
            if isinstance(error.orig, psycopg.errors.UndefinedTable):
                what = "has no tables yet"
            elif isinstance(error.orig, psycopg.errors.UndefinedColumn):
                what = "has the tables of an older version"
            else:
                raise
            raise SchemaMissingError(f"the database {self.place} {what}: run `kafka-mesh migrate`") from error
        except (OperationalError, InterfaceError, PoolTimeoutError, TimeoutError, OSError) as error:
            failures.inc()
            raise StoreUnavailableError(f"PostgreSQL at {self.place} does not answer: {_reason(error)}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                failures.inc()
                raise StoreUnavailableError(f"PostgreSQL at {self.place} went away: {_reason(error)}") from error
            raise

    async def dedicated(self) -> psycopg.AsyncConnection[tuple[object, ...]]:
        """A connection outside of the pool, in autocommit, for LISTEN and for the leader's lock."""
        url = self.url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            async with asyncio.timeout(TRANSACTION_TIMEOUT):
                return await psycopg.AsyncConnection.connect(
                    url,
                    autocommit=True,
                    connect_timeout=CONNECT_TIMEOUT,
                    options=OPTIONS,
                    application_name="kafka-mesh control leader",
                    **KEEPALIVE,  # type: ignore[arg-type]  # libpq's own parameters
                )
        except (psycopg.Error, TimeoutError, OSError) as error:
            raise StoreUnavailableError(f"PostgreSQL at {self.place} does not answer: {_reason(error)}") from error

    async def close(self) -> None:
        await self._engine.dispose()


def batched(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Some at a time for one statement: others get their turn on the event loop between two of them."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[start : start + ROWS_AT_ONCE]


def _reason(error: BaseException) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else "no answer in time"
