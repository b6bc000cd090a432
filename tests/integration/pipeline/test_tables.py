"""Rows of Spark in a real PostgreSQL: what is written is what is read, and what is written twice is there once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.databases import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from services.pipeline.postgres.tables import Database, Table

CREATE = """
create table {name} (
    basket int, fruit text, weight double precision, picked timestamptz, peel bytea, is_ripe boolean,
    primary key (basket, fruit)
)
"""
COLUMNS = "basket int, fruit string, weight double, picked timestamp, peel binary, is_ripe boolean"
PICKED = datetime(2026, 11, 21, 23, 59, 59, 123456, UTC)
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Database:
    from services.pipeline.postgres.tables import Database

    return Database(postgres())


@pytest.fixture
def fruit(database: Database, unique_name: Callable[[str], str]) -> Table:
    from services.pipeline.postgres.tables import Table

    name = unique_name("fruit").replace("-", "_")
    with database.connect() as connection:
        connection.execute(CREATE.format(name=name).encode())
    return Table(name, ("basket", "fruit"), ("basket", "fruit", "weight", "picked", "peel", "is_ripe"))


def rows_in(database: Database, table: Table) -> list[Row]:
    with database.connect() as connection:
        return list(connection.execute(f"select * from {table.name} order by 1, 2".encode()))


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame(list(rows), COLUMNS)


def test_what_is_written_is_what_is_read(spark: SparkSession, database: Database, fruit: Table) -> None:
    from services.pipeline.postgres.tables import Written, write_rows

    rows = [
        (1, "apple", 0.25, PICKED, b"\x00\\x\xff", True),
        (2, "", None, None, None, None),
        (3, "two\nlines\r\tand \\N and \\. and ü 🍎", float("inf"), PICKED, b"", False),
        (4, "\\.", -0.0, PICKED, b"\n", True),
    ]
    assert write_rows(frame(spark, *rows), fruit, database) == Written(given=4, stored=4)
    assert rows_in(database, fruit) == rows


def test_text_that_postgresql_cannot_hold_comes_without_it(
    spark: SparkSession, database: Database, fruit: Table
) -> None:
    from pyspark.sql import functions as f

    from services.pipeline.postgres.tables import write_rows

    broken = frame(spark, (1, "", None, None, b"a\x00b\xffc", None)).withColumn("fruit", f.col("peel").cast("string"))
    write_rows(broken, fruit, database)
    assert [row[1] for row in rows_in(database, fruit)] == ["ab\ufffdc"]


def test_a_row_whose_key_is_there_is_kept_or_set(spark: SparkSession, database: Database, fruit: Table) -> None:
    from dataclasses import replace

    from services.pipeline.postgres.tables import Conflict, Written, write_rows

    first = (1, "apple", 1.0, PICKED, None, False)
    ripe = (1, "apple", 2.0, PICKED, None, True)
    pear = (1, "pear", 3.0, PICKED, None, True)
    write_rows(frame(spark, first), fruit, database)

    assert write_rows(frame(spark, ripe, pear, pear), fruit, database) == Written(given=3, stored=1)
    assert rows_in(database, fruit) == [first, pear]

    setting = replace(fruit, on_conflict=Conflict.SET)
    assert write_rows(frame(spark, ripe, pear), setting, database) == Written(given=2, stored=2)
    assert rows_in(database, fruit) == [ripe, pear]


def test_a_partition_is_there_as_a_whole_or_not_at_all(spark: SparkSession, database: Database, fruit: Table) -> None:
    from services.pipeline.postgres.tables import write_rows

    good = [(number, "apple", 1.0, PICKED, None, True) for number in range(50)]
    nameless = (50, None, 1.0, PICKED, None, True)
    with pytest.raises(Exception, match="null value in column"):
        write_rows(frame(spark, *good, nameless).coalesce(1), fruit, database)
    assert rows_in(database, fruit) == []


def test_tasks_have_no_more_connections_than_are_allowed(spark: SparkSession, database: Database, fruit: Table) -> None:
    from services.pipeline.postgres.tables import write_rows

    rows = frame(spark, *((number, "apple", 1.0, PICKED, b"", True) for number in range(8)))
    write_rows(rows.repartition(4), fruit, replace(database, connections=1))
    with database.connect() as connection:
        written = connection.execute(f"select count(*), count(distinct xmin::text) from {fruit.name}".encode())
        assert written.fetchone() == (8, 1), "one transaction, for there was one connection"


def test_a_database_shows_no_secret() -> None:
    from services.pipeline.postgres.tables import Database

    assert "hidden" not in repr(Database("postgresql://mesh:hidden@db/mesh"))


def test_a_database_that_is_away_is_an_error_soon(database: Database) -> None:
    from services.pipeline.postgres.tables import Database as Place

    with pytest.raises(psycopg.OperationalError):
        Place("postgresql://mesh@127.0.0.1:1/mesh").connect()
