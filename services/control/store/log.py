"""The event log: appended in one place, read by everyone.

Why a follower can't miss an event
1. Positions are given inside the append transaction, by locking the one row of `log_head` (SELECT ... FOR UPDATE),
counting from it and writing it back. The lock is held until commit, so appends happen one after another: the event
at position n is committed before the one at n + 1 is given its number.
2. So whoever sees position n sees every position below it. A database sequence would not do: it hands out numbers
without waiting, a slow transaction could commit number 7 after number 8 was read, and a follower that has passed 8
would never look for 7.
3. A rolled-back append gives its positions back with the row. There are no gaps, and readers may rely on it:
`mesh.routing.fold` refuses to go on over one.
The price, one append at a time, is right here: decisions are made by people.

The log only grows: triggers refuse UPDATE, DELETE and TRUNCATE (migrations/versions/0001_event_log.py).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from google.protobuf.json_format import MessageToJson
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as insert_or
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh.rpc import events
from services.control.domain.view import MeshView
from services.control.store import schema
from services.control.store.database import Database
from services.control.store.projections import project

CHANNEL = "mesh_events"
"""NOTIFY channel: says that the log has grown; the payload is the last position."""
PAGE = 500
"""Events in one read."""
REQUESTS_KEPT = timedelta(days=30)
"""How long the answer of a request_id is remembered."""


class LogMovedError(RuntimeError):
    """The log has grown since the decision was taken: look again, decide again."""


class SameRequestError(RuntimeError):
    """A call with this request_id was decided meanwhile; its answer is stored."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What the first call with a request_id got: a response, or a google.rpc.Status when not ok."""

    request_id: str
    digest: bytes
    ok: bool
    answer: bytes


class EventLog:
    """Reads and appends events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check_schema(self) -> None:
        """SchemaMissingError when tables or columns are absent that a later append would miss."""
        async with self._database.transaction() as connection:
            for table in schema.metadata.tables.values():
                await connection.execute(select(table).limit(0))

    async def append(
        self, before: MeshView, after: MeshView, new: Sequence[events.Event], answer: StoredAnswer | None
    ) -> None:
        """Appends `new`, decided on `before`, with projections and the caller's answer, all in one transaction.

        LogMovedError when the log is not where `before` is; SameRequestError when the request was answered meanwhile.
        """
        try:
            async with self._database.transaction() as connection:
                head = schema.log_head
                position = await connection.scalar(select(head.c.position).with_for_update())
                if position != before.position:
                    raise LogMovedError(f"decided at {before.position}, the log is at {position}")
                if answer is not None:
                    await self._store_answer(connection, answer)
                if new:
                    await connection.execute(insert(schema.events), [_row(event) for event in new])
                    await connection.execute(update(head).values(position=new[-1].position))
                    await project(connection, before, after, new)
                    await connection.execute(
                        text(f"select pg_notify('{CHANNEL}', :last)"), {"last": str(new[-1].position)}
                    )
        except IntegrityError as error:
            constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", "")
            if constraint == "requests_pkey":
                raise SameRequestError(answer.request_id if answer else "") from None
            if constraint in ("events_stream_version", "events_pkey"):
                raise LogMovedError(str(constraint)) from None
            raise

    async def after(self, position: int, limit: int = PAGE) -> list[events.Event]:
        """The next events after `position`, oldest first."""
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
        return await self._read(query)

    async def answer_of(self, request_id: str) -> StoredAnswer | None:
        table = schema.requests
        async with self._database.transaction() as connection:
            row = (await connection.execute(select(table).where(table.c.request_id == request_id))).one_or_none()
        return None if row is None else StoredAnswer(row.request_id, row.digest, row.ok, row.answer)

    async def correct_answer(self, answer: StoredAnswer) -> None:
        """Replaces the provisional answer of a request by the final one."""
        async with self._database.transaction() as connection:
            statement = insert_or(schema.requests).values(**_answer_row(answer))
            changed = {"ok": answer.ok, "answer": answer.answer}
            await connection.execute(statement.on_conflict_do_update(index_elements=["request_id"], set_=changed))

    async def forget_old_answers(self) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(delete(schema.requests).where(schema.requests.c.time < _now() - REQUESTS_KEPT))

    async def _store_answer(self, connection: AsyncConnection, answer: StoredAnswer) -> None:
        await connection.execute(insert(schema.requests).values(**_answer_row(answer)))

    async def _read(self, query: object) -> list[events.Event]:
        async with self._database.transaction() as connection:
            rows = await connection.execute(query)  # type: ignore[call-overload]  # any select of one column
            return [events.Event.FromString(body) for (body,) in rows]


class OutboxPosition:
    """How far the log has been carried to Kafka, and to which cluster."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[int, str]:
        async with self._database.transaction() as connection:
            row = (await connection.execute(select(schema.outbox.c.position, schema.outbox.c.kafka_cluster_id))).one()
        return row.position, row.kafka_cluster_id

    async def store(self, position: int, kafka_cluster_id: str) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(update(schema.outbox).values(position=position, kafka_cluster_id=kafka_cluster_id))


def new_event_id() -> str:
    return str(uuid.uuid4())


def _now() -> datetime:
    return datetime.now(UTC)


def _row(event: events.Event) -> dict[str, object]:
    kind = event.WhichOneof("payload") or "unknown"
    return {
        "position": event.position,
        "stream": event.stream,
        "stream_version": event.stream_version,
        "kind": kind,
        "time": event.time.ToDatetime(UTC),
        "actor": event.actor,
        "body": event.SerializeToString(deterministic=True),
        "payload": json.loads(MessageToJson(getattr(event, kind), preserving_proto_field_name=True)),
    }


def _answer_row(answer: StoredAnswer) -> dict[str, object]:
    return {
        "request_id": answer.request_id,
        "digest": answer.digest,
        "ok": answer.ok,
        "answer": answer.answer,
        "time": _now(),
    }
