"""The process that carries out record rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, Workers


@pytest.fixture(scope="module")
def process(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    """One for all tests of a file: its start takes longer than most of them."""
    log = tmp_path_factory.mktemp("workers") / "workers.log"
    both = Side("c1", kafka_c1.bootstrap), Side("c2", kafka_c2.bootstrap)
    with Workers(log, both).running() as workers:
        yield workers


@pytest.fixture
def workers(process: Workers, sides: tuple[Side, Side]) -> Iterator[Workers]:
    """A process that waits for orders, of a mesh of its own; rules end before their topics are deleted."""
    yield process
    process.renew()
