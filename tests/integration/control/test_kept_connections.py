"""Single statements to a real PostgreSQL: they need no way through the pool each, and no broken connection is used."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from sqlalchemy import event

from services.control.store import database as databases
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.statements import Statement

A_BUSY_MACHINE_S = 60.0
"""May lie between two statements of a test."""


async def answer(pool: Database, sql: bytes) -> object:
    [[(value,)]] = await pool.carry_out([Statement(sql)])
    return value


async def test_statements_one_after_another_leave_the_pool_alone(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "IDLE_S", A_BUSY_MACHINE_S)
    pool, checkouts = Database(database), list[object]()
    event.listen(pool._engine.sync_engine, "checkout", lambda *_: checkouts.append(None))
    for number in range(20):
        assert await answer(pool, b"select %d" % number) == number
    assert len(checkouts) == 1
    await pool.close()


async def test_more_statements_at_a_time_than_are_kept_all_get_their_answers(database: str) -> None:
    pool = Database(database)
    for _ in range(3):
        found = await asyncio.gather(*(answer(pool, b"select %d" % number) for number in range(20)))
        assert found == [*range(20)]
    await pool.close()


async def test_a_connection_that_postgresql_ended_while_idle_is_not_used(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "IDLE_S", 0.0)
    pool = Database(database)
    before = await answer(pool, b"select pg_backend_pid()")
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 60000)", (before,))
    assert await answer(pool, b"select pg_backend_pid()") != before
    await pool.close()


async def test_when_one_connection_breaks_the_others_are_not_used_unchecked(database: str) -> None:
    pool = Database(database)
    sql = b"select pg_backend_pid() from pg_sleep(0.1)"
    before = await asyncio.gather(answer(pool, sql), answer(pool, sql))
    with psycopg.connect(database, autocommit=True) as other:
        for each in before:
            other.execute("select pg_terminate_backend(%s, 60000)", (each,))
    with pytest.raises(StoreUnavailableError):
        await answer(pool, sql)
    assert await answer(pool, sql) not in before
    await pool.close()


async def test_a_connection_in_the_middle_of_an_answer_is_not_used_again(database: str) -> None:
    pool = Database(database)
    before = await answer(pool, b"select pg_backend_pid()")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await answer(pool, b"select pg_sleep(3)")
    assert await answer(pool, b"select pg_backend_pid()") != before
    await pool.close()


async def test_a_connection_whose_statement_postgresql_refused_is_used_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "IDLE_S", A_BUSY_MACHINE_S)
    pool = Database(database)
    before = await answer(pool, b"select pg_backend_pid()")
    with pytest.raises(psycopg.IntegrityError):
        await pool.carry_out([Statement(b"insert into log_head (id) values (null)")])
    assert await answer(pool, b"select pg_backend_pid()") == before
    await pool.close()
