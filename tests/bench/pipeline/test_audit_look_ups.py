"""How long `AuditService.Query` takes to find one record's life among ten million events, kept for thirty days.

Nothing is in PostgreSQL's memory that was not asked for: ids are random, so each question reads other pages.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from mesh.rpc import audit
from services.control.store.migrate import migrate
from tests.bench.figures import Sheet, Table, median
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, World

ROWS = int(os.environ.get("MESH_BENCH_AUDIT_ROWS", "10000000"))
DAYS = 30
LIFE = 3
"""Events of one record."""
QUESTIONS = 300
"""Of each kind."""
SEED = 8
NOT_BY_THE_CLOCK = 3600
DAY_OF_EVENTS = """
insert into {day} select %(begin)s + (n - %(first)s) * interval '1 ms', md5('event ' || n)::uuid, 'c1',
'shop-' || n %% 20, 'PRODUCER', 'SUCCESS', 'orders-' || n / {life} %% 50, n / {life} %% 12, n / {life},
md5('correlation ' || n / {life}), md5('traceability ' || n / {life}), md5('trace ' || n / {life}),
'customer-' || n / {life} %% 100000
from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""


def fill(url: str, first: datetime) -> None:
    """Days as a pipeline makes them, but filled before they have indexes: that takes a tenth of the time."""
    of_a_day = ROWS // DAYS
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(DAYS):
            begin = first + timedelta(days=number)
            day = f"audit_events_{begin:%Y%m%d}"
            connection.execute(f"create table {day} (like audit_events including defaults)".encode())
            connection.execute(
                DAY_OF_EVENTS.format(day=day, life=LIFE).encode(),
                {"begin": begin, "first": number * of_a_day, "last": (number + 1) * of_a_day - 1},
            )
            connection.execute(
                f"alter table audit_events attach partition {day} "
                f"for values from ('{begin.isoformat()}') to ('{(begin + timedelta(days=1)).isoformat()}')".encode()
            )
            connection.execute(f"create unique index {day}_event_id on {day} (event_id)".encode())
        connection.execute("vacuum analyze audit_events")


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
async def test_look_ups(kafka_c1: KafkaCluster, postgres: PostgresServer, sheet: Sheet) -> None:
    url = postgres()
    migrate(url)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    fill(url, midnight - timedelta(days=DAYS))
    with psycopg.connect(url) as connection:
        [(ids,)] = connection.execute(
            "select array_agg(array[event_id::text, correlation_id, traceability_id, trace_id]) "
            "from audit_events tablesample bernoulli (0.1)"
        ).fetchall()
    drawn = random.Random(SEED)
    asked: dict[str, Callable[[list[str]], audit.QueryAuditRequest]] = {
        "event id": lambda ids: audit.QueryAuditRequest(event_id=ids[0]),
        "correlation id": lambda ids: audit.QueryAuditRequest(correlation_id=ids[1]),
        "traceability id": lambda ids: audit.QueryAuditRequest(traceability_id=ids[2]),
        "trace id": lambda ids: audit.QueryAuditRequest(trace_id=ids[3]),
        "an id that is not there": lambda ids: audit.QueryAuditRequest(trace_id=ids[3][::-1] + "x"),
    }
    rows = []
    async with World(url, kafka_c1.bootstrap, f"look-ups-{os.getpid()}") as world:
        for what, request in asked.items():
            took: list[float] = []
            for _ in range(QUESTIONS):
                question = request(drawn.choice(ids))
                began = time.perf_counter()
                found = await world.audit.Query(question, timeout=CALL)
                took.append(1000 * (time.perf_counter() - began))
                assert bool(found.events) == ("not there" not in what)
            took.sort()
            rows.append([what, f"{median(took):.1f}", f"{took[int(QUESTIONS * 0.99)]:.1f}", f"{took[-1]:.1f}"])
    sheet.add(Table(f"AuditService.Query over {ROWS:,} events of {DAYS} days, ms", ["by", "p50", "p99", "max"], rows))
