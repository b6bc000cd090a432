"""How long questions about the past take with a long log (`MESH_BENCH_EVENTS` is its length)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from services.control.decisions.past.history import History
from services.control.steady_clock import SteadyClock
from services.control.store.database import Database
from services.control.store.migrate import migrate
from services.control.store.past import PastStore
from services.control.store.reports import Reports
from tests.bench.figures import Sheet, Table, median
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.long_logs import LongLog, write
from tests.integration.control.world import create_topic

EVENTS = int(os.environ.get("MESH_BENCH_EVENTS", "1000000"))
ROUNDS = 15
NOT_BY_THE_CLOCK = 7200


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_questions_about_the_past(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], sheet: Sheet
) -> None:
    database, topic = postgres(), unique_name("past")
    migrate(database)
    create_topic(kafka_c1.bootstrap, topic, 1)
    log = LongLog((kafka_c1.bootstrap, "127.0.0.1:1"))
    write(log, EVENTS, database, kafka_c1.bootstrap, topic, "")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("analyze")
    figures = asyncio.run(_asked(database, log.check.chain.position))
    rows = [(question, f"{typical:.1f}", f"{longest:.1f}") for question, (typical, longest) in figures.items()]
    notes = [f"{log.check.chain.position} events; each question {ROUNDS} times, about moments all over the log"]
    sheet.add(Table("Questions about the past", ["what", "median ms", "longest ms"], rows, notes))


async def _asked(database: str, last: int) -> dict[str, tuple[float, float]]:
    pool = Database(database)
    store = PastStore(pool)
    history = History(store, Reports(pool, SteadyClock()))
    places = [max(1, last * number // ROUNDS) for number in range(1, ROUNDS + 1)]

    async def as_of(revision: int) -> None:
        await store.rules_at(revision)
        await store.last_of_aggregates(revision)

    questions: dict[str, Callable[[int], Awaitable[object]]] = {
        "rules and clusters as of a revision": as_of,
        "history of everything, a page of 100": lambda below: history.of_stream("", below, 100),
        "history of a cluster, a page of 100": lambda below: history.of_stream("clusters/c1", below, 100),
        "history of a rule": lambda below: history.of_rule("topic-7", below, 100),
        "history of a topic": lambda below: history.of_topic("topic-7", below, 100),
    }
    figures: dict[str, tuple[float, float]] = {}
    for name, question in questions.items():
        took: list[float] = []
        for place in places:
            began = time.perf_counter()
            await question(place)
            took.append((time.perf_counter() - began) * 1000)
        figures[name] = (median(took), max(took))
    await pool.close()
    return figures
