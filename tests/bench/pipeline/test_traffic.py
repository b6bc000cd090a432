"""The job `traffic`: counters a second, from reports in Kafka to rows of minutes, hours and days in PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import numpy
import pytest

from services.control.store.migrate import migrate
from tests.bench.pipeline.parts import cpu_by_part, us_of_each
from tests.bench.pipeline.rates import Rates, Records, delete, produce
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


def reported(bootstrap: str, name: str, count: int) -> Reports:
    """A topic with that many reports; the reporters one after another, as their partitions are."""
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

    topic = f"bench-traffic-{name}-{os.getpid()}"
    made = produce(bootstrap, topic, count, value, lambda number: b"gateway-%d" % (number % REPORTERS))
    return Reports(made.bootstrap, made.topic, made.count)


@pytest.fixture(scope="module")
def reports(kafka_c1: KafkaCluster) -> Iterator[dict[str, Reports]]:
    """One batch, and `MESH_BENCH_COUNTERS` counters."""
    from services.pipeline.traffic.job import BATCH_REPORTS

    counts = {"first": BATCH_REPORTS, "all": COUNTERS // OF_A_REPORT}
    made = {name: reported(kafka_c1.bootstrap, name, count) for name, count in counts.items()}
    yield made
    for each in made.values():
        delete(Records(each.bootstrap, each.topic, each.count))


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_counters(
    bench_session: SparkSession, reports: dict[str, Reports], postgres: PostgresServer, rates: Rates, rounds: int
) -> None:
    """The first batch of a session shows what it costs to begin; all others are measured behind it."""
    from services.pipeline.kafka.source import GATEWAY, KafkaSource
    from services.pipeline.postgres.tables import Database
    from services.pipeline.settings import PipelineSettings
    from services.pipeline.spark.data_source import open_batch
    from services.pipeline.traffic import job as traffic
    from services.pipeline.traffic.progress import Keeping

    def source_of(some: Reports) -> KafkaSource:
        clusters = {GATEWAY: {"bootstrap.servers": some.bootstrap}}
        return KafkaSource.of_settings(PipelineSettings(), (some.topic,), clusters)

    def roll_up(some: Reports, url: str) -> None:
        done = traffic.run(bench_session, source_of(some), Database(url), keeping=Keeping())
        assert done.counters == some.count * OF_A_REPORT

    def read(some: Reports) -> None:
        open_batch(source_of(some), bench_session).write.format("noop").mode("overwrite").save()

    first, all_ = reports["first"], reports["all"]
    counters = all_.count * OF_A_REPORT
    for number in range(rounds):
        url = postgres()
        migrate(url)
        if not number:
            cold = postgres()
            migrate(cold)
            rates.measure("traffic, first batch of a session", first.count * OF_A_REPORT, partial(roll_up, first, cold))
        rates.measure("traffic, raw source, counters to noop", counters, partial(read, all_))
        with cpu_by_part() as spent:
            rates.measure("traffic, counters to PostgreSQL", counters, partial(roll_up, all_, url))
        rates.notes.append(f"traffic, us of CPU a counter: {us_of_each(spent, counters)}")
        rows = len(Tables(url).numbers())
    rates.notes.append(f"traffic: {all_.count:,} reports of {OF_A_REPORT} counters came to {rows:,} rows")
