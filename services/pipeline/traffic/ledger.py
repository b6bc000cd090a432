"""What stands in the tables of traffic, as the driver asks and keeps it; batches change it by `writing.py`.

Theory of operation
1. Where reading goes on (`position`) is set in the transaction that writes what was read up to there. There is no
   checkpoint beside the database, so the two can't disagree: a batch that was cut off was not, and is read again.
2. The last reports of each partition are remembered, so that one that comes again is known, in whichever batch.
3. Series of which no row is left go too. That counts as a batch: one that was about to write rows of them is made anew.
4. Minutes and hours are partitioned by day. The tables of a day are made when something is written to it, and dropped
   when its time is over; what comes later than that counts in the coarser steps alone.
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

from services.pipeline.day_partitions import DayPartitions
from services.pipeline.positions import Position, parse, render
from services.pipeline.tables import Database
from services.pipeline.traffic.sums import Step
from services.pipeline.traffic.writing import DAILY, TABLES

NO_SERIES = "00000000-0000-0000-0000-000000000000"
"""Before all of them."""
CLEANED_AT_ONCE = 1_000
"""Series that one statement looks at, and rows of days that one statement deletes: a fraction of a second each."""
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
    """How far the tables are."""

    position: Position
    batch: int
    complete_until: datetime | None


@dataclass(frozen=True, slots=True)
class Keeping:
    """How many days each step is kept; 0 is for ever."""

    minutes: int = 7
    hours: int = 90
    days: int = 400

    def begins(self, today: date) -> dict[Step, date]:
        """The first day of each step that is kept."""
        return {
            step: today - timedelta(days=kept) if kept else date.min
            for step, kept in zip(Step, (self.minutes, self.hours, self.days), strict=True)
        }


class Ledger:
    """The tables of traffic, as the driver uses them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._days = {step: DayPartitions(database, TABLES[step]) for step in DAILY}

    def progress(self) -> Progress:
        """How far the tables are."""
        with self._connected() as connection:
            row: Any = connection.execute("select position, batch, complete_until from traffic_progress").fetchone()
        if row is None:
            return Progress({}, 0, None)
        position, batch, complete_until = row
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

    def drop_days(self, begins: Mapping[Step, date]) -> None:
        """What is older than it is kept, and series of which nothing is left."""
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
        """Some of those that are too old; how many."""
        with self._connected() as connection:
            return connection.execute(_FORGET_DAYS, (first, CLEANED_AT_ONCE)).rowcount

    def _forget_series(self, after: str) -> tuple[str | None, int]:
        """Looks at some series behind `after`: the last of them, None where there was none, and how many are gone.

        Each call is a transaction: batches are written in between.
        """
        with self._connected() as connection:
            connection.execute("select from traffic_progress for update")  # from now on nobody writes rows before us
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
