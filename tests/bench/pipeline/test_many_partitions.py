"""The archive of 2,000 partitions: what a batch takes in time, CPU, memory, Kafka clients and files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from tests.bench.figures import Sheet, Table
from tests.bench.pipeline.processes import Taken, of_job, watching
from tests.bench.pipeline.rates import plain
from tests.fixtures.clusters import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_BY_THE_CLOCK = 3600
PARTITIONS = 100
TOPICS = int(os.environ.get("MESH_BENCH_PARTITIONS", "2000")) // PARTITIONS
KAFKA_S = 120.0
LOOKS = (("the first batch, 25 records a partition", 25), ("1 record a partition", 1), ("25 a partition", 25))
"""What comes before each look, to each partition."""


@pytest.fixture
def topics(kafka_c1: KafkaCluster) -> Iterator[tuple[str, ...]]:
    names = tuple(f"many-{os.getpid()}-{number:02d}" for number in range(TOPICS))
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(KAFKA_S)
    yield names
    for future in admin.delete_topics(list(names)).values():
        future.result(KAFKA_S)


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
def test_archive(
    bench_session: SparkSession, kafka_c1: KafkaCluster, topics: tuple[str, ...], sheet: Sheet, tmp_path: Path
) -> None:
    from services.pipeline.archives import job as archive
    from services.pipeline.kafka.source import GATEWAY, KafkaSource
    from services.pipeline.settings import PipelineSettings

    source = KafkaSource.of_settings(PipelineSettings(), topics, {GATEWAY: {"bootstrap.servers": kafka_c1.bootstrap}})
    folder = tmp_path / "archive"
    rows = []
    for name, each in LOOKS:
        produce(kafka_c1.bootstrap, topics, each)
        files = len(list(folder.glob("day=*/batch=*/*.parquet")))
        began = time.monotonic()
        with watching(os.getpid(), of_job) as taken:
            written = archive.run(bench_session, source, str(folder))
        took = time.monotonic() - began
        assert written.records == each * TOPICS * PARTITIONS
        assert not written.apart
        files = len(list(folder.glob("day=*/batch=*/*.parquet"))) - files
        rows.append(row(name, written.records, took, files, taken))
        print(rows[-1], flush=True)
    began = time.monotonic()
    with watching(os.getpid(), of_job) as taken:
        archive.run(bench_session, source, str(folder))
    rows.append(row("nothing new", 0, time.monotonic() - began, 0, taken))
    columns = ["look", "records", "seconds", "CPU s", "of the JVM", "Kafka clients", "files", "JVM MB", "driver MB"]
    sheet.add(Table(f"Pipeline: an archive of {TOPICS * PARTITIONS:,} partitions", columns, rows))


def row(name: str, records: int, took: float, files: int, taken: Taken) -> list[str]:
    return [
        name, f"{records:,}", f"{took:.1f}", f"{taken.all_cpu_s:.1f}", f"{taken.cpu_s.get('jvm', 0.0):.1f}",
        str(taken.most_clients), str(files), str(taken.peak_mb["jvm"]), str(taken.peak_mb["driver"]),
    ]  # fmt: skip


def produce(bootstrap: str, topics: tuple[str, ...], each: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for number in range(each):
        for topic in topics:
            for partition in range(PARTITIONS):
                while True:
                    try:
                        producer.produce(topic, plain(number * PARTITIONS + partition), partition=partition)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
    assert producer.flush(KAFKA_S) == 0
