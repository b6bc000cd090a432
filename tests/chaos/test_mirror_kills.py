"""A mirror's process is killed while it copies: every record is on the target once, in its order, as it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.mirror_under_kills import mirror_under_kills
from tests.fixtures.record_rules import Workers, two_sides

KILLS = 4


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_kills_lose_nothing_and_repeat_nothing(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    with two_sides(kafka_c1, kafka_c2) as sides, Workers(tmp_path / "workers.log", sides).running() as workers:
        mirror_under_kills(*sides, workers, topic, random.Random(7), lambda kills: kills < KILLS)
