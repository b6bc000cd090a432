"""What was, asked of a log of some years: right at any revision, and answered from indexes."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, event, select, text

from services.control.decisions.past.history import History
from services.control.domain.past.revisions import mesh_of
from services.control.domain.view import MeshView, apply
from services.control.steady_clock import SteadyClock
from services.control.store import schema
from services.control.store.database import Database
from services.control.store.log import EventLog
from services.control.store.past import PastStore
from services.control.store.reports import Reports
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.long_logs import FIRST_SECOND, LongLog, write
from tests.integration.control.world import create_topic

EVENTS = 3000
LARGE = ("events", "rule_versions", "rollouts")
"""Tables that grow with every decision."""


@pytest.fixture
def years(database: str, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> LongLog:
    """A log of EVENTS decisions of all kinds in the database."""
    topic = unique_name("years")
    create_topic(kafka_c1.bootstrap, topic, 1)
    log = LongLog((kafka_c1.bootstrap, "127.0.0.1:1"))
    write(log, EVENTS, database, kafka_c1.bootstrap, topic, "")
    return log


async def test_the_mesh_at_any_revision_is_the_fold_up_to_there(years: LongLog, database: str) -> None:
    pool = Database(database)
    store, log = PastStore(pool), EventLog(pool)
    last = years.check.chain.position
    wanted = {1, 2, last, *random.Random(5).sample(range(3, last), 12)}
    view, held = MeshView(), 0
    while view.position < last:
        for each in await log.after(view.position):
            view = apply(view, each)
            held = view.rollout.position if view.rollout is not None else 0
            if view.position not in wanted or held:
                continue  # what is held may count in the past, when it has switched: test_past.py
            rules, aggregates = await store.rules_at(view.position), await store.last_of_aggregates(view.position)
            then = mesh_of(view.position, rules, aggregates)
            assert then.state.effective.rules == view.state.effective.rules
            assert then.state.effective.clusters == view.state.effective.clusters
            assert (then.rule_origins, then.cluster_revisions) == (view.rule_origins, view.cluster_revisions)
    await pool.close()


async def test_every_question_has_its_index(years: LongLog, database: str) -> None:
    pool = Database(database)
    store = PastStore(pool)
    history, last = History(store, Reports(pool, SteadyClock())), years.check.chain.position
    some_time = datetime.fromtimestamp(FIRST_SECOND + last // 2, UTC)
    with statements(pool) as asked:
        assert await store.position_at(some_time) > 1
        await store.rules_at(last // 2)
        await store.last_of_aggregates(last // 2)
        assert await store.change_before(last) > 0
        assert (await history.of_stream("", last, 50))[0]
        assert (await history.of_stream("clusters/c1", last, 50))[0]
        assert (await history.of_rule("topic-7", last, 50))[0]
        assert (await history.of_topic("topic-7", last, 50))[0]
    await pool.close()
    assert len(asked) > 15
    slow = [f"{statement}\n{plan}" for statement, plan in plans(database, asked) if walks(plan)]
    assert slow == []


def test_a_database_of_an_older_release_gets_the_versions_that_its_log_tells(years: LongLog, database: str) -> None:
    migration = importlib.import_module("migrations.versions.0006_past")
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection, Operations.context(MigrationContext.configure(connection)):
        made = {row["name"]: row for row in migration._versions(migration._changes())}
        stored = {row.name: dict(row._mapping) for row in connection.execute(select(schema.rule_versions))}
    engine.dispose()
    assert len(stored) > EVENTS // 10
    assert made == stored


@contextmanager
def statements(pool: Database) -> Iterator[list[tuple[str, Any]]]:
    """Everything that is asked of the database meanwhile."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lower().startswith("select"):
            asked.append((statement, parameters))

    engine = pool._engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plans(database: str, asked: list[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """How PostgreSQL would go about each statement, if it walked through a table only where it has to."""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        connection.execute(text("analyze"))
        connection.execute(text("set enable_seqscan = off"))
        for statement, parameters in asked:
            rows = connection.exec_driver_sql(f"explain {statement}", parameters)
            yield statement, "\n".join(row[0] for row in rows)
    engine.dispose()


def walks(plan: str) -> bool:
    return any(f"Seq Scan on {table}" in plan for table in LARGE)
