"""Rows that are too old go some at a time, and the others stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from services.control.store import schema
from services.control.store.cleaning import delete_older, deleted_total
from services.control.store.database import Database


def deleted() -> float:
    value: float = deleted_total.labels("requests")._value.get()
    return value


async def test_a_statement_over_all_old_rows_is_too_slow_and_they_go_all_the_same(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into requests (request_id, digest, ok, answer, time) "
            "select 'r' || n, '', true, '', now() - interval '40 days' from generate_series(1, 600) n"
        )
        # each deleted row costs 10 ms and more: all of them together are more than a statement may take
        connection.execute(
            "create function slow() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(0.01); return old; end $$"
        )
        connection.execute("create trigger slow before delete on requests for each row execute function slow()")
    pool = Database(database)
    try:
        await delete_older(pool, schema.requests, datetime.now(UTC), at_once=50)
    finally:
        await pool.close()
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from requests").fetchone() == (0,)


async def test_old_answers_are_deleted_some_at_a_time_and_young_ones_stay(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into requests (request_id, digest, ok, answer, time) "
            "select 'r' || n, '', true, '', now() - n * interval '1 day' from generate_series(0, 29) n"
        )
    pool = Database(database)
    try:
        before = deleted()
        await delete_older(pool, schema.requests, datetime.now(UTC) - timedelta(days=4, hours=12), at_once=10)
        assert deleted() == before + 25
    finally:
        await pool.close()
    with psycopg.connect(database) as connection:
        left = connection.execute("select request_id from requests order by request_id").fetchall()
    assert left == [("r0",), ("r1",), ("r2",), ("r3",), ("r4",)]
