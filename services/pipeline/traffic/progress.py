"""The driver's view of the tables of traffic: their progress and their upkeep; batches change them by `writer.py`.

Theory of operation
1. The transaction that writes a batch also sets the position of the reading (`position`). There is no checkpoint beside
   the database, so the two can't disagree. A batch that was cut off has left nothing, and is read again.
2. The last reports of each partition are remembered, so that a repeated report is recognized in any batch.
3. Series without rows are deleted. A deletion counts as a batch: a batch that was about to write rows of such a series
   is planned again.
4. Minutes and hours are partitioned by day. The tables of a day are created with the first row, and dropped at the end
   of their time. A later report for such a day counts in the coarser steps only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg
import structlog
from psycopg import sql

from services.pipeline.kafka.position_json import parse, render
from services.pipeline.kafka.positions import Position
from services.pipeline.postgres.day_partitions import DayPartitions
from services.pipeline.postgres.tables import Database
from services.pipeline.traffic.rollup import Step
from services.pipeline.traffic.writer import DAILY, RECEIPTS, TABLES

NO_SERIES = "00000000-0000-0000-0000-000000000000"
"""A value before all series."""
CLEANED_AT_ONCE = 1_000
"""Series that one statement checks, and rows of days that one statement deletes: a fraction of a second each."""
_FORGET_SERIES = sql.SQL(
    "with looked_at as (select series from traffic_series where series > %s order by series limit %s), "
    "forgotten as (delete from traffic_series s using looked_at l where s.series = l.series and {} returning 1) "
    "select (array_agg(series order by series desc))[1]::text, (select count(*) from forgotten) from looked_at"
).format(
    sql.SQL(" and ").join(
        sql.SQL("not exists (select from {} t where t.series = s.series)").format(sql.Identifier(TABLES[step]))
        for step in reversed(Step)
    )
)
_FORGET_DAYS = (
    "delete from traffic_days where ctid = any(array(select ctid from traffic_days where time < %s limit %s))"
)

log = structlog.get_logger(__name__)


class LedgerError(Exception):
    """The tables can't be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the tables."""

    position: Position
    batch: int
    complete_until: datetime | None


@dataclass(frozen=True, slots=True)
class Keeping:
    """Number of days that each step and receipts are kept; 0: for ever."""

    minutes: int = 7
    hours: int = 90
    days: int = 400
    receipts: int = 30

    def begins(self, today: date) -> dict[Step, date]:
        """The first kept day of each step."""
        return {
            step: today - timedelta(days=kept) if kept else date.min
            for step, kept in zip(Step, (self.minutes, self.hours, self.days), strict=True)
        }

    def receipts_begin(self, today: date) -> date:
        """The first day that has receipts."""
        return today - timedelta(days=self.receipts) if self.receipts else date.min


class Ledger:
    """The tables of traffic, as the driver uses them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._days = {step: DayPartitions(database, TABLES[step]) for step in DAILY}
        self._receipts = DayPartitions(database, RECEIPTS)

    def progress(self) -> Progress:
        """Reads the progress of the tables."""
        with self._connected() as connection:
            row: Any = connection.execute("select position, batch, complete_until from traffic_progress").fetchone()
        if row is None:
            return Progress({}, 0, None)
        position, batch, complete_until = row
        return Progress(parse(position), batch, complete_until)

    def tell(self, progress: Progress, complete_until: datetime | None) -> None:
        """Records that a pipeline runs and has nothing to write."""
        with self._connected() as connection:
            connection.execute(
                "insert into traffic_progress (id, position, batch, complete_until, told) "
                "values (1, %s, %s, %s, clock_timestamp()) on conflict (id) do update "
                "set complete_until = excluded.complete_until, told = excluded.told "
                "where traffic_progress.batch = excluded.batch",
                (json.dumps(render(progress.position)), progress.batch, complete_until),
            )

    def drop_days(self, begins: Mapping[Step, date], receipts_begin: date) -> None:
        """Deletes rows that are too old, and series without rows."""
        self._receipts.drop_before(receipts_begin)
        with self._connected() as connection:
            connection.execute("delete from receipt_readers where last_time < %s", (receipts_begin,))
        for step, partitions in self._days.items():
            partitions.drop_before(begins[step])
        first = datetime.combine(begins[Step.DAY], time(), UTC)
        while self._delete_days(first) == CLEANED_AT_ONCE:
            pass
        last: str | None = NO_SERIES
        forgotten = 0
        while last is not None:
            last, gone = self._forget_series(last)
            forgotten += gone
        if forgotten:
            log.info("series forgotten", series=forgotten)

    def _delete_days(self, first: datetime) -> int:
        """Deletes some rows that are too old; returns their number."""
        with self._connected() as connection:
            return connection.execute(_FORGET_DAYS, (first, CLEANED_AT_ONCE)).rowcount

    def _forget_series(self, after: str) -> tuple[str | None, int]:
        """Checks some series behind `after`; returns the last one, or None, and the number of deleted ones.

        Each call is a transaction: batches are written in between.
        """
        with self._connected() as connection:
            connection.execute("select from traffic_progress for update")  # locks out other writers
            row: Any = connection.execute(_FORGET_SERIES, (after, CLEANED_AT_ONCE)).fetchone()
            last, forgotten = row
            if forgotten:
                connection.execute("update traffic_progress set batch = batch + 1")
        return last, forgotten

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        try:
            return self.database.connect()
        except psycopg.OperationalError as error:
            raise LedgerError(f"the database does not answer: {str(error).strip().splitlines()[0]}") from error
