"""The Kafka source in Spark: batch and stream, of one cluster and of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.pipeline.orchard import MIDNIGHT, Content, Orchard, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from services.pipeline.kafka.source import KafkaSource

WAIT_S = 10.0
ANSWER_S = 3.0  # each plan waits so long for a cluster that is away
NOBODY = "127.0.0.1:1"


def source(topics: tuple[str, ...], **clusters: str) -> KafkaSource:
    from services.pipeline.kafka.source import KafkaSource

    return KafkaSource(
        topics=topics,
        clusters={name: {"bootstrap.servers": each} for name, each in clusters.items()},
        max_batch_rows=40,
        stall_timeout_s=WAIT_S,
        request_timeout_s=ANSWER_S,
        skip_absent=True,
    )


def contents(rows: list[Any], cluster: str) -> dict[Place, Content]:
    """What rows of a cluster say, as an orchard remembers it."""
    found = [row for row in rows if row.cluster == cluster]
    assert len({(row.topic, row.partition, row.offset) for row in found}) == len(found), "records that came twice"
    return {Place(row.topic, row.partition, row.offset): _content(row) for row in found}


def _content(row: Any) -> Content:
    headers = tuple((each.key, None if each.value is None else bytes(each.value)) for each in row.headers)
    key, value = (None if each is None else bytes(each) for each in (row.key, row.value))
    return Content(key, value, headers, row.milliseconds)


def rows_of(records: DataFrame) -> list[Any]:
    from pyspark.sql import functions as f

    return list(records.withColumn("milliseconds", f.unix_millis("timestamp")).collect())


@pytest.fixture
def orchards(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[tuple[Orchard, Orchard]]:
    """The same topic on two clusters."""
    both = Orchard(kafka_c1.bootstrap, topic), Orchard(kafka_c2.bootstrap, topic)
    yield both
    for each in both:
        each.clear()


def test_a_batch_has_all_of_every_record_with_its_cluster(
    spark: SparkSession, orchards: tuple[Orchard, Orchard], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    from services.pipeline.kafka.ranges import Range
    from services.pipeline.spark.data_source import open_batch

    first, second = orchards
    first.create()
    second.create(partitions=1)
    first.grow(60)
    second.grow(20, partitions=(0,))
    both = source((first.topic,), c1=kafka_c1.bootstrap, c2=kafka_c2.bootstrap)
    rows = rows_of(open_batch(both, spark))
    assert contents(rows, "c1") == first.records
    assert contents(rows, "c2") == second.records

    some = [Range(first.topic, start=3, end=9, partitions=frozenset({1}), cluster="c1")]
    assert {(row.cluster, row.partition, row.offset) for row in rows_of(open_batch(both, spark, some))} == {
        ("c1", 1, offset) for offset in range(3, 9)
    }
    assert rows_of(open_batch(both, spark, [Range(first.topic, start=MIDNIGHT + timedelta(days=1))])) == []


@pytest.mark.goes_on
def test_a_stream_follows_partitions_and_clusters_that_are_added_and_does_not_wait_for_one_that_is_away(
    spark: SparkSession, orchards: tuple[Orchard, Orchard], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster,
    tmp_path: Path, unique_name: Callable[[str], str],
) -> None:  # fmt: skip
    from services.pipeline.spark.data_source import open_stream

    first, second = orchards
    first.create(partitions=1)
    second.create(partitions=1)
    later = unique_name("later")
    batches: dict[int, list[Any]] = {}

    def take(records: DataFrame, batch: int) -> None:
        """A batch that a stop has cut off is run again, over the same span."""
        batches[batch] = rows_of(records)

    def read(cluster: str) -> dict[Place, Content]:
        return contents([row for rows in batches.values() for row in rows], cluster)

    def follow(reached: Callable[[], bool], **clusters: str) -> None:
        """Streams until it is so, on one checkpoint."""
        reading = source((first.topic, later), **clusters)
        query = (
            open_stream(reading, spark)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            wait_until(lambda: not query.isActive or reached(), "the stream has read what is there")
            assert query.exception() is None
        finally:
            query.stop()

    def grows() -> Iterator[bool]:
        """What is to be read, step by step, while the stream runs."""
        first.grow(10, partitions=(0,))
        while read("c1") != first.records:
            yield False
        first.add_partitions(3)
        first.grow(30)
        first.create(later)  # a topic that was not there
        first.grow(6, topic=later)
        while read("c1") != first.records:
            yield False
        yield True

    steps = grows()
    follow(lambda: next(steps), c1=kafka_c1.bootstrap)

    first.grow(10)
    second.grow(10, partitions=(0,))
    follow(
        lambda: read("c1") == first.records and read("c2") == second.records,
        c1=kafka_c1.bootstrap,
        c2=kafka_c2.bootstrap,
        c3=NOBODY,
    )


def test_secrets_of_clients_stand_in_no_plan(spark: SparkSession, kafka_c1: KafkaCluster, orchard: Orchard) -> None:
    from services.pipeline.kafka.source import KafkaSource
    from services.pipeline.spark.data_source import open_batch

    orchard.create(partitions=1)
    secrets = {"sasl.password": "my own password", "ssl.key.pem": "my own key"}
    reading = KafkaSource(
        topics=(orchard.topic,),
        clusters={"c1": {"bootstrap.servers": kafka_c1.bootstrap, **secrets}},
        max_batch_rows=10,
        stall_timeout_s=WAIT_S,
        request_timeout_s=WAIT_S,
    )
    plan = spark._jvm.PythonSQLUtils.explainString(open_batch(reading, spark)._jdf.queryExecution(), "extended")
    assert "mesh-kafka" in plan
    assert not [secret for secret in secrets.values() if secret in plan], plan
