"""A content rule over two clusters is killed again and again: every record is in its one place, once and in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.distribution_under_kills import distribution_under_kills
from tests.fixtures.record_rules import Workers, two_sides

KILLS = 3


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_kills_lose_nothing_and_repeat_nothing(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    with two_sides(kafka_c1, kafka_c2) as sides, Workers(tmp_path / "workers.log", sides).running() as workers:
        distribution_under_kills(*sides, workers, topic, random.Random(7), lambda kills: kills < KILLS)
