"""A sidecar is killed at random under load. `MESH_SOAK_S` bounds it; `MESH_SEED` repeats its choices."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.idempotent_under_kills import idempotent_under_kills
from tests.fixtures.sidecar_under_kills import SidecarProcess, sidecar_under_kills

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.timeout(SOAK_S + 600)
def test_instances_and_records_outlive_kills_at_random(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path
) -> None:
    print(f"MESH_SEED={SEED}")
    until = time.monotonic() + SOAK_S
    with SidecarProcess(tmp_path, kafka_c1.bootstrap, session_timeout_ms="6000").running() as sidecar:
        kills = sidecar_under_kills(
            sidecar,
            kafka_c1.bootstrap,
            topic,
            group,
            random.Random(SEED),
            lambda _: time.monotonic() < until,
            dynamic=True,
        )
    print(f"{kills} kills")


@pytest.mark.timeout(SOAK_S + 600)
def test_requests_under_a_key_are_written_once_through_kills_at_random(
    kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    print(f"MESH_SEED={SEED}")
    until = time.monotonic() + SOAK_S
    with SidecarProcess(tmp_path, kafka_c1.bootstrap, transactional_ids=topic).running() as sidecar:
        kills = idempotent_under_kills(
            sidecar, kafka_c1.bootstrap, topic, random.Random(SEED), lambda _: time.monotonic() < until
        )
    print(f"{kills} kills")
