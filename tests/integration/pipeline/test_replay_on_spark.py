"""Copies as tasks of Spark. What a copy is, and what is refused: tests/integration/pipeline_clients/test_replay.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.pipeline.copies import Ended, Grove, by_place, originals
from tests.integration.pipeline.orchard import Orchard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def grove(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str) -> Iterator[Grove]:
    grove = Grove(kafka_c1.bootstrap, kafka_c2.bootstrap, topic)
    yield grove
    grove.clear()


@pytest.mark.goes_on
def test_cancelled_on_spark_nothing_stays_open_and_the_same_order_goes_on(
    spark: SparkSession,
    grove: Grove,
    orchard: Orchard,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from services.pipeline.copying import replay as replaying
    from services.pipeline.copying.job import SparkWork

    monkeypatch.setattr(replaying, "PROGRESS_S", 0.1)
    orchard.create()
    orchard.grow(6_000)
    grove.create_target()
    work = SparkWork(lambda: spark, unique_name("replay"))
    order = grove.order(orchard.topic, rate=1_000.0)
    stopping = threading.Event()

    def stop_in_its_midst(ended: Ended) -> None:
        if ended.records:
            stopping.set()

    cancelled = grove.run(order, work=work, stopping=stopping, tell=stop_in_its_midst)
    assert cancelled.state == "CANCELLED", cancelled.description
    assert 0 < cancelled.records < 6_000
    assert len(grove.copies()) == cancelled.records

    order.replay.spec.rate = 0
    order.replay.partitions.extend(cancelled.partitions.values())
    ended = grove.run(order, work=work)
    assert (ended.state, ended.records) == ("DONE", 6_000), ended.description
    assert by_place(grove.copies()) == originals(orchard)
