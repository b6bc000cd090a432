"""Traffic in PostgreSQL, where a pipeline puts it: read, never written.

Numbers are added up by PostgreSQL. Sketches of latencies are merged here, in a thread, as they come: 100,000 of them
take a quarter of a second, and SKETCHES_AT_ONCE are in memory. If there are more than 100,000, control merges an even
part of them, so percentiles stay right within their error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Select, Text, cast, desc, func, select, text, tuple_, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh import durations
from mesh.rpc import traffic
from services.control.domain.dry_runs.traffic import TopicTraffic
from services.control.domain.lineage.rates import Rate, Traffic
from services.control.domain.traffic.queries import LAST_HOUR, Kept, Piece, Range, Step, Told
from services.control.store import pipeline_tables
from services.control.store.database import Database

if TYPE_CHECKING:
    import datasketches

MOST_SKETCHES = 100_000
SKETCHES_AT_ONCE = 2_000
"""At most 6 MB."""
SKETCH_K = 200
RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TABLES = {
    Step.MINUTE: pipeline_tables.traffic_minutes,
    Step.HOUR: pipeline_tables.traffic_hours,
    Step.DAY: pipeline_tables.traffic_days,
}
NUMBERS = ("records", "bytes", "calls", "errors")
SERIES = pipeline_tables.traffic_series
DAILY = re.compile(r"traffic_(minutes|hours)_(\d{8})")
MOST_OF_CLIENTS = 10_000
"""Rows: clients of the topics of one question."""
RECENT = timedelta(hours=24)
"""The period of the traffic that is shown for topics that a change would move."""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopTraffic:
    """The talkers with the most traffic, and the total."""

    talkers: Sequence[tuple[Names, traffic.TrafficFigures]]
    total: traffic.TrafficFigures


@dataclass(frozen=True, slots=True)
class TrafficCourse:
    """Traffic over time."""

    points: Sequence[tuple[datetime, traffic.TrafficFigures]]
    total: traffic.TrafficFigures


class TrafficTables:
    """Answers questions about the tables of traffic."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def told(self) -> tuple[Told | None, datetime]:
        """The last report of the pipeline about itself, and the time of PostgreSQL's clock, which dates the report."""
        progress = pipeline_tables.traffic_progress.c
        async with self._database.transaction() as connection:
            row = (await connection.execute(select(progress.complete_until, progress.told))).first()
            now = await connection.scalar(select(func.now()))
        return row and Told(row.complete_until, row.told), now or datetime.now(UTC)

    async def kept(self) -> Kept:
        """The first day that minutes and hours have; the last of all days where they have none."""
        query = text(
            "select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid "
            "where i.inhparent in (cast('traffic_minutes' as regclass), cast('traffic_hours' as regclass))"
        )
        async with self._database.transaction() as connection:
            names = [row.name for row in await connection.execute(query)]
        found = {Step.MINUTE: date.max, Step.HOUR: date.max}
        for each in filter(None, map(DAILY.fullmatch, names)):
            step = Step.MINUTE if each[1] == "minutes" else Step.HOUR
            found[step] = min(date.fromisoformat(each[2]), found[step])
        return found

    async def top(
        self, asked: Range, pieces: Sequence[Piece], by: Sequence[str], measure: str, limit: int
    ) -> TopTraffic:
        """The talkers with the most traffic, and the total."""
        rows = _rows(asked, pieces, by).subquery()
        names = [rows.c[name] for name in by]
        numbers = [_sum(rows.c[name], name) for name in NUMBERS]
        sketched = func.count(rows.c.latency).label("sketched")
        top = (
            select(*names, *numbers, sketched)
            .group_by(*names)
            .order_by(desc(func.sum(rows.c[measure])), *names)
            .limit(limit)
        )
        async with self._database.transaction() as connection:
            talkers = (await connection.execute(top)).all()
            total = (await connection.execute(select(*numbers, sketched))).one()
            wanted = [tuple(row[: len(by)]) for row in talkers]
            of_these = tuple_(*names).in_(wanted) if wanted else text("false")
            few = await _merged(
                connection, select(*names, rows.c.latency).where(of_these), rows, sum(row.sketched for row in talkers)
            )
            whole = await _merged(connection, select(rows.c.latency), rows, total.sketched)
        return TopTraffic(
            [(key, _figures(row, few.get(key))) for key, row in zip(wanted, talkers, strict=True)],
            _figures(total, whole.get(())),
        )

    async def course(self, asked: Range, piece: Piece) -> TrafficCourse:
        """A point for each row's time that has traffic."""
        rows = _rows(asked, [piece], ()).subquery()
        numbers = [_sum(rows.c[name], name) for name in NUMBERS]
        sketched = func.count(rows.c.latency).label("sketched")
        query = select(rows.c.time, *numbers, sketched).group_by(rows.c.time).order_by(rows.c.time)
        async with self._database.transaction() as connection:
            found = (await connection.execute(query)).all()
            of_points = select(rows.c.time, rows.c.latency)
            merged = await _merged(connection, of_points, rows, sum(row.sketched for row in found))
        total = traffic.TrafficFigures(**{name: sum(getattr(row, name) for row in found) for name in NUMBERS})
        await asyncio.to_thread(_add_percentiles, total, _together(merged.values()))
        return TrafficCourse(
            [(row.time.astimezone(UTC), _figures(row, merged.get((row.time,)))) for row in found], total
        )

    async def of_clients(self, topics: Iterable[str]) -> list[Traffic]:
        """The traffic of the last hour with these topics, by client and API; that with the most bytes first."""
        wanted = sorted(set(topics))
        if not wanted:
            return []
        end = Step.MINUTE.floor(datetime.now(UTC))
        by = ("principal", "client", "topic", "api")
        piece = Piece(Step.MINUTE, end - LAST_HOUR, end)
        rows = _rows(Range({}, piece.start, piece.end), [piece], by, wanted).subquery()
        names = [rows.c[name] for name in by]
        query = select(*names, _sum(rows.c.records, "records"), _sum(rows.c.bytes, "bytes")).group_by(*names)
        async with self._database.transaction() as connection:
            found = await connection.execute(query.order_by(desc("bytes")).limit(MOST_OF_CLIENTS))
            seconds = LAST_HOUR.total_seconds()
            return [Traffic(*row[:4], Rate(row.records / seconds, row.bytes / seconds)) for row in found]

    async def lately(self, topics: Iterable[str]) -> dict[str, TopicTraffic]:
        """Those of the topics that had traffic in the last day; whole hours, so few rows for each."""
        end = Step.HOUR.ceil(datetime.now(UTC))
        start = end - RECENT
        wanted = sorted(set(topics))
        if not wanted:
            return {}
        rows = _rows(Range({}, start, end), [Piece(Step.HOUR, start, end)], ("topic", "client"), wanted).subquery()
        sketched = func.count(rows.c.latency).label("sketched")
        clients = func.count(func.distinct(rows.c.client)).label("clients")
        numbers = [_sum(rows.c[name], name) for name in NUMBERS]
        first = func.min(rows.c.time).label("first")
        query = select(rows.c.topic, *numbers, clients, sketched, first).group_by(rows.c.topic)
        async with self._database.transaction() as connection:
            found = (await connection.execute(query)).all()
            of_topics = select(rows.c.topic, rows.c.latency)
            merged = await _merged(connection, of_topics, rows, sum(row.sketched for row in found))
        answer = {}
        for row in found:
            seconds = max((datetime.now(UTC) - row.first).total_seconds(), Step.MINUTE.value.total_seconds())
            figures = _figures(row, merged.get((row.topic,)))
            answer[row.topic] = TopicTraffic(
                records_a_second=row.records / seconds,
                bytes_a_second=row.bytes / seconds,
                clients=row.clients,
                p99_ms=durations.in_ms(figures.p99) if figures.HasField("p99") else None,
            )
        return answer


def _rows(asked: Range, pieces: Sequence[Piece], by: Sequence[str], topics: Sequence[str] | None = None) -> Any:
    """The rows of all pieces, with their names."""
    return union_all(*(_of_piece(asked, piece, by, topics) for piece in pieces))


def _of_piece(asked: Range, piece: Piece, by: Sequence[str], topics: Sequence[str] | None) -> Select[Any]:
    table = TABLES[piece.step]
    wanted = (
        select(table.c.series, table.c.time, *(table.c[name] for name in NUMBERS), table.c.latency)
        .add_columns(*(SERIES.c[name] for name in by))
        .join(SERIES, SERIES.c.series == table.c.series)
        .where(table.c.time >= piece.start, table.c.time < piece.end)
    )
    for name, value in asked.filter.items():
        wanted = wanted.where(SERIES.c[name] == value)
    return wanted if topics is None else wanted.where(SERIES.c.topic.in_(topics))


def _sum(column: Any, name: str) -> Any:
    """As a whole number: PostgreSQL makes a decimal of a sum."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger).label(name)


async def _merged(
    connection: AsyncConnection, query: Select[Any], rows: Any, count: int
) -> dict[tuple[Any, ...], datasketches.kll_floats_sketch]:
    """Merges the sketches of rows whose other columns are equal."""
    query = query.where(rows.c.latency.is_not(None))
    if count > MOST_SKETCHES:
        number = func.hashtextextended(cast(rows.c.series, Text), cast(func.extract("epoch", rows.c.time), BigInteger))
        query = query.where(func.mod(number, -(-count // MOST_SKETCHES)) == 0)
    merged: dict[tuple[Any, ...], datasketches.kll_floats_sketch] = {}
    found = await connection.stream(query, execution_options={"yield_per": SKETCHES_AT_ONCE})
    async for some in found.partitions():
        await asyncio.to_thread(_merge, some, merged)
    return merged


def _merge(rows: Sequence[Any], merged: dict[tuple[Any, ...], datasketches.kll_floats_sketch]) -> None:
    for *key, latency in rows:
        name = tuple(key)
        if name not in merged:
            merged[name] = _empty_sketch()
        merged[name].merge(type(merged[name]).deserialize(bytes(latency)))


def _together(sketches: Iterable[datasketches.kll_floats_sketch]) -> datasketches.kll_floats_sketch:
    whole = _empty_sketch()
    for each in sketches:
        whole.merge(each)
    return whole


def _empty_sketch() -> datasketches.kll_floats_sketch:
    import datasketches  # with numpy: a control whose traffic nobody asks for starts without both

    return datasketches.kll_floats_sketch(SKETCH_K)


def _figures(row: Any, sketch: datasketches.kll_floats_sketch | None) -> traffic.TrafficFigures:
    figures = traffic.TrafficFigures(**{name: getattr(row, name) for name in NUMBERS})
    _add_percentiles(figures, sketch)
    return figures


def _add_percentiles(figures: traffic.TrafficFigures, sketch: datasketches.kll_floats_sketch | None) -> None:
    if sketch is None or sketch.is_empty():
        return
    for (name, _), value in zip(RANKS.items(), sketch.get_quantiles(list(RANKS.values())), strict=True):
        getattr(figures, name).CopyFrom(durations.of_ms(value))
    figures.max.CopyFrom(durations.of_ms(sketch.get_max_value()))
