"""The audit job: events of Kafka in PostgreSQL, with all its indexes, and in Parquet.

A pipeline runs for weeks, and a JVM takes a minute of two processors until it has compiled what it runs all the time.
So there are two figures: of the first batch of a session, and of a million events behind it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from services.control.store.migrate import migrate
from services.pipeline.settings import PipelineSettings
from tests.bench.pipeline.conftest import RECORDS
from tests.bench.pipeline.parts import cpu_by_part, us_of_each
from tests.bench.pipeline.rates import Rates, Records, delete, produce
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.postgres.tables import Database

NOT_BY_THE_CLOCK = 3600
LIFE = 3
"""Events of one record: written, read, passed on."""
BEGIN_S = 1_795_300_000
TYPES = ("PRODUCER", "REACTIVE_CONSUMER", "STREAMING_PRODUCER")


def random_id(text: str) -> str:
    """The same in each run."""
    return str(UUID(md5(text.encode(), usedforsecurity=False).hexdigest()))


def event(number: int) -> bytes:
    """As sidecars write them, about 450 B."""
    record = number // LIFE
    return json.dumps(
        {
            "id": random_id(f"event {number}"), "serviceId": f"com.example.shop-{number % 20}-1.0.0",
            "auditType": TYPES[number % LIFE], "topic": f"orders-{record % 50}", "partition": record % 12,
            "offset": record, "correlationId": random_id(f"correlation {record}"),
            "traceabilityId": random_id(f"traceability {record}"), "key": f"customer-{record % 100_000}",
            "auditStatus": "SUCCESS" if number % 100 else "FAILURE", "timestamp": 1_000 * BEGIN_S + number // 10,
            "traceId": random_id(f"trace {record}").replace("-", ""),
        }
    ).encode()  # fmt: skip


@contextmanager
def told(kafka: KafkaCluster, name: str, count: int) -> Iterator[Records]:
    made = produce(
        kafka.bootstrap, f"bench-{name}-{os.getpid()}", count, event, lambda number: b"%d" % (number // LIFE)
    )
    yield made
    delete(made)


@pytest.fixture(scope="module")
def first_events(kafka_c1: KafkaCluster) -> Iterator[Records]:
    """One batch."""
    with told(kafka_c1, "first-audit", min(RECORDS, PipelineSettings().max_batch_rows)) as made:
        yield made


@pytest.fixture(scope="module")
def events(kafka_c1: KafkaCluster) -> Iterator[Records]:
    with told(kafka_c1, "audit", RECORDS) as made:
        yield made


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_audit(
    bench_session: SparkSession,
    first_events: Records,
    events: Records,
    rates: Rates,
    rounds: int,
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    from services.pipeline.postgres.tables import Database

    def measure(name: str, records: Records, folder: str) -> None:
        url = postgres()
        migrate(url)
        database = Database(url)
        with cpu_by_part() as spent:
            rates.measure(name, records.count, lambda: _bring(bench_session, records, database, str(tmp_path / folder)))
        with database.connect() as connection:
            found = connection.execute("select count(*), pg_database_size(current_database()) from audit_events")
            [(rows, size)] = found.fetchall()
        assert rows == records.count
        rates.notes.append(f"{name}: {int(str(size)) / records.count:.0f} B of PostgreSQL an event, indexes included")
        rates.notes.append(f"{name}: us of CPU an event: {us_of_each(spent, records.count)}")

    measure(f"audit, cold: the first {first_events.count:,} events of a session", first_events, "first")
    for number in range(rounds):
        measure("audit, warm: into PostgreSQL and Parquet", events, str(number))


def _bring(session: SparkSession, events: Records, database: Database, folder: str) -> None:
    from services.pipeline.auditing import job as audit
    from services.pipeline.kafka.clusters import Cluster
    from services.pipeline.kafka.source import KafkaSource

    settings = PipelineSettings(audit_topics=(events.topic,), audit_kept_days=3650)
    cluster = Cluster("c1", {"bootstrap.servers": events.bootstrap})
    source = KafkaSource.of_settings(settings, topics=(), clusters={})
    plan = audit.AuditPlan(database, folder, settings, source, lambda: {"c1": cluster})
    [brought] = audit.run(session, plan)
    assert (brought.records, brought.stored, brought.problem) == (events.count, events.count, "")
