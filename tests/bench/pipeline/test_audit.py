"""The audit job: events of Kafka in PostgreSQL, with all its indexes, and in Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from services.control.store.migrate import migrate
from tests.bench.pipeline.conftest import RECORDS
from tests.bench.pipeline.rates import Rates, Records, delete, produce
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.tables import Database

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


@pytest.fixture(scope="module")
def events(kafka_c1: KafkaCluster) -> Iterator[Records]:
    made = produce(
        kafka_c1.bootstrap, f"bench-audit-{os.getpid()}", RECORDS, event, lambda number: b"%d" % (number // LIFE)
    )
    yield made
    delete(made)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_audit(
    bench_session: SparkSession,
    events: Records,
    rates: Rates,
    rounds: int,
    postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    from services.pipeline.tables import Database

    for number in range(rounds):
        url = postgres()
        migrate(url)
        database = Database(url)

        def bring(folder: str = str(tmp_path / str(number)), database: Database = database) -> None:
            _bring(bench_session, events, database, folder)

        rates.measure("audit, into PostgreSQL and Parquet", events.count, bring)
        with database.connect() as connection:
            found = connection.execute("select count(*), pg_database_size(current_database()) from audit_events")
            [(rows, size)] = found.fetchall()
        assert rows == events.count
        rates.notes.append(f"audit: {int(str(size)) / events.count:.0f} B of PostgreSQL an event, indexes included")


def _bring(session: SparkSession, events: Records, database: Database, folder: str) -> None:
    from services.pipeline.clusters import Cluster
    from services.pipeline.jobs import audit
    from services.pipeline.kafka_source import KafkaSource
    from services.pipeline.settings import PipelineSettings

    settings = PipelineSettings(audit_topics=(events.topic,), audit_kept_days=3650)
    cluster = Cluster("c1", {"bootstrap.servers": events.bootstrap})
    source = KafkaSource.of_settings(settings, topics=(), clusters={})
    plan = audit.AuditPlan(database, folder, settings, source, lambda: {"c1": cluster})
    [brought] = audit.run(session, plan)
    assert (brought.records, brought.stored, brought.problem) == (events.count, events.count, "")
