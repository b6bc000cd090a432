"""Kafka, and a sidecar for each module of tests."""

from collections.abc import Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import Kafka, SidecarWorld, started


@pytest.fixture
def kafka(kafka_c1: KafkaCluster) -> Kafka:
    return Kafka(kafka_c1.bootstrap)


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    """One for all tests of a module; each has its own topics and groups."""
    with started(kafka_c1.bootstrap, max_instances=200) as world:
        yield world


@pytest.fixture
def orders(kafka: Kafka, topic: str) -> str:
    """A topic with two partitions."""
    kafka.create(topic)
    return topic
