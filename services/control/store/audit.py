"""Audit events in PostgreSQL: every call that wanted to change something, refused ones included.

Theory of operation
1. `keep` is called before a call is answered, and returns when the event is stored: each answered call is on record.
2. The event of a call that only appends to the log is stored by the statement that appends (`rows_of`). One writer
   stores all others, many at a time. A lock over each transaction makes sequence numbers visible in their order, also
   with several replicas of control: a reader at number n never misses a lower number.
3. While PostgreSQL is away no call waits: changes are refused anyway. Their events wait in memory, up to a bound, and
   are stored when PostgreSQL is back. Beyond the bound the oldest events are dropped and counted. Each call is a log
   line in any case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge
from sqlalchemy import Select, select

from mesh.rpc import admin
from services.control.store import schema
from services.control.store.cleaning import delete_older
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.statements import Statement, insert_rows_behind

MOST_WAITING = 10_000
"""Events in memory; about 5 MB."""
AT_ONCE = 500
"""Events stored in one transaction."""
KEEP_TIMEOUT = 2.0
"""Seconds that a call waits for its event to be stored."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 5.0
WRITERS_LOCK = 0x6D657368_61756474
"""Key of the advisory lock that orders writers ("meshaudt")."""

log = structlog.get_logger(__name__)
kept_total = Counter("kafka_mesh_control_audit_events_total", "Audit events stored.")
dropped_total = Counter(
    "kafka_mesh_control_audit_dropped_total", "Audit events dropped: PostgreSQL was away for too long."
)
waiting_gauge = Gauge("kafka_mesh_control_audit_waiting", "Audit events that are not stored yet.")


@dataclass(frozen=True, slots=True)
class _Waiting:
    event: admin.AuditEvent
    stored: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions for events; `actor`: also of this user on any host."""

    actor: str = ""
    refused_only: bool = False
    since: datetime | None = None


ALL = Wanted()


class AuditTrail:
    """Stores audit events while `run` runs, and reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[_Waiting] = deque()
        self._grown = asyncio.Event()
        self._trouble = False
        self.stored = asyncio.Condition()
        """Notified when there are new events."""
        waiting_gauge.set_function(lambda: len(self._waiting))

    async def keep(self, event: admin.AuditEvent) -> None:
        """Returns when the event is stored, or can't be soon."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft().stored.cancel()
            dropped_total.inc()
        waiting = _Waiting(event, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._grown.set()
        if not self._trouble:
            await asyncio.wait([waiting.stored], timeout=KEEP_TIMEOUT)

    async def run(self) -> None:
        """Stores what waits, until cancelled."""
        backoff = FIRST_BACKOFF
        while True:
            await self._grown.wait()
            try:
                await self._store_waiting()
            except StoreUnavailableError as error:
                if not self._trouble:
                    log.warning("audit events wait in memory", reason=str(error))
                self._trouble = True
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
            else:
                self._trouble, backoff = False, FIRST_BACKOFF

    async def flush(self, seconds: float) -> None:
        """Before a stop: waits, bounded, until everything is stored."""
        if self._waiting:
            await asyncio.wait([each.stored for each in self._waiting], timeout=seconds)

    async def after(self, sequence: int, limit: int = AT_ONCE, wanted: Wanted = ALL) -> list[admin.AuditEvent]:
        """The next events after `sequence`, oldest first."""
        table = schema.call_audit_events
        query = select(table).where(table.c.sequence > sequence).order_by(table.c.sequence)
        return await self._found(query, wanted, limit)

    async def before(self, sequence: int | None, limit: int, wanted: Wanted = ALL) -> list[admin.AuditEvent]:
        """Events below `sequence` (None: all), newest first."""
        table = schema.call_audit_events
        query = select(table).order_by(table.c.sequence.desc())
        return await self._found(query if sequence is None else query.where(table.c.sequence < sequence), wanted, limit)

    async def _found(self, query: Select[Any], wanted: Wanted, limit: int) -> list[admin.AuditEvent]:
        table = schema.call_audit_events
        if wanted.actor:
            of_user = table.c.actor.startswith(f"{wanted.actor}@", autoescape=True)
            query = query.where((table.c.actor == wanted.actor) | of_user)
        if wanted.refused_only:
            query = query.where(table.c.code != "OK")
        if wanted.since is not None:
            query = query.where(table.c.time >= wanted.since)
        async with self._database.transaction() as connection:
            return [_event(row.sequence, row.body) for row in await connection.execute(query.limit(limit))]

    async def forget(self, days: int) -> None:
        """Deletes events that are older than `days`."""
        await delete_older(self._database, schema.call_audit_events, datetime.now(UTC) - timedelta(days=days))

    async def _store_waiting(self) -> None:
        self._grown.clear()
        while batch := [self._waiting[index] for index in range(min(AT_ONCE, len(self._waiting)))]:
            try:
                await self._database.carry_out(list(rows_of([each.event for each in batch])))
            except StoreUnavailableError:
                self._grown.set()
                raise
            for each in batch:
                if self._waiting and self._waiting[0] is each:  # not dropped meanwhile
                    self._waiting.popleft()
                if not each.stored.done():
                    each.stored.set_result(None)
            await self.were_kept(len(batch))

    async def were_kept(self, number: int) -> None:
        """Events were stored together with the decisions of their calls."""
        kept_total.inc(number)
        async with self.stored:
            self.stored.notify_all()


def rows_of(events: Sequence[admin.AuditEvent]) -> Iterator[Statement]:
    """The statements that store these events."""
    rows = [
        {
            "audit_id": event.audit_id,
            "time": event.time.ToDatetime(UTC),
            "actor": event.actor,
            "method": event.method,
            "code": event.code,
            "body": event.SerializeToString(deterministic=True),
        }
        for event in events
    ]
    return insert_rows_behind(WRITERS_LOCK, schema.call_audit_events, rows)


def _event(sequence: int, body: bytes) -> admin.AuditEvent:
    event = admin.AuditEvent.FromString(body)
    event.sequence = sequence
    return event
