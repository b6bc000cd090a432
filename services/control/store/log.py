"""The event log: appended in one place, read by everyone.

Why a follower can't miss an event
1. Positions are given inside the append transaction, by locking the one row of `log_head` (SELECT ... FOR UPDATE),
counting from it and writing it back. The lock is held until commit, so appends happen one after another: the event
at position n is committed before the one at n + 1 is given its number.
2. So a follower that sees position n sees every position below n. A database sequence does not guarantee this, for it
gives numbers without waiting. A slow transaction could commit number 7 after number 8 was read, and a follower that has
passed 8 would never look for 7.
3. A rolled-back append gives its positions back with the row. So there are no gaps, and readers may rely on this:
`mesh.routing.fold` refuses to continue after a gap.
The price, one append at a time, is right here: decisions are made by people.

The log only grows: triggers refuse UPDATE, DELETE and TRUNCATE (migrations/versions/0001_event_log.py). The chain of
hashes (`mesh.event_log`) reveals a change that gets past the triggers. `log_head` holds the end of this chain: an
append is refused when the last event was changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from google.protobuf.json_format import MessageToDict
from psycopg.errors import IntegrityError
from sqlalchemy import Select, select
from sqlalchemy.dialects.postgresql import insert as insert_or
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh.event_log import Chain, upcast
from mesh.rpc import admin, events
from services.control.domain.view import MeshView
from services.control.store import schema
from services.control.store.audit import rows_of
from services.control.store.cleaning import delete_older
from services.control.store.database import Database
from services.control.store.projections import statements as projecting
from services.control.store.statements import Statement, insert_rows, joined, merged

CHANNEL = "mesh_events"
"""NOTIFY channel: says that the log has grown; the payload is the last position."""
PAGE = 500
"""Events in one read."""
REQUESTS_KEPT = timedelta(days=30)
"""How long the answer of a request_id is remembered."""


_ANSWERS = b"select request_id, digest, ok, answer from requests where request_id = any(%s)"


class LogMovedError(RuntimeError):
    """The log has grown since the decision was taken: read again, decide again."""


class LogChangedError(RuntimeError):
    """The log has not grown, but its last event is another one: somebody has changed it outside of control."""


class SameRequestError(RuntimeError):
    """A call with this request_id was decided meanwhile; its answer is stored."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The answer to the first call with a request_id: a response, or a google.rpc.Status when not ok."""

    request_id: str
    digest: bytes
    ok: bool
    answer: bytes


class Entry(NamedTuple):
    """An event, in the newest format, and its bytes as they stand in the log."""

    event: events.Event
    body: bytes

    @classmethod
    def read(cls, body: bytes) -> Entry:
        return cls(upcast(body), body)


@dataclass(frozen=True, slots=True)
class Growth:
    """The additions of one decision: the events, the view and chain after them, the caller's answer, the audit event.

    The audit event is absent where the call keeps its audit event by itself.
    """

    entries: Sequence[Entry]
    view: MeshView
    chain: Chain
    answer: StoredAnswer | None
    record: admin.AuditEvent | None = None


class EventLog:
    """Reads and appends events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check_schema(self) -> None:
        """SchemaMissingError when tables or columns are absent that a later append would miss."""
        async with self._database.transaction() as connection:
            for table in schema.metadata.tables.values():
                await connection.execute(select(table).limit(0))

    async def append(self, before: Chain, after: Chain, statements: Sequence[Statement]) -> None:
        """Appends decisions to a log that ends as `before` says, by the `statements` that follow from them.

        LogMovedError when the log is not where `before` is, LogChangedError when it does not end as `before` does;
        SameRequestError when a request was answered meanwhile.
        """
        notice = Statement(f"select pg_notify('{CHANNEL}', %s)".encode(), (str(after.position),))
        try:
            await self._database.carry_out(merged([_new_head(before, after), *joined(statements)], notice))
        except IntegrityError as error:
            # PostgreSQL promises no order of the parts of a statement: any of them may be the first to meet a log that
            # has grown
            if error.diag.constraint_name == "requests_pkey":
                raise SameRequestError from None
            head = await self.head()
            if head.position != before.position:
                raise LogMovedError(f"decided at {before.position}, the log is at {head.position}") from None
            if head.hash != before.hash:
                raise LogChangedError(f"event {head.position} is not what it was when it was appended") from None
            raise

    async def versions(self, streams: Collection[str]) -> dict[str, int]:
        """Version of the last event in each stream, 0 for a new stream. The view does not hold them: most streams are
        of instances that are long gone.
        """
        sql = b"select coalesce(max(stream_version), 0) from events where stream = %s"
        names = list(streams)
        found = await self._database.carry_out([Statement(sql, (name,)) for name in names])
        return {name: version for name, [(version,)] in zip(names, found, strict=True)}

    async def head(self) -> Chain:
        """The end of the log, as the last append wrote it."""
        async with self._database.transaction() as connection:
            return await _head(connection)

    async def after(self, position: int, limit: int = PAGE) -> list[events.Event]:
        """The next events after `position`, oldest first."""
        return [event for event, _ in await self.entries_after(position, limit)]

    async def entries_after(self, position: int, limit: int = PAGE) -> list[Entry]:
        """The same, with their bytes."""
        table = schema.events
        query = select(table.c.body).where(table.c.position > position).order_by(table.c.position).limit(limit)
        return await self._read(query)

    async def before(self, position: int | None, stream: str = "", limit: int = PAGE) -> list[events.Event]:
        """Events below `position` (None: all), newest first, of one stream or of all."""
        table = schema.events
        query = select(table.c.body).order_by(table.c.position.desc()).limit(limit)
        if position is not None:
            query = query.where(table.c.position < position)
        if stream:
            query = query.where(table.c.stream == stream)
        return [event for event, _ in await self._read(query)]

    async def answer_of(self, request_id: str) -> StoredAnswer | None:
        return (await self.answers([request_id])).get(request_id)

    async def answers(self, request_ids: Collection[str]) -> dict[str, StoredAnswer]:
        """The answers of these requests, of those that control has answered."""
        [rows] = await self._database.carry_out([Statement(_ANSWERS, (list(request_ids),))])
        return {row[0]: StoredAnswer(*row) for row in rows}

    async def correct_answer(self, answer: StoredAnswer) -> None:
        """Replaces the provisional answer of a request by the final one."""
        async with self._database.transaction() as connection:
            statement = insert_or(schema.requests).values(**_answer_row(answer))
            changed = {"ok": answer.ok, "answer": answer.answer}
            await connection.execute(statement.on_conflict_do_update(index_elements=["request_id"], set_=changed))

    async def forget_old_answers(self) -> None:
        await delete_older(self._database, schema.requests, _now() - REQUESTS_KEPT)

    async def _read(self, query: Select[bytes]) -> list[Entry]:
        async with self._database.transaction() as connection:
            return [Entry.read(body) for (body,) in await connection.execute(query)]


class OutboxPosition:
    """How far the log has been carried to Kafka, and to which cluster."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[int, str]:
        async with self._database.transaction() as connection:
            row = (await connection.execute(select(schema.outbox.c.position, schema.outbox.c.kafka_cluster_id))).one()
        return row.position, row.kafka_cluster_id

    async def store(self, position: int, kafka_cluster_id: str) -> None:
        sql = b"update outbox set position = %s, kafka_cluster_id = %s"
        await self._database.carry_out([Statement(sql, (position, kafka_cluster_id))])


def statements_of(before: MeshView, growth: Growth) -> list[Statement]:
    """The statements that add this growth to the log, after `before`. With thousands of rules they take a while."""
    return list(_writes(before, growth))


def _writes(before: MeshView, growth: Growth) -> Iterator[Statement]:
    if growth.answer is not None:
        yield from insert_rows(schema.requests, [_answer_row(growth.answer)])
    if growth.entries:
        yield from insert_rows(schema.events, [{**columns_of(event), "body": body} for event, body in growth.entries])
        yield from projecting(before, growth.view, [event for event, _ in growth.entries])
    if growth.record is not None:
        yield from rows_of([growth.record])


def new_event_id() -> str:
    return str(uuid.uuid4())


async def _head(connection: AsyncConnection) -> Chain:
    row = (await connection.execute(select(schema.log_head.c.position, schema.log_head.c.hash))).one()
    return Chain(row.position, row.hash)


def _new_head(before: Chain, after: Chain) -> Statement:
    """Writes the end of the log. If the log does not end as `before` says, the id breaks the constraint of the row.

    PostgreSQL locks the row first, and reads the row that it has locked.
    """
    sql = b"update log_head set position = %s, hash = %s, id = case when position = %s and hash = %s then 1 else 0 end"
    return Statement(sql, (after.position, after.hash, before.position, before.hash), "log_head")


def _now() -> datetime:
    return datetime.now(UTC)


def columns_of(event: events.Event) -> dict[str, object]:
    """A row of the log without the event itself, for people and reports."""
    kind = event.WhichOneof("payload")
    return {
        "position": event.position,
        "stream": event.stream,
        "stream_version": event.stream_version,
        "kind": kind or "unknown",
        "time": event.time.ToDatetime(UTC),
        "actor": event.actor,
        "payload": MessageToDict(getattr(event, kind), preserving_proto_field_name=True) if kind else {},
    }


def _answer_row(answer: StoredAnswer) -> dict[str, object]:
    return {
        "request_id": answer.request_id,
        "digest": answer.digest,
        "ok": answer.ok,
        "answer": answer.answer,
        "time": _now(),
    }
