"""A content rule over two clusters is killed at random. `MESH_SOAK_S` bounds it; `MESH_SEED` repeats its choices."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.distribution_under_kills import distribution_under_kills
from tests.fixtures.record_rules import Workers, two_sides

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.timeout(SOAK_S + 600)
def test_records_outlive_kills_at_random(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    print(f"MESH_SEED={SEED}")
    until = time.monotonic() + SOAK_S
    with two_sides(kafka_c1, kafka_c2) as sides, Workers(tmp_path / "workers.log", sides).running() as workers:
        kills = distribution_under_kills(
            *sides, workers, topic, random.Random(SEED), lambda _: time.monotonic() < until
        )
    print(f"{kills} kills")
