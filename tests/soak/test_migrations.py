"""Ten million audit events are brought up to date while control decides and a pipeline writes: nobody waits for it.

`MESH_AUDIT_ROWS` says how many.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import World

ROWS = int(os.environ.get("MESH_AUDIT_ROWS", "10000000"))
DAYS = 10
REPEATED = 1_000
"""One event of so many is there twice."""
ANSWERED_S = 5.0
"""Whoever needs a table waits for a lock of the migration for 2 s at most; the disk is busy."""
WITHIN_S = 3600.0


def fill(database: str) -> None:
    """As a pipeline of the version before has written them."""
    with psycopg.connect(database, autocommit=True) as connection:
        for day in range(1, DAYS + 1):
            connection.execute(
                f"create table audit_events_202611{day:02} partition of audit_events "
                f"for values from ('2026-11-{day:02}') to ('2026-11-{day + 1:02}')".encode()
            )
            connection.execute(
                "insert into audit_events (time, event_id, cluster_name, service_id, audit_type, audit_status, topic, "
                'partition, "offset", correlation_id, traceability_id) '
                "select cast(%(day)s as timestamptz) + n * interval '1 ms', "
                "md5((case when n %% %(repeated)s = 0 then n - 1 else n end)::text || %(day)s)::uuid, "
                "'c1', 's', 'STREAMING_PRODUCER', 'SUCCESS', 'topic-' || n %% 100, n %% 12, n, "
                "md5(n::text), md5((n + 1)::text) from generate_series(1, %(rows)s) n",
                {"day": f"2026-11-{day:02} UTC", "repeated": REPEATED, "rows": ROWS // DAYS},
            )
        connection.execute("analyze audit_events")


def stamp(database: str, version: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update alembic_version set version_num = %s", (version,))


async def longest(call: Callable[[], Awaitable[object]], until: asyncio.Event) -> tuple[int, float]:
    """How often it was called, and how long the longest one took."""
    calls, slowest = 0, 0.0
    while not until.is_set():
        began = time.monotonic()
        await call()
        calls, slowest = calls + 1, max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.05)  # the pace of the callers
    return calls, slowest


@pytest.mark.timeout(2 * WITHIN_S)
async def test_nobody_waits_while_audit_events_are_brought_up_to_date(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    migrate(database := postgres(), revision="0013")
    began = time.monotonic()
    await asyncio.to_thread(fill, database)
    print(f"{ROWS} events written in {time.monotonic() - began:.0f} s")
    stamp(database, "0015")  # control of the version before, which differs in nothing else
    async with World(database, kafka_c1.bootstrap, unique_name("events")) as world:
        await world.register("c1", kafka_c1.bootstrap)
        stamp(database, "0013")
        done = asyncio.Event()
        connection = await psycopg.AsyncConnection.connect(database, autocommit=True)

        async def tell() -> None:
            await connection.execute(
                "insert into audit_events (time, event_id, cluster_name, service_id, audit_type, audit_status) "
                "values ('2026-11-05 12:00 UTC', %s, 'c1', 's', 'STREAMING_PRODUCER', 'SUCCESS')",
                (uuid.uuid4(),),
            )

        async def look() -> None:
            await connection.execute("select from audit_events where topic = 'topic-1' order by time desc limit 10")

        async def decide() -> None:
            await world.set(uuid.uuid4().hex, "c1")

        async with connection, asyncio.TaskGroup() as group:
            calls = {each.__name__: group.create_task(longest(each, done)) for each in (decide, tell, look)}
            began = time.monotonic()
            migrator = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "services.control.store.migrate",
                env=os.environ | {"KAFKA_MESH_CONTROL_DATABASE_URL": database},
            )
            code = await asyncio.wait_for(migrator.wait(), WITHIN_S)
            seconds = time.monotonic() - began
            done.set()
        assert code == 0
    waited = {name: call.result() for name, call in calls.items()}
    print(
        f"up to date in {seconds:.0f} s; " + ", ".join(f"{n} x {k}: {s:.2f} s at most" for k, (n, s) in waited.items())
    )
    assert {name: seconds for name, (_, seconds) in waited.items() if seconds > ANSWERED_S} == {}
    with psycopg.connect(database) as counting:
        [(twice,)] = counting.execute("select count(*) - count(distinct (event_id, time::date)) from audit_events")
    assert twice == 0
