"""Two clusters and the process that carries out record rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, Workers, two_sides


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


@pytest.fixture
def workers(sides: tuple[Side, Side], tmp_path: Path) -> Iterator[Workers]:
    """A process that waits for orders."""
    with Workers(tmp_path / "workers.log", sides).running() as workers:
        yield workers
