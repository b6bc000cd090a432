"""Days of a table on a real PostgreSQL: there before rows come, and gone when they are old."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.toolchain import need_spark

if TYPE_CHECKING:
    from services.pipeline.postgres.day_partitions import DayPartitions

FIRST = date(2026, 2, 27)
DAYS = [FIRST + timedelta(days=number) for number in range(4)]


@pytest.fixture(scope="module")
def days_database(postgres: PostgresServer) -> str:
    return postgres()


@pytest.fixture
def days(days_database: str) -> DayPartitions:
    need_spark()
    from services.pipeline.postgres.day_partitions import DayPartitions
    from services.pipeline.postgres.tables import Database

    table = f"days_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(days_database) as connection:
        connection.execute(f"create table {table} (time timestamptz primary key) partition by range (time)".encode())
        connection.execute(f"create index on {table} (time desc)".encode())
    return DayPartitions(Database(days_database), table)


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def add(days: DayPartitions, *wanted: date) -> None:
    with days.database.connect() as connection:
        for day in wanted:
            connection.execute(f"insert into {days.table} values (%s)".encode(), (noon(day),))


def kept(days: DayPartitions) -> list[date]:
    with days.database.connect() as connection:
        found = connection.execute(f"select time from {days.table} order by 1".encode())
        return [time.date() for (time,) in found if isinstance(time, datetime)]


def test_rows_go_to_the_table_of_their_day_to_its_last_moment(days: DayPartitions) -> None:
    days.make(DAYS)
    days.make(DAYS)
    add(days, *DAYS)
    with days.database.connect() as connection:
        connection.execute(f"insert into {days.table} values ('2026-02-27T23:59:59.999999Z')".encode())
        of_first = connection.execute(f"select count(*) from {days.table}_20260227".encode()).fetchone()
        indexes = connection.execute(
            "select count(*) from pg_indexes where tablename = %s", (f"{days.table}_20260227",)
        ).fetchone()
    assert (of_first, indexes) == ((2,), (2,))


def test_another_driver_may_have_made_them(days: DayPartitions) -> None:
    from services.pipeline.postgres.day_partitions import DayPartitions

    days.make(DAYS[:2])
    DayPartitions(days.database, days.table).make(DAYS)
    days.make(DAYS)
    add(days, *DAYS)
    assert kept(days) == DAYS


def test_a_day_that_somebody_has_dropped_is_made_again_when_they_are_looked_up(days: DayPartitions) -> None:
    days.make(DAYS)
    with days.database.connect() as connection:
        connection.execute(f"drop table {days.table}_{DAYS[1]:%Y%m%d}".encode())
    days.forget()
    days.make(DAYS)
    add(days, *DAYS)
    assert kept(days) == DAYS


def test_rows_of_a_day_differ_in_what_is_to_be_unique(days_database: str) -> None:
    from services.pipeline.postgres.day_partitions import DayPartitions
    from services.pipeline.postgres.tables import Database

    table = f"days_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(days_database, autocommit=True) as connection:
        connection.execute(f"create table {table} (time timestamptz, id int) partition by range (time)".encode())
        DayPartitions(Database(days_database), table, unique=("id",)).make(DAYS)
        adding = f"insert into {table} values (%s, 7) on conflict do nothing".encode()
        at = [noon(DAYS[0]), noon(DAYS[0]) + timedelta(seconds=1), noon(DAYS[1])]
        assert [connection.execute(adding, (time,)).rowcount for time in at] == [1, 0, 1]


def test_old_days_are_dropped_with_their_rows_and_can_be_made_again(days: DayPartitions) -> None:
    days.make(DAYS)
    add(days, *DAYS)
    assert days.drop_before(DAYS[2]) == 2
    assert kept(days) == DAYS[2:]
    days.make(DAYS[:1])
    add(days, DAYS[0])
    assert kept(days) == [DAYS[0], *DAYS[2:]]


def test_a_day_that_somebody_reads_stays_and_goes_the_next_time(
    days: DayPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.pipeline.postgres import day_partitions

    monkeypatch.setattr(day_partitions, "DROP_LOCK_TIMEOUT", "50ms")
    days.make(DAYS)
    with days.database.connect() as reader:
        reader.execute(f"select * from {days.table}".encode())
        assert days.drop_before(DAYS[1]) == 0
    assert days.drop_before(DAYS[1]) == 1


def test_a_database_that_was_not_migrated_is_told_of(days: DayPartitions) -> None:
    from services.pipeline.postgres.day_partitions import DayPartitions, TableMissingError

    with pytest.raises(TableMissingError, match="no table audit_events: run `kafka-mesh migrate`"):
        DayPartitions(days.database, "audit_events").make(DAYS)
