"""The days of a table that is partitioned by day: created before rows arrive, dropped when they are old.

Each day is a table `TABLE_YYYYMMDD`. The table is created on its own and attached then, so readers of other days don't
wait. Several drivers may do this at once. A column can be unique only within a day: PostgreSQL has no unique index over
all days that leaves out the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

import psycopg
import structlog
from psycopg import sql

from services.pipeline.postgres.tables import Database

LOCK = 0x6D657368_64617973
"""Key of the advisory lock for creating and dropping days ("meshdays")."""
DROP_LOCK_TIMEOUT = "2s"
"""A drop waits for readers, and new readers wait for the drop, so it gives up soon. A later run tries again."""
ONE_DAY = timedelta(days=1)
DIGITS = len("20261122")

log = structlog.get_logger(__name__)


class TableMissingError(Exception):
    """The database lacks a migration."""


@dataclass(slots=True)
class DayPartitions:
    """The days of one table."""

    database: Database
    table: str
    unique: tuple[str, ...] = ()
    """Columns with unique values within a day, in addition to the table's own indexes."""
    _known: set[date] = field(default_factory=set)

    def make(self, days: Iterable[date]) -> None:
        """Creates the missing tables of these days."""
        if not (missing := set(days) - self._known):
            return
        with self.database.connect() as connection:
            connection.execute("select pg_advisory_xact_lock(%s)", (LOCK,))
            self._known = _days(connection, self.table)
            for day in sorted(missing - self._known):
                self._make(connection, day)
        self._known |= missing

    def forget(self) -> None:
        """Drops the cached days: another process may have dropped a day."""
        self._known = set()

    def drop_before(self, first: date) -> int:
        """Returns the number of dropped days. If somebody reads a day for long, a later call drops the day."""
        dropped = 0
        with self.database.connect() as connection:
            old = sorted(day for day in _days(connection, self.table) if day < first)
        for day in old:
            try:
                with self.database.connect() as connection:
                    connection.execute(f"set local lock_timeout = '{DROP_LOCK_TIMEOUT}'".encode())
                    connection.execute(sql.SQL("drop table if exists {}").format(_name(self.table, day)))
            except psycopg.errors.LockNotAvailable:
                log.info("an old day is dropped later, somebody reads it", table=self.table, day=day.isoformat())
                continue
            self._known.discard(day)
            dropped += 1
        return dropped

    def _make(self, connection: psycopg.Connection[tuple[object, ...]], day: date) -> None:
        name = _name(self.table, day)
        begin, end = (datetime.combine(each, time(), UTC) for each in (day, day + ONE_DAY))
        parent = sql.Identifier(self.table)
        connection.execute(sql.SQL("create table if not exists {} (like {} including all)").format(name, parent))
        if self.unique:
            index = sql.Identifier("_".join((self.table, f"{day:%Y%m%d}", *self.unique)))
            columns = sql.SQL(", ").join(map(sql.Identifier, self.unique))
            connection.execute(sql.SQL("create unique index if not exists {} on {} ({})").format(index, name, columns))
        connection.execute(
            sql.SQL("alter table {} attach partition {} for values from ({}) to ({})").format(
                parent, name, sql.Literal(begin), sql.Literal(end)
            )
        )
        log.info("day made", table=self.table, day=day.isoformat())


def _days(connection: psycopg.Connection[tuple[object, ...]], table: str) -> set[date]:
    """The attached days."""
    try:
        rows = connection.execute(
            "select child.relname from pg_inherits join pg_class child on child.oid = inhrelid "
            "where inhparent = cast(%s as regclass)",
            (table,),
        )
    except psycopg.errors.UndefinedTable as error:
        raise TableMissingError(f"the database has no table {table}: run `kafka-mesh migrate`") from error
    suffixes = [str(name).removeprefix(f"{table}_") for (name,) in rows]
    return {date.fromisoformat(each) for each in suffixes if len(each) == DIGITS and each.isdecimal()}


def _name(table: str, day: date) -> sql.Identifier:
    return sql.Identifier(f"{table}_{day:%Y%m%d}")
