"""What stands in the tables of traffic, and how a batch changes it: all of it in one transaction, or nothing.

Theory of operation
1. Where reading goes on (`position`) is set in the transaction that writes what was read up to there. There is no
   checkpoint beside the database, so the two can't disagree: a batch that was cut off was not, and is read again.
2. A row is *set* to what it comes to: what stood there, and what the batch adds, merged before. That is right as long
   as nobody wrote in between, and the transaction begins with a look whether that is so: the number of the batch is
   still the one that the merge has seen. If not, nothing is written (`OvertakenError`), and the batch is made anew.
3. The last reports of each partition are remembered, so that one that comes again is known, in whichever batch.
4. Series of which no row is left go too. That counts as a batch: one that was about to write rows of them is made anew.
5. Minutes and hours are partitioned by day. The tables of a day are made when something is written to it, and dropped
   when its time is over; what comes later than that counts in the coarser steps alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pyarrow
import structlog
from psycopg import sql
from pyspark.sql import DataFrame

from services.pipeline.day_partitions import DayPartitions
from services.pipeline.positions import Position, parse, render
from services.pipeline.tables import Database, Table, copy_line, write_rows
from services.pipeline.traffic.reports import NUMBERS, TEXTS

REMEMBERED = 20_000
"""Records of each partition whose reports are known when they come again."""
SERIES = Table("traffic_series", ("series",), ("series", *TEXTS, "reporter"))
STEPS = {"minute": "traffic_minutes", "hour": "traffic_hours", "day": "traffic_days"}
"""From the finest to the coarsest."""
DAILY = ("minute", "hour")
"""Those that have a table for each day."""
ROW = ("series", "time", *NUMBERS, "latency")
STOOD = tuple(f"stood_{name}" for name in (*NUMBERS, "latency"))
ARROW_STOOD = [*((f"stood_{name}", pyarrow.int64()) for name in NUMBERS), ("stood_latency", pyarrow.binary())]
INCOMING = sql.Identifier("incoming_traffic")
_FORGET_SERIES = sql.SQL("delete from traffic_series s where {}").format(
    sql.SQL(" and ").join(
        sql.SQL("not exists (select from {} t where t.series = s.series)").format(sql.Identifier(STEPS[step]))
        for step in reversed(STEPS)
    )
)

log = structlog.get_logger(__name__)


class LedgerError(Exception):
    """The tables can't be used; the message says what to do."""


class OvertakenError(LedgerError):
    """Somebody else has written since we looked."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was done with the reports that came, ever or in a batch."""

    reports: int = 0
    counters: int = 0
    repeated: int = 0
    late: int = 0
    refused: int = 0
    overflowed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the tables are."""

    position: Position
    batch: int
    complete_until: datetime | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a batch writes beside its rows."""

    after: int
    """The batch that it builds on."""
    position: Position
    complete_until: datetime | None
    reports: Collection[tuple[str, int, int]]
    """Ids of those that it took, with their places."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class Keeping:
    """How many days each step is kept; 0 is for ever."""

    minutes: int = 7
    hours: int = 90
    days: int = 400

    def begins(self, today: date) -> dict[str, date]:
        """The first day of each step that is kept."""
        return {
            step: today - timedelta(days=kept) if kept else date.min
            for step, kept in zip(STEPS, (self.minutes, self.hours, self.days), strict=True)
        }


class Ledger:
    """The tables of traffic, as the driver uses them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._days = {step: DayPartitions(database, STEPS[step]) for step in DAILY}

    def progress(self) -> Progress:
        """How far the tables are."""
        with self._connected() as connection:
            row = connection.execute("select position, batch, complete_until from traffic_progress").fetchone()
        if row is None:
            return Progress({}, 0, None)
        position, batch, complete_until = _any(row)
        return Progress(parse(position), batch, complete_until)

    def tell(self, progress: Progress, complete_until: datetime | None) -> None:
        """That a pipeline is here, and has nothing to write."""
        with self._connected() as connection:
            connection.execute(
                "insert into traffic_progress (id, position, batch, complete_until, told) "
                "values (1, %s, %s, %s, clock_timestamp()) on conflict (id) do update "
                "set complete_until = excluded.complete_until, told = excluded.told "
                "where traffic_progress.batch = excluded.batch",
                (json.dumps(render(progress.position)), progress.batch, complete_until),
            )

    def known(self, reports: Collection[str]) -> set[str]:
        """Those of the ids that were taken before."""
        with self._connected() as connection:
            rows = connection.execute(
                "select replace(report::text, '-', '') from traffic_reports where report = any(%s::uuid[])",
                (list(reports),),
            )
            return {str(row[0]) for row in rows}

    def make_days(self, days: Mapping[str, Collection[date]]) -> None:
        """The tables that rows of these days of a step go to."""
        for step, partitions in self._days.items():
            partitions.make(days.get(step, ()))

    def drop_days(self, begins: Mapping[str, date]) -> None:
        """What is older than it is kept, and series of which nothing is left."""
        for step, partitions in self._days.items():
            partitions.drop_before(begins[step])
        with self._connected() as connection:
            connection.execute("delete from traffic_days where time < %s", (_midnight(begins["day"]),))
        with self._connected() as connection:
            connection.execute("select from traffic_progress for update")  # from now on nobody writes rows before us
            forgotten = connection.execute(_FORGET_SERIES).rowcount
            if forgotten:
                connection.execute("update traffic_progress set batch = batch + 1")
        if forgotten:
            log.info("series forgotten", series=forgotten)

    def write(self, rows: DataFrame, entry: Entry) -> None:
        """Sets the rows (columns of ROW, and `step`) and what the entry says. OvertakenError writes nothing.

        One task writes: one transaction has one connection.
        """
        line = copy_line(rows, ("step", *ROW)).alias("line")
        lines = rows.select(line).repartition(1)
        (outcome,) = lines.mapInArrow(partial(_write, self.database, entry), "overtaken boolean").collect()
        if outcome["overtaken"]:
            raise OvertakenError(
                "another pipeline rolls up traffic into this database: one is enough, stop this one or the other"
            )

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        try:
            return self.database.connect()
        except psycopg.OperationalError as error:
            raise LedgerError(f"the database does not answer: {str(error).strip().splitlines()[0]}") from error


def write_series(rows: DataFrame, database: Database) -> None:
    """Of whom and of what the rows are. Rows without their series would be lost to readers, so series come first."""
    write_rows(rows.select(*SERIES.columns).distinct(), SERIES, database)


def beside_what_stands(rows: DataFrame, database: Database) -> DataFrame:
    """Each row with what the tables have for it, in the columns of STOOD; null where they have nothing."""
    types = [f"{field.name} {field.dataType.simpleString()}" for field in rows.schema.fields]
    stood = [*(f"stood_{name} bigint" for name in NUMBERS), "stood_latency binary"]
    return rows.mapInArrow(partial(_look_up, database), ", ".join([*types, *stood]))


def _look_up(database: Database, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """In a worker of Spark's."""
    connection: psycopg.Connection[Any] | None = None
    try:
        for batch in batches:
            connection = connection or database.connect()
            yield _with_stood(connection, batch)
    finally:
        if connection is not None:
            connection.close()


def _with_stood(connection: psycopg.Connection[Any], batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    steps, times, series = (batch.column(name).to_pylist() for name in ("step", "time", "series"))
    stood: list[tuple[Any, ...]] = [(None,) * len(ARROW_STOOD)] * batch.num_rows
    for step, table in STEPS.items():
        asked = [number for number, each in enumerate(steps) if each == step]
        if not asked:
            continue
        found = connection.execute(
            sql.SQL(
                "select k.number, {} from unnest(%b::int[], %b::uuid[], %b::timestamptz[]) k(number, series, time) "
                "join {} t on t.series = k.series and t.time = k.time where t.time between %s and %s"
            ).format(
                sql.SQL(", ").join(sql.Identifier("t", name) for name in (*NUMBERS, "latency")),
                sql.Identifier(table),
            ),
            (
                asked,
                [series[number] for number in asked],
                [times[number] for number in asked],
                min(times[number] for number in asked),
                max(times[number] for number in asked),
            ),
            binary=True,
        )
        for number, *row in found:
            stood[number] = tuple(row)
    columns = [
        pyarrow.array(column, kind) for column, (_, kind) in zip(zip(*stood, strict=True), ARROW_STOOD, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(
        [*batch.columns, *columns],
        schema=pyarrow.schema([*batch.schema, *(pyarrow.field(*each) for each in ARROW_STOOD)]),
    )


def _write(database: Database, entry: Entry, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """In a worker of Spark's; rows come while the transaction waits."""
    with database.connect() as connection, connection.cursor() as cursor:
        overtaken = not _is_next(cursor, entry)
        if overtaken:
            for _ in batches:
                pass
        else:
            _fill(cursor, batches)
            for step, table in STEPS.items():
                cursor.execute(_set_rows(table), (step,))
            _remember(cursor, entry)
            _go_on(cursor, entry)
    yield pyarrow.RecordBatch.from_pydict({"overtaken": [overtaken]})


def _is_next(cursor: psycopg.Cursor[Any], entry: Entry) -> bool:
    """Whether nobody wrote since; from now on nobody does before us."""
    cursor.execute(
        "insert into traffic_progress (id, position, batch, told) values (1, '{}', 0, clock_timestamp()) "
        "on conflict (id) do nothing"
    )
    cursor.execute("select batch from traffic_progress for update")
    return bool(_any(cursor.fetchone())[0] == entry.after)


def _fill(cursor: psycopg.Cursor[Any], batches: Iterator[pyarrow.RecordBatch]) -> None:
    cursor.execute(
        sql.SQL(
            "create temporary table {} on commit drop as select ''::text as step, {} from traffic_days with no data"
        ).format(INCOMING, _names(ROW))
    )
    with cursor.copy(sql.SQL("copy {} from stdin").format(INCOMING)) as copy:
        for batch in batches:
            copy.write(b"".join(batch.column(0).to_pylist()))


def _set_rows(table: str) -> sql.Composed:
    changed = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in (*NUMBERS, "latency")]
    return sql.SQL(
        "insert into {} ({}) select {} from {} where step = %s order by time, series "
        "on conflict (series, time) do update set {}"
    ).format(sql.Identifier(table), _names(ROW), _names(ROW), INCOMING, sql.SQL(", ").join(changed))


def _remember(cursor: psycopg.Cursor[Any], entry: Entry) -> None:
    cursor.executemany(
        'insert into traffic_reports (report, partition, "offset") values (%s, %s, %s) on conflict (report) do nothing',
        list(entry.reports),
    )
    last: dict[int, int] = {}
    for _, partition, offset in entry.reports:
        last[partition] = max(offset, last.get(partition, 0))
    cursor.executemany(
        'delete from traffic_reports where partition = %s and "offset" <= %s',
        [(partition, offset - REMEMBERED) for partition, offset in last.items()],
    )


def _go_on(cursor: psycopg.Cursor[Any], entry: Entry) -> None:
    names = list(Counts.__dataclass_fields__)
    added = sql.SQL(", ").join(
        sql.SQL("{0} = {0} + {1}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
    )
    cursor.execute(
        sql.SQL(
            "update traffic_progress set position = %(position)s, batch = batch + 1, complete_until = %(until)s, "
            "told = clock_timestamp(), {}"
        ).format(added),
        {name: getattr(entry.counts, name) for name in names}
        | {"position": json.dumps(render(entry.position)), "until": entry.complete_until},
    )


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _names(columns: Collection[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _any(row: Any) -> Any:
    """A row whose types the query says, and not the cursor."""
    assert row is not None
    return row
