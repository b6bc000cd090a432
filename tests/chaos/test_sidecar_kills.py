"""A sidecar is killed under load: no acknowledged record is lost, no instance, and no committed position."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.idempotent_under_kills import idempotent_under_kills
from tests.fixtures.sidecar_under_kills import SidecarProcess, sidecar_under_kills

KILLS = 2
KILLS_UNDER_KEYS = 2


@pytest.mark.timeout(300)
def test_kills_lose_no_acknowledged_record_and_no_instance(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path
) -> None:
    with SidecarProcess(tmp_path, kafka_c1.bootstrap).running() as sidecar:
        sidecar_under_kills(
            sidecar, kafka_c1.bootstrap, topic, group, random.Random(7), lambda kills: kills < KILLS, dynamic=False
        )


@pytest.mark.timeout(300)
def test_requests_that_insist_under_their_key_are_written_once_however_often_the_sidecar_is_killed(
    kafka_c1: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    with SidecarProcess(tmp_path, kafka_c1.bootstrap, transactional_ids=topic).running() as sidecar:
        idempotent_under_kills(
            sidecar, kafka_c1.bootstrap, topic, random.Random(7), lambda kills: kills < KILLS_UNDER_KEYS
        )
