"""The reports of members, as this process knows them, and the only way to add a report.

Theory of operation
1. `known` is the state that follows from all reports up to `known.sequence`. It changes only in `_show`, on the event
   loop.
2. Tables hold the same state for the last report of all (`report_tables.py`), so that reports themselves need not be
   kept: a start reads those tables, and old reports are deleted.
3. `add` locks the row of the last report. If that report is not known here, another control has added reports: this
   control catches up, and decides again. So a control that has lost the lead overwrites nothing.
4. A follower reads the reports that came since its last read. If some of these are deleted already, the follower reads
   the tables again.
5. The progress of a replay is forgotten when the log says that the replay has ended: its last event holds all progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as insert_or
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh.rpc import events, reports
from services.control.domain.errors import Conflict
from services.control.domain.reports import Payload, Reported
from services.control.steady_clock import Clock
from services.control.store.cleaning import delete_older
from services.control.store.database import Database
from services.control.store.report_tables import consumer_instances, member_report_head, member_reports, replay_progress

REPORTS_CHANNEL = "mesh_reports"
"""NOTIFY channel: says that there are more reports; the payload is the number of the last one."""
PAGE = 500
"""Reports in one read."""
ADD_TRIES = 10
"""Attempts to add a report that may lose in a row to others before the caller gets an error."""

FIELDS: dict[type[Message], str] = {
    events.ConsumerInstanceRegistered: "consumer_instance_registered",
    events.ConsumerInstanceRemoved: "consumer_instance_removed",
    events.ReplayProgressed: "replay_progressed",
}

added_total = Counter("kafka_mesh_control_reports_total", "Reports of members that were stored.", ["kind"])
sequence_gauge = Gauge("kafka_mesh_control_report_sequence", "Number of the last report that this process knows.")


class ReportsMovedError(RuntimeError):
    """Another control has added reports: read again, decide again."""


class Reports:
    """Follows the reports of members, and adds reports."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.known = Reported()
        self._database = database
        self._clock = clock
        self._is_loaded = False
        self._growing = asyncio.Lock()

    async def catch_up(self, to: int | None = None) -> None:
        """Reads the reports that others have added; none, if the report `to` is known."""
        async with self._growing:
            if not self._is_loaded:
                await self._load()
            elif to is None or self.known.sequence < to:
                await self._catch_up()

    async def add(self, name: str, actor: str, decide: Callable[[Reported], Payload | None]) -> Payload | None:
        """Adds the report that `decide` makes of the known state, or none. Conflict when others add all the time."""
        async with self._growing:
            for _ in range(ADD_TRIES):
                payload = decide(self.known)
                if payload is None:
                    return None
                kind = FIELDS[type(payload)]
                report = reports.Report(sequence=self.known.sequence + 1, name=name, actor=actor)
                report.time.FromDatetime(self._clock())
                getattr(report, kind).CopyFrom(payload)
                after = self.known.after(report)
                try:
                    await self._store(report, after)
                except ReportsMovedError:
                    await self._catch_up()
                    continue
                self._show(after)
                added_total.labels(kind).inc()
                return payload
        raise Conflict("BUSY", f"others have added reports {ADD_TRIES} times in a row: retry")

    async def before(self, name: str, sequence: int | None, limit: int) -> list[reports.Report]:
        """Reports about something, below `sequence` (None: all), newest first."""
        query = select(member_reports.c.body).where(member_reports.c.name == name)
        if sequence is not None:
            query = query.where(member_reports.c.sequence < sequence)
        async with self._database.transaction() as connection:
            rows = await connection.execute(query.order_by(member_reports.c.sequence.desc()).limit(limit))
            return [reports.Report.FromString(body) for (body,) in rows]

    def forget_progress(self, ended: Container[str]) -> None:
        """Forgets, in this process, the progress of replays that have ended."""
        left = {name: each for name, each in self.known.progress.items() if name not in ended}
        if len(left) < len(self.known.progress):
            self._show(replace(self.known, progress=left))

    async def drop_progress(self, ended: Container[str]) -> None:
        """Forgets the progress of replays that have ended, in PostgreSQL and in this process."""
        if gone := [name for name in self.known.progress if name in ended]:
            async with self._database.transaction() as connection:
                await connection.execute(delete(replay_progress).where(replay_progress.c.name.in_(gone)))
            self.forget_progress(ended)

    async def forget(self, days: int) -> None:
        """Deletes reports that are older than `days`. The state that follows from them stays."""
        await delete_older(self._database, member_reports, datetime.now(UTC) - timedelta(days=days))

    async def _load(self) -> None:
        async with self._database.transaction() as connection:
            sequence = await _head(connection)  # first: a report that comes meanwhile is then read once more
            held = await connection.scalars(select(consumer_instances.c.instance))
            instances = [ParseDict(each, events.ConsumerInstance()) for each in held]
            progress = [
                events.ReplayProgressed.FromString(body)
                for body in await connection.scalars(select(replay_progress.c.body))
            ]
        known = Reported(sequence, {each.name: each for each in instances}, {each.name: each for each in progress})
        self._is_loaded = True
        self._show(known)

    async def _catch_up(self) -> None:
        known = self.known
        query = select(member_reports.c.body).order_by(member_reports.c.sequence).limit(PAGE)
        while True:
            async with self._database.transaction() as connection:
                head = await _head(connection)
                rows = await connection.scalars(query.where(member_reports.c.sequence > known.sequence))
                page = [reports.Report.FromString(body) for body in rows]
            for report in page:
                if report.sequence == known.sequence + 1:
                    known = known.after(report)
            if known.sequence >= head:
                self._show(known)
                return
            if not page or page[-1].sequence != known.sequence:  # some are deleted already
                await self._load()
                return

    async def _store(self, report: reports.Report, after: Reported) -> None:
        async with self._database.transaction() as connection:
            if await _head(connection, lock=True) != report.sequence - 1:
                raise ReportsMovedError
            await connection.execute(insert(member_reports).values(**_row(report)))
            await connection.execute(update(member_report_head).values(sequence=report.sequence))
            await _bring_up_to_date(connection, report, after)
            await connection.execute(
                text(f"select pg_notify('{REPORTS_CHANNEL}', :last)"), {"last": str(report.sequence)}
            )

    def _show(self, known: Reported) -> None:
        self.known = known
        sequence_gauge.set(known.sequence)


async def _head(connection: AsyncConnection, *, lock: bool = False) -> int:
    query = select(member_report_head.c.sequence)
    return int((await connection.execute(query.with_for_update() if lock else query)).scalar_one())


async def _bring_up_to_date(connection: AsyncConnection, report: reports.Report, after: Reported) -> None:
    """Updates the tables of the state that follows from all reports."""
    name, time = report.name, report.time.ToDatetime(UTC)
    match report.WhichOneof("payload"):
        case "consumer_instance_registered":
            instance = after.instances[name]
            spec = MessageToDict(instance, preserving_proto_field_name=True)
            row = {"name": name, "sidecar": instance.sidecar, "instance": spec, "update_time": time}
            statement = insert_or(consumer_instances).values(**row)
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))
        case "consumer_instance_removed":
            await connection.execute(delete(consumer_instances).where(consumer_instances.c.name == name))
        case _:
            body = after.progress[name].SerializeToString(deterministic=True)
            row = {"name": name, "body": body, "update_time": time}
            statement = insert_or(replay_progress).values(**row)
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))


def _row(report: reports.Report) -> dict[str, object]:
    return {
        "sequence": report.sequence,
        "name": report.name,
        "kind": report.WhichOneof("payload"),
        "time": report.time.ToDatetime(UTC),
        "actor": report.actor,
        "body": report.SerializeToString(deterministic=True),
    }
