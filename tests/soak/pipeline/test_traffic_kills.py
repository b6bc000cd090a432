"""The traffic job is killed with all its processes, twice in mid-write and once between batches: each report counts
once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.emitters import Counter, Emitters, Tables
from tests.integration.pipeline.toolchain import need_spark
from tests.soak.pipeline.killed_jobs import KilledJob

REPORTS = 4_000  # four batches, and what comes between the kills
START = datetime.now(UTC).replace(hour=3, minute=0, second=0, microsecond=0) - timedelta(days=1)
COUNTERS = [
    Counter(client=f"client-{number % 20}", topic=f"topic-{number % 5}", bytes=number, latencies=(1.5, 7.0 + number))
    for number in range(100)
]
WRITING = "query ~ '^(copy|insert into) .*(incoming_traffic|traffic_(minutes|hours|days))' and state = 'active'"


@pytest.mark.timeout(2_400)
def test_killed_in_mid_write_and_between_batches(
    kafka_c1: KafkaCluster, topic: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    need_spark()
    url = postgres.migrated()
    emitters, tables = Emitters(kafka_c1.bootstrap, topic, partitions=3), Tables(url)
    reported = 0

    def report(count: int) -> None:
        nonlocal reported
        for number in range(reported, reported + count):
            partition = number % 3
            at = START + timedelta(seconds=10 * (number // 3))
            repeats = 2 if number % 50 == 0 else 1
            emitters.report(at, COUNTERS, reporter=f"gateway-{partition}", partition=partition, times=repeats)
        reported += count
        emitters.flush()

    def job() -> KilledJob:
        return KilledJob(
            tmp_path / "job.log", "traffic", "--cluster", f"home={kafka_c1.bootstrap}",
            DATABASE_URL=url, TRAFFIC_TOPIC=topic, MASTER="local[2]",
        )  # fmt: skip

    def written() -> int:
        return int(tables.progress().get("batch", 0))

    def is_writing() -> bool:
        found = watching.execute(
            "select exists (select from pg_stat_activity "
            f"where datname = current_database() and {WRITING}) from pg_sleep(0.01)"
        )
        return found.fetchone() == (True,)

    def has_written() -> bool:
        return written() > before

    report(REPORTS)
    with psycopg.connect(url, autocommit=True) as watching:
        try:
            for moment, what in ((is_writing, "mid-write"), (has_written, "a batch is written"), (is_writing, "again")):
                before = written()
                job().kill_when(moment, what)
                report(100)
            job().finish()
            assert tables.numbers() == emitters.numbers()
            progress = tables.progress()
            assert (progress["reports"], progress["repeated"]) == (reported, -(-reported // 50))
        finally:
            emitters.delete()
