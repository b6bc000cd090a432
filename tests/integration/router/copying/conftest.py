"""The two clusters of a copy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, two_sides


@pytest.fixture
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.fixture
def c1(sides: tuple[Side, Side]) -> Side:
    return sides[0]


@pytest.fixture
def c2(sides: tuple[Side, Side]) -> Side:
    return sides[1]
