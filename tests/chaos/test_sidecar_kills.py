"""A sidecar is killed under load: no acknowledged record is lost, no instance, and no committed position."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sidecar_under_kills import SidecarProcess, sidecar_under_kills

KILLS = 2


@pytest.mark.timeout(300)
def test_kills_lose_no_acknowledged_record_and_no_instance(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path
) -> None:
    with SidecarProcess(tmp_path, kafka_c1.bootstrap).running() as sidecar:
        sidecar_under_kills(
            sidecar, kafka_c1.bootstrap, topic, group, random.Random(7), lambda kills: kills < KILLS, dynamic=False
        )
