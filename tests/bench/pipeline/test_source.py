"""The raw source: records of Kafka that Spark throws away."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.pipeline.rates import RAW, Rates, Records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from services.pipeline.kafka.source import KafkaSource

NOT_BY_THE_CLOCK = 3600


@pytest.fixture
def source(records: Records) -> KafkaSource:
    from services.pipeline.kafka.source import GATEWAY, KafkaSource
    from services.pipeline.settings import PipelineSettings

    clusters = {GATEWAY: {"bootstrap.servers": records.bootstrap}}
    return KafkaSource.of_settings(PipelineSettings(), (records.topic,), clusters)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_batch(bench_session: SparkSession, records: Records, source: KafkaSource, rates: Rates, rounds: int) -> None:
    from services.pipeline.spark.data_source import open_batch

    assert open_batch(source, bench_session).count() == records.count  # also warms up the workers; not counted

    def read() -> None:
        open_batch(source, bench_session).write.format("noop").mode("overwrite").save()

    for _ in range(rounds):
        rates.measure(RAW, records.count, read)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_stream(
    bench_session: SparkSession, records: Records, source: KafkaSource, rates: Rates, rounds: int, tmp_path: Path
) -> None:
    from services.pipeline.spark.data_source import open_stream

    def stream(checkpoint: str) -> None:
        writer = open_stream(source, bench_session).writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    for number in range(rounds):
        folder = str(tmp_path / str(number))
        rates.measure("raw source, stream availableNow to noop", records.count, partial(stream, folder))
