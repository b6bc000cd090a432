"""Audit events of records in PostgreSQL, where a pipeline puts them: read, never written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, Text, bindparam, func, literal_column, select, text, tuple_

from mesh.rpc import audit
from services.control.domain.audit.queries import IDS, AuditQuery, PartitionProgress, SourceProgress
from services.control.store import pipeline_tables
from services.control.store.database import Database

TEXTS = (
    "cluster_name", "service_id", "audit_type", "audit_status", "topic", "correlation_id", "traceability_id",
    "trace_id", "key", "stacktrace", "actor", "method",
)  # fmt: skip
"""Columns that have the names of fields of RecordAudit."""

Place = tuple[datetime, UUID]
"""The place of an event among all events, the oldest first."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page, and how far the table was when it was read."""

    events: Sequence[audit.RecordAudit]
    places: Sequence[Place]
    """The places of the events."""
    partitions: Sequence[PartitionProgress]
    sources: Sequence[SourceProgress]
    now: datetime
    """The time of PostgreSQL's clock, which also dates the reports of a pipeline."""


class RecordAuditTable:
    """Answers questions about the audit events of records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, query: AuditQuery, after: Place | None, limit: int) -> Found:
        """The first `limit` events behind `after`: the oldest first, or of refusals the newest."""
        progress = pipeline_tables.audit_progress
        async with self._database.transaction() as connection:
            rows = (await connection.execute(_select(query, after).limit(limit))).all()
            partitions = await connection.execute(
                select(progress.c.next_offset, progress.c.log_end, progress.c.complete_until)
            )
            sources = await connection.execute(select(pipeline_tables.audit_sources))
            now = await connection.scalar(select(func.now()))
        return Found(
            events=[_event(row) for row in rows],
            places=[(row.time.astimezone(UTC), row.event_id) for row in rows],
            partitions=[PartitionProgress(*row) for row in partitions],
            sources=[SourceProgress(row.cluster_name, row.problem, row.told) for row in sources],
            now=now or datetime.now(UTC),
        )


def _select(query: AuditQuery, after: Place | None) -> Select[Any]:
    columns = pipeline_tables.audit_events.c
    wanted = select(pipeline_tables.audit_events)
    if query.refusals_of is None:
        wanted = wanted.order_by(columns.time, columns.event_id)
    else:
        wanted = wanted.where(text(pipeline_tables.REFUSED)).order_by(columns.time.desc(), columns.event_id.desc())
        if query.refusals_of:
            principal = bindparam(None, query.refusals_of, Text)
            wanted = wanted.where(columns.key == query.refusals_of, _digest(columns.key) == _digest(principal))
    if query.topic_prefix:
        wanted = wanted.where(columns.topic.startswith(query.topic_prefix, autoescape=True))
    exact: dict[str, object] = {
        **query.texts, "event_id": query.event_id, "partition": query.partition, "offset": query.offset
    }  # fmt: skip
    for name, value in exact.items():
        if value is not None:
            wanted = wanted.where(columns[name] == value)
            if name in IDS:
                wanted = wanted.where(_digest(columns[name]) == _digest(bindparam(None, value, Text)))
    if query.since is not None:
        wanted = wanted.where(columns.time >= query.since)
    if query.until is not None:
        wanted = wanted.where(columns.time < query.until)
    place = tuple_(columns.time, columns.event_id)
    if after is None:
        return wanted
    # the first condition is for the partitions of the table, which the second does not choose
    if query.refusals_of is None:
        return wanted.where(columns.time >= after[0], place > after)
    return wanted.where(columns.time <= after[0], place < after)


def _digest(text: ColumnElement[str]) -> ColumnElement[int]:
    """The expression that ids are indexed by; a query has to use the same expression, the 0 too."""
    return func.hashtextextended(text, literal_column("0"))


def _event(row: Row[Any]) -> audit.RecordAudit:
    event = audit.RecordAudit(
        id=str(row.event_id),
        partition=-1 if row.partition is None else row.partition,
        offset=-1 if row.offset is None else row.offset,
        **{name: value for name in TEXTS if (value := getattr(row, name)) is not None},
    )
    event.time.FromDatetime(row.time.astimezone(UTC))
    return event
