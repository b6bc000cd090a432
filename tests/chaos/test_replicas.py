"""Two replicas of control, of which one or the other is killed: the short form of `tests/soak/test_replicas.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.replicas import ReplicatedControl, check, kill_at_random

KILLS, SEED = 3, 1


@pytest.mark.timeout(300)
async def test_no_event_is_lost_doubled_or_out_of_order_when_replicas_are_killed(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    database = postgres.migrated()
    async with ReplicatedControl(database, kafka_c1.bootstrap, unique_name("events"), tmp_path) as control:
        await kill_at_random(control, KILLS, SEED)
        await control.settle()
        await check(control)
