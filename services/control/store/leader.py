"""One leader among the replicas of control, and notices of new events: both need one connection to PostgreSQL.

The connection holds an advisory lock: the replica with the lock writes and publishes, the others follow the log and
answer reads. The connection also LISTENs, so that a replica notices another replica's events at once; a check every
half second covers lost notifications. A replica that loses the connection loses the leadership: PostgreSQL drops the
lock, and control refuses writes until it is connected again. Leadership only keeps replicas from disturbing each other;
the log stays correct without it (see log.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import structlog
from prometheus_client import Gauge

from mesh.event_log import NewerFormatError
from services.control.store.database import Database, SchemaMissingError, StoreUnavailableError
from services.control.store.journal import Journal
from services.control.store.log import CHANNEL
from services.control.store.reports import REPORTS_CHANNEL, Reports

LEADER_LOCK = 0x6B6D_0002
POLL_INTERVAL = 0.5
"""Seconds; a revoked grant counts within a second, also if a notification is lost."""
GATHER_S = 0.05
"""Seconds between two notifications while this process leads: nearly all of them are of its own appends."""
FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 2.0

log = structlog.get_logger(__name__)
leading_gauge = Gauge("kafka_mesh_control_leading", "1 while this process leads: it alone decides and publishes.")


class Leader:
    """Keeps the connection; reports when this process begins to lead, and when it can't."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        reports: Reports,
        began: Callable[[], Awaitable[None]],
        lost: Callable[[str], None],
    ) -> None:
        self._database = database
        self._journal = journal
        self._reports = reports
        self._began = began
        self._lost = lost

    async def run(self) -> None:
        """Repeats for ever: connects, follows, leads when it gets the lock, begins again after a failure."""
        backoff = FIRST_BACKOFF
        while True:
            try:
                connection = await self._database.dedicated()
                try:
                    await connection.execute(f"listen {CHANNEL}")
                    await connection.execute(f"listen {REPORTS_CHANNEL}")
                    await self._journal.store.check_schema()
                    await self._catch_up()
                    backoff = FIRST_BACKOFF
                    await self._follow(connection)
                finally:
                    await asyncio.shield(connection.close())
            except (psycopg.Error, StoreUnavailableError, OSError) as error:
                if isinstance(error, StoreUnavailableError):
                    reason = str(error)
                else:
                    reason = (
                        f"PostgreSQL at {self._database.place} went away: {str(error).strip() or 'connection lost'}"
                    )
                self._stand_down(reason)
                await asyncio.sleep(LONGEST_BACKOFF if isinstance(error, SchemaMissingError) else backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)

            except NewerFormatError as error:
                self._stand_down(str(error))
                await asyncio.sleep(LONGEST_BACKOFF)
            except Exception:
                self._stand_down("control failed while it led: its log says how")
                raise

    def _stand_down(self, reason: str) -> None:
        self._journal.why_not_leading = reason
        leading_gauge.set(0)
        self._lost(reason)

    async def _follow(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        leading = False
        while True:
            if not leading and await locked(connection):
                leading = True
                await self._catch_up()
                self._journal.why_not_leading = ""
                leading_gauge.set(1)
                await self._began()
            elif not leading:
                self._journal.why_not_leading = "another replica of control leads, this one stands by"
                self._lost(self._journal.why_not_leading)
            told: dict[str, int] = {}
            async for notification in connection.notifies(timeout=POLL_INTERVAL, stop_after=1):
                told[notification.channel] = int(notification.payload)
            if told:  # mostly of what this process has appended itself
                await self._journal.catch_up(told.get(CHANNEL, 0))
                await self._reports.catch_up(told.get(REPORTS_CHANNEL, 0))
                if leading:
                    await asyncio.sleep(GATHER_S)
            else:
                await self._catch_up()

    async def _catch_up(self) -> None:
        await self._reports.catch_up()  # first: as soon as the journal is loaded, callers are answered
        await self._journal.catch_up()


async def locked(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> bool:
    """Whether the connection has got the lock of the leading control, which it holds to its end."""
    row = await (await connection.execute("select pg_try_advisory_lock(%s)", (LEADER_LOCK,))).fetchone()
    return bool(row and row[0])
