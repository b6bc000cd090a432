"""Kafka and a sidecar for each test."""

from collections.abc import Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import Kafka, SidecarWorld, started


@pytest.fixture
def kafka(kafka_c1: KafkaCluster) -> Kafka:
    return Kafka(kafka_c1.bootstrap)


@pytest.fixture
def sidecar(kafka: Kafka) -> Iterator[SidecarWorld]:
    with started(kafka.bootstrap) as world:
        yield world


@pytest.fixture
def orders(kafka: Kafka, topic: str) -> str:
    """A topic with two partitions."""
    kafka.create(topic)
    return topic
