"""Adds a batch to the tables of traffic: one task, one transaction, all of the batch or nothing.

Theory of operation
1. The transaction first checks that the last batch is still the batch on which the plan builds. If not, another
   pipeline has written: nothing is written, and the batch is planned again (`Outcome.is_overtaken`). The check also
   locks out other writers until the commit. So the rows are added to the tables as they are then.
2. Only now it is known which reports are repeated. A task may have folded a report that does not count, or left out one
   that counts. Then nothing is written either, and the batch is read again without the repeated reports
   (`Outcome.leave_out`). This is rare: a task finds the repeats among its own reports by itself.
3. Rows come in the order of their keys, so rows of one key from several tasks are joined as they arrive. They are
   written in parts, through a temporary table that PostgreSQL keeps in memory. For the rows of a part that have
   latencies, the existing rows are read and their sketches merged here. PostgreSQL adds the numbers.
4. The names of series go in the same transaction: readers would not find rows without names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import psycopg
import pyarrow
from psycopg import sql

from services.pipeline.kafka.position_json import render
from services.pipeline.kafka.positions import Position
from services.pipeline.postgres.day_partitions import DayPartitions
from services.pipeline.postgres.tables import Database
from services.pipeline.traffic.pieces import Kind, by_kind, in_parts, to_receipts, to_reports, to_series, to_sums
from services.pipeline.traffic.receipts import MOST_RANGES, ReceiptRow
from services.pipeline.traffic.reports import NUMBERS
from services.pipeline.traffic.rollup import Names, Row, Step, joined, together
from services.pipeline.traffic.watermark import Extent, Place, Report, Sifted, sift, watermark

REMEMBERED = 20_000
"""Records of each partition whose report ids are remembered, to recognize repeats."""
RECEIPTS = "receipts"
TABLES = {Step.MINUTE: "traffic_minutes", Step.HOUR: "traffic_hours", Step.DAY: "traffic_days"}
DAILY = (Step.MINUTE, Step.HOUR)
"""Steps that have a table for each day."""
SERIES = ("series", "client", "principal", "topic", "rule", "cluster", "api", "reporter")
COLUMNS = ("series", "time", *NUMBERS, "latency")
ROWS_AT_ONCE = 4_000
"""Rows that are written together: a temporary table of 6 MB, of the 8 MB that PostgreSQL keeps in memory."""
TOLD_AT_ONCE = 5
"""Refused reports of a batch that the outcome names."""
INCOMING = sql.Identifier("incoming_traffic")
COPY_BEGIN = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
COPY_END = b"\xff\xff"
COPY_ROW = struct.Struct(">hi16siqiqiqiqiqi")
"""A binary row for COPY: the number of columns, and each column after its length, up to the length of the sketch."""
COPY_NULL = -1
_RECEIPT_TYPES = {
    "reader": "uuid", "time": "bigint", "first": "float8", "last": "float8", "sent": "text", "perhaps": "text",
    "principal": "text", "client": "text", "group_name": "text", "topic": "text", "cluster": "text",
    "topic_id": "uuid", "partition": "int",
}  # fmt: skip
"""The types of the columns of a `ReceiptRow`, as they are sent."""
_TOLD = sql.SQL("unnest({arrays}) n({names})").format(
    arrays=sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in _RECEIPT_TYPES.values()),
    names=sql.SQL(", ").join(map(sql.Identifier, _RECEIPT_TYPES)),
)
_ADD_READERS = sql.SQL(
    "insert into receipt_readers as r (reader, principal, client, group_name, topic, partition, cluster, topic_id, "
    "first_time, last_time) select reader, min(principal), min(client), min(group_name), min(topic), min(partition), "
    "min(cluster), min(topic_id::text)::uuid, to_timestamp(min(first)), to_timestamp(max(last)) from {} "
    "group by reader order by reader on conflict (reader) do update "
    "set first_time = least(r.first_time, excluded.first_time), last_time = greatest(r.last_time, excluded.last_time)"
).format(_TOLD)
_ADD_RECEIPTS = sql.SQL(
    "insert into receipts as r (reader, time, sent, perhaps, first_time, last_time) "
    "select reader, to_timestamp(time), sent::int8multirange, perhaps::int8multirange, to_timestamp(first), "
    "to_timestamp(last) from {told} on conflict (reader, time) do update "
    "set sent = case when {have_room} then r.sent + excluded.sent else r.sent end, "
    "perhaps = case when {have_room} then r.perhaps + excluded.perhaps "
    "else int8multirange(range_merge(r.perhaps + excluded.perhaps + excluded.sent)) end, "
    "first_time = least(r.first_time, excluded.first_time), last_time = greatest(r.last_time, excluded.last_time)"
).format(
    told=_TOLD, have_room=sql.SQL("(select count(*) from unnest(r.sent + excluded.sent)) <= {}").format(MOST_RANGES)
)
"""Adds ranges to those of the rows, as `receipts.py` says."""
POSTGRES_EPOCH_S = 946_684_800
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of reports and counters by outcome, in total or of a batch."""

    reports: int = 0
    counters: int = 0
    repeated: int = 0
    late: int = 0
    refused: int = 0
    overflowed: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The batch before, and the spans of the new batch."""

    after: int
    """Number of the batch before it."""
    position: Position
    """The position after this batch."""
    complete_until: datetime | None
    """The watermark of the tables before this batch."""
    extents: Mapping[int, Extent]
    """By partition, without `last_written`, which the writer sets."""
    looked: datetime
    begins: Mapping[Step, date]
    """The first kept day of each step, ..."""
    receipts_begin: date
    """... and that of receipts."""
    left_out: frozenset[Place] = frozenset()
    """Reports that do not count."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a batch."""

    is_overtaken: bool = False
    """Nothing was written, because another pipeline has written."""
    leave_out: frozenset[Place] | None = None
    """If set, nothing was written: the batch has to be read again without these reports."""
    counts: Counts = Counts()
    refused: Sequence[tuple[int, int, str]] = ()
    """The first refused reports: partition, offset, reason."""
    complete_until: float | None = None
    """Unix time."""

    def to_json(self) -> str:
        """The form in which a task returns the outcome."""
        counts = {each.name: getattr(self.counts, each.name) for each in fields(Counts)}
        leave_out = None if self.leave_out is None else sorted(self.leave_out)
        return json.dumps([self.is_overtaken, leave_out, counts, list(self.refused), self.complete_until])

    @classmethod
    def of_json(cls, text: str) -> Outcome:
        is_overtaken, leave_out, counts, refused, complete_until = json.loads(text)
        return cls(
            is_overtaken,
            None if leave_out is None else frozenset((partition, offset) for partition, offset in leave_out),
            Counts(**counts),
            tuple((partition, offset, problem) for partition, offset, problem in refused),
            complete_until,
        )


def write(database: Database, plan: Plan, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Writes the batch in a worker of Spark; the rows are in the order of `pieces.ORDER`. Yields an Outcome."""
    outcome = _write(database, plan, batches)
    for _ in batches:  # Spark requires that all of them are consumed
        pass
    yield pyarrow.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})


def _write(database: Database, plan: Plan, batches: Iterator[pyarrow.RecordBatch]) -> Outcome:
    reports, rest = _reports_first(by_kind(batches))
    with database.connect() as connection, connection.cursor() as cursor:
        if not _is_next(cursor, plan):
            return Outcome(is_overtaken=True)
        known = _known(cursor, [each.id for each, _ in reports if each.id])
        sifted = sift((each for each, _ in reports), known, plan.complete_until)
        if {each.place for each, is_folded in reports if is_folded} != {each.place for each in sifted.taken}:
            return Outcome(leave_out=frozenset(each.place for each in sifted.repeated))
        _make_days(database, plan, sifted)
        _add_rows(cursor, rest)
        _remember(cursor, sifted.taken)
        counts, complete_until = _counts(sifted), _complete_until(plan, [each for each, _ in reports])
        _go_on(cursor, plan, counts, complete_until)
    return Outcome(
        counts=counts,
        refused=tuple((*place, problem) for place, problem in list(sifted.refused.items())[:TOLD_AT_ONCE]),
        complete_until=complete_until.timestamp() if complete_until else None,
    )


def _reports_first(
    parts: Iterator[tuple[Kind, pyarrow.RecordBatch]],
) -> tuple[list[tuple[Report, bool]], Iterator[tuple[Kind, pyarrow.RecordBatch]]]:
    """The reports, and the rest of the parts."""
    reports: list[tuple[Report, bool]] = []
    for kind, part in parts:
        if kind is not Kind.REPORT:
            return reports, chain([(kind, part)], parts)
        reports += to_reports(part)
    return reports, iter(())


def _is_next(cursor: psycopg.Cursor[Any], plan: Plan) -> bool:
    """Whether nobody has written since the plan; locks out other writers until the commit."""
    cursor.execute(
        "insert into traffic_progress (id, position, batch, told) values (1, '{}', 0, clock_timestamp()) "
        "on conflict (id) do nothing"
    )
    cursor.execute("select batch from traffic_progress for update")
    row = cursor.fetchone()
    return row is not None and row[0] == plan.after


def _known(cursor: psycopg.Cursor[Any], reports: Sequence[str]) -> set[str]:
    """The ids that earlier batches have taken."""
    cursor.execute(
        "select replace(report::text, '-', '') from traffic_reports where report = any(%s::uuid[])", (reports,)
    )
    return {str(row[0]) for row in cursor}


def _make_days(database: Database, plan: Plan, sifted: Sifted) -> None:
    """Creates the tables for the rows, by another connection: empty tables do no harm."""
    days = {each.start.date() for each in sifted.taken if each.start is not None}
    for step in DAILY:
        DayPartitions(database, TABLES[step]).make(day for day in days if day >= plan.begins[step])
    DayPartitions(database, RECEIPTS).make(day for day in days if day >= plan.receipts_begin)


def _add_rows(cursor: psycopg.Cursor[Any], parts: Iterator[tuple[Kind, pyarrow.RecordBatch]]) -> None:
    cursor.execute(
        sql.SQL("create temporary table {} on commit drop as select {} from traffic_days with no data").format(
            INCOMING, _names(COLUMNS)
        )
    )
    for kind, same in groupby(parts, itemgetter(0)):
        batches = (batch for _, batch in same)
        if kind is Kind.RECEIPT:
            for batch in batches:
                for receipts in to_receipts(batch):
                    _add_receipts(cursor, receipts)
            continue
        if kind is Kind.SERIES:
            for batch in batches:
                _add_series(cursor, *to_series(batch))
            continue
        step = Step(kind)
        for rows in in_parts(joined(to_sums(step, batches)), ROWS_AT_ONCE):
            _add_sums(cursor, TABLES[step], rows)


def _add_series(cursor: psycopg.Cursor[Any], ids: Sequence[str], names: Sequence[Names]) -> None:
    texts = sql.SQL(", ").join([sql.SQL("%s::text[]")] * (len(SERIES) - 1))
    cursor.execute(
        sql.SQL(
            "insert into traffic_series ({}) select * from unnest(%s::uuid[], {}) on conflict (series) do nothing"
        ).format(_names(SERIES), texts),
        (ids, *map(list, zip(*names, strict=True))),
    )


def _add_receipts(cursor: psycopg.Cursor[Any], rows: Sequence[ReceiptRow]) -> None:
    """Adds receipts of different keys to the table."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    cursor.execute(_ADD_READERS, columns)
    cursor.execute(_ADD_RECEIPTS, columns)


def _add_sums(cursor: psycopg.Cursor[Any], table: str, rows: Sequence[Row]) -> None:
    """Adds rows of different keys to the table."""
    merged = _with_what_stands(cursor, table, rows)
    with cursor.copy(sql.SQL("copy {} from stdin with (format binary)").format(INCOMING)) as copy:
        copy.write(b"".join([COPY_BEGIN, *_copied(merged), COPY_END]))
    added = [sql.SQL("{0} = t.{0} + excluded.{0}").format(sql.Identifier(name)) for name in NUMBERS]
    cursor.execute(
        sql.SQL(
            "insert into {} as t ({}) select * from {} on conflict (series, time) do update "
            "set {}, latency = coalesce(excluded.latency, t.latency)"
        ).format(sql.Identifier(table), _names(COLUMNS), INCOMING, sql.SQL(", ").join(added))
    )
    cursor.execute(sql.SQL("truncate {}").format(INCOMING))


def _with_what_stands(cursor: psycopg.Cursor[Any], table: str, rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, merged with the latencies of the existing rows."""
    asked = [number for number, (*_, latency) in enumerate(rows) if latency is not None]
    if not asked:
        return rows
    times = [rows[number][1] for number in asked]
    # the arrays go as one text each: element by element, they took as long as the rest of this function
    found = cursor.execute(
        sql.SQL(
            "select k.number, t.latency "
            "from unnest(%s::uuid[], %s::bigint[]) with ordinality k(series, time, number) "
            "join {} t on t.series = k.series and t.time = to_timestamp(k.time) "
            "where t.time between to_timestamp(%s) and to_timestamp(%s) and t.latency is not null"
        ).format(sql.Identifier(table)),
        (_array(rows[number][2] for number in asked), _array(map(str, times)), min(times), max(times)),
        binary=True,
    ).fetchall()
    merged = list(rows)
    for place, latency in found:
        number = asked[place - 1]
        row = merged[number]
        *_, both = together([row, (*row[:3], 0, 0, 0, 0, latency)])
        merged[number] = (*row[:7], both)
    return merged


def _array(elements: Iterable[str]) -> str:
    """PostgreSQL's text of an array whose elements need no quotes."""
    return "{" + ",".join(elements) + "}"


def _copied(rows: Iterable[Row]) -> Iterator[bytes]:
    """The rows in COPY's binary form."""
    for _, time, series, records, size, calls, errors, latency in rows:
        length = COPY_NULL if latency is None else len(latency)
        at = (time - POSTGRES_EPOCH_S) * MICROSECONDS
        yield COPY_ROW.pack(
            len(COLUMNS), 16, bytes.fromhex(series), 8, at, 8, records, 8, size, 8, calls, 8, errors, length
        )
        if latency is not None:
            yield latency


def _remember(cursor: psycopg.Cursor[Any], reports: Collection[Report]) -> None:
    ids, places = [each.id for each in reports], [each.place for each in reports]
    cursor.execute(
        'insert into traffic_reports (report, partition, "offset") '
        "select * from unnest(%s::uuid[], %s::int[], %s::bigint[]) on conflict (report) do nothing",
        (ids, [partition for partition, _ in places], [offset for _, offset in places]),
    )
    last = dict(sorted(places))
    for partition, offset in last.items():
        cursor.execute(
            'delete from traffic_reports where partition = %s and "offset" <= %s', (partition, offset - REMEMBERED)
        )


def _counts(sifted: Sifted) -> Counts:
    return Counts(
        reports=len(sifted.taken),
        counters=sum(each.counters for each in sifted.taken),
        repeated=len(sifted.repeated),
        late=sifted.late,
        refused=len(sifted.refused),
        overflowed=sum(each.overflowed for each in sifted.taken),
    )


def _complete_until(plan: Plan, reports: Iterable[Report]) -> datetime | None:
    last = {each.place[0]: each.written for each in sorted(reports, key=lambda each: each.place)}
    extents = [replace(extent, last_written=last.get(partition)) for partition, extent in plan.extents.items()]
    return watermark(plan.complete_until, extents, plan.looked)


def _go_on(cursor: psycopg.Cursor[Any], plan: Plan, counts: Counts, complete_until: datetime | None) -> None:
    names = [each.name for each in fields(Counts)]
    added = sql.SQL(", ").join(
        sql.SQL("{0} = {0} + {1}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
    )
    cursor.execute(
        sql.SQL(
            "update traffic_progress set position = %(position)s, batch = batch + 1, complete_until = %(until)s, "
            "told = clock_timestamp(), {}"
        ).format(added),
        {name: getattr(counts, name) for name in names}
        | {"position": json.dumps(render(plan.position)), "until": complete_until},
    )


def _names(columns: Collection[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
