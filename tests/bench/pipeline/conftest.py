"""One Kafka, one session, and the same records for every job that is measured: put it in a file beside, take `records`,
`bench_session` and `rates`, and call `rates.measure`. The sheet compares all with the raw source of this run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.session import start_session
from tests.bench.figures import Sheet
from tests.bench.pipeline.rates import Rates, Records, delete, plain, produce
from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.toolchain import need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "1000000"))


@pytest.fixture(scope="session")
def rates(sheet: Sheet) -> Iterator[Rates]:
    made = Rates()
    yield made
    sheet.add(made.table(RECORDS))


@pytest.fixture(scope="session")
def records(kafka_c1: KafkaCluster) -> Iterator[Records]:
    """`MESH_BENCH_RECORDS` of them."""
    made = produce(
        kafka_c1.bootstrap, f"bench-{os.getpid()}", RECORDS, plain, lambda number: b"key %d" % (number % 5000)
    )
    yield made
    delete(made)


@pytest.fixture(scope="session")
def bench_session(rates: Rates) -> Iterator[SparkSession]:
    """As a job has it, with the settings' defaults."""
    need_spark()
    began = time.monotonic()
    session = start_session(PipelineSettings(), "bench")
    took = time.monotonic() - began
    session.range(1).count()
    rates.notes.append(f"session start {took:.1f} s, its first query {time.monotonic() - began - took:.1f} s more")
    yield session
    session.stop()
