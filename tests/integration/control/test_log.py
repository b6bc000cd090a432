"""The event log in a real PostgreSQL: nothing is skipped, nothing is changed."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from sqlalchemy import Connection, inspect

from mesh.rpc import events
from services.control.domain.errors import Conflict
from services.control.domain.view import MeshView
from services.control.steady_clock import SteadyClock
from services.control.store import journal as journals
from services.control.store import schema
from services.control.store.database import Database
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import Growth, LogMovedError, statements_of
from services.control.store.statements import Statement
from tests.integration.control.world import CALL, until

WRITERS, EACH = 6, 25


def beat(writer: int, number: int) -> Draft:
    name = f"instances/g{writer}.i{number}"
    return Draft(name, events.ConsumerInstanceRemoved(name=name, cause="idle"))


def leading(database: Database) -> Journal:
    journal = Journal(database, SteadyClock())
    journal.why_not_leading = ""
    return journal


async def append(journal: Journal, draft: Draft) -> None:
    """Like a client: retries when it lost too many races in a row."""
    while True:
        try:
            await journal.append([draft], Caller("test"), journal.view, rests_on=lambda _view: None)
        except Conflict:
            await asyncio.sleep(0)
        else:
            return


async def test_writers_at_once_leave_no_gaps_and_a_follower_misses_nothing(database: str) -> None:
    databases = [Database(database) for _ in range(WRITERS + 1)]
    follower = Journal(databases[-1], SteadyClock())
    seen: list[int] = []

    async def follow() -> None:
        while len(seen) < WRITERS * EACH:
            page = await follower.store.after(seen[-1] if seen else 0)
            seen.extend(event.position for event in page)

    async def write(writer: int) -> None:
        journal = leading(databases[writer])
        for number in range(EACH):
            await append(journal, beat(writer, number))

    try:
        async with asyncio.timeout(240):
            await asyncio.gather(follow(), *(write(writer) for writer in range(WRITERS)))
        assert seen == list(range(1, WRITERS * EACH + 1))
        await follower.catch_up()
        assert follower.view.position == WRITERS * EACH
    finally:
        for each in databases:
            await each.close()


async def test_a_failed_append_gives_its_position_back(database: str) -> None:
    pool = Database(database)
    journal, other = leading(pool), leading(pool)
    await append(journal, beat(1, 1))
    with pytest.raises(LogMovedError, match="the log is at 1"):
        await other.store.append(other.chain, other.chain, [])
    await append(other, beat(1, 2))
    assert [event.position for event in await journal.store.after(0)] == [1, 2]
    await pool.close()


async def test_events_and_rows_are_prepared_while_no_transaction_holds_the_log(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Database(database)
    prepared = list[int]()

    def prepare(before: MeshView, growth: Growth) -> list[Statement]:
        with psycopg.connect(database) as connection:
            connection.execute("select position from log_head for update nowait")
        prepared.append(growth.chain.position)
        return statements_of(before, growth)

    monkeypatch.setattr(journals, "statements_of", prepare)
    await append(leading(pool), beat(1, 1))
    assert prepared == [1]
    await pool.close()


async def test_an_append_is_prepared_again_when_another_writer_was_faster(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Database(database)
    journal, other, loop = leading(pool), leading(pool), asyncio.get_running_loop()
    prepared = list[int]()

    def prepare(before: MeshView, growth: Growth) -> list[Statement]:
        prepared.append(growth.chain.position)
        if len(prepared) == 1:
            asyncio.run_coroutine_threadsafe(append(other, beat(2, 1)), loop).result(30)
        return statements_of(before, growth)

    monkeypatch.setattr(journals, "statements_of", prepare)
    monkeypatch.setattr(journals, "FEW_RULES", -1)  # so that a thread prepares, which may wait here
    await append(journal, beat(1, 1))
    assert prepared == [1, 1, 2]
    assert [event.stream for event in await journal.store.after(0)] == ["instances/g2.i1", "instances/g1.i1"]
    await pool.close()


@pytest.mark.parametrize(
    "statement",
    ["update events set actor = 'somebody else'", "delete from events", "truncate events", "truncate events cascade"],
)
async def test_the_database_itself_refuses_to_change_the_log(database: str, statement: str) -> None:
    pool = Database(database)
    await append(leading(pool), beat(1, 1))
    await pool.close()
    with (
        psycopg.connect(database, autocommit=True) as connection,
        pytest.raises(psycopg.errors.RestrictViolation, match="the event log only grows"),
    ):
        connection.execute(statement)


async def test_migrations_make_what_the_code_expects(database: str) -> None:
    pool = Database(database)
    async with pool.transaction() as connection:
        made = await connection.run_sync(_columns)
        wanted = {
            table.name: {
                column.name: (column.type.compile(connection.dialect), bool(column.nullable))
                for column in table.columns
            }
            for table in schema.metadata.sorted_tables
        }
    assert made == wanted
    await pool.close()


async def test_a_follower_in_another_process_is_told_at_once(database: str) -> None:
    pool = Database(database)
    listening = await pool.dedicated()
    await listening.execute("listen mesh_events")
    await append(leading(pool), beat(1, 1))
    told = [notice.payload async for notice in listening.notifies(timeout=CALL, stop_after=1)]
    assert told == ["1"]
    await listening.close()
    await pool.close()
    await until(lambda: listening.closed, "the connection is closed")


def _columns(connection: Connection) -> dict[str, dict[str, tuple[str, bool]]]:
    """Tables of the database with the type of each column, and whether it may be null."""
    found = inspect(connection)
    return {
        name: {
            column["name"]: (column["type"].compile(connection.dialect), column["nullable"])
            for column in found.get_columns(name)
        }
        for name in found.get_table_names()
        if name != "alembic_version"
    }
