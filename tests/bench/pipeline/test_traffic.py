"""The job `traffic`: counters a second, from reports in Kafka to rows of minutes, hours and days in PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy
import pytest

from services.control.store.migrate import migrate
from tests.bench.pipeline.rates import Rates, delete, produce
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.pipeline.emitters import Counter, Tables, report_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTERS = int(os.environ.get("MESH_BENCH_COUNTERS", "1000000"))
OF_A_REPORT = 250
"""Combinations of client, topic and API that a gateway sees in ten seconds."""
REPORTERS = 3
LATENCIES = 100
"""Calls of a combination in ten seconds; its sketch has 432 bytes."""
NOT_BY_THE_CLOCK = 3600


@dataclass(frozen=True, slots=True)
class Reports:
    bootstrap: str
    topic: str
    count: int


@pytest.fixture(scope="module")
def reports(kafka_c1: KafkaCluster) -> Iterator[Reports]:
    """`MESH_BENCH_COUNTERS` counters; the reporters one after another, as their partitions are."""
    start = datetime.now(UTC).replace(hour=1, minute=0, second=0, microsecond=0) - timedelta(days=1)
    lognormal = numpy.random.default_rng(8)
    counters = [
        Counter(
            client=f"client-{number % 50}",
            topic=f"shop.orders-{number // 5}",
            latencies=[float(each) for each in lognormal.lognormal(1, 1, LATENCIES)],
        ).to_proto()
        for number in range(OF_A_REPORT)
    ]

    def value(number: int) -> bytes:
        at = start + timedelta(seconds=10 * (number // REPORTERS))
        return report_of(at, counters, f"gateway-{number % REPORTERS}").SerializeToString()

    made = produce(
        kafka_c1.bootstrap,
        f"bench-traffic-{os.getpid()}",
        COUNTERS // OF_A_REPORT,
        value,
        lambda number: b"gateway-%d" % (number % REPORTERS),
    )
    yield Reports(made.bootstrap, made.topic, made.count)
    delete(made)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_counters(
    bench_session: SparkSession, reports: Reports, postgres: PostgresServer, rates: Rates, rounds: int
) -> None:
    from services.pipeline.jobs import traffic
    from services.pipeline.kafka_source import GATEWAY, KafkaSource
    from services.pipeline.settings import PipelineSettings
    from services.pipeline.tables import Database
    from services.pipeline.traffic.ledger import Keeping

    clusters = {GATEWAY: {"bootstrap.servers": reports.bootstrap}}
    source = KafkaSource.of_settings(PipelineSettings(), (reports.topic,), clusters)
    for _ in range(rounds):
        url = postgres()
        migrate(url)

        def roll_up(url: str = url) -> None:
            done = traffic.run(bench_session, source, Database(url), keeping=Keeping())
            assert done.counters == reports.count * OF_A_REPORT

        rates.measure("traffic, counters to PostgreSQL", reports.count * OF_A_REPORT, roll_up)
        rows = len(Tables(url).numbers())
        note = f"traffic: {reports.count:,} reports of {OF_A_REPORT} counters came to {rows:,} rows"
    rates.notes.append(note)
