"""Two replicas of control, of which one or the other is killed at random, a hundred times (`MESH_KILLS`).

`MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.replicas import WITHIN, ReplicatedControl, check, kill_at_random

KILLS = int(os.environ.get("MESH_KILLS", "100"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.timeout(KILLS * WITHIN)
async def test_no_event_is_lost_doubled_or_out_of_order_over_a_hundred_kills(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    print(f"MESH_SEED={SEED}")
    database = postgres()
    migrate(database)
    began = time.monotonic()
    async with ReplicatedControl(database, kafka_c1.bootstrap, unique_name("events"), tmp_path) as control:
        leaders = await kill_at_random(control, KILLS, SEED)
        await control.settle()
        await check(control)
    took = time.monotonic() - began
    print(f"{KILLS} kills, {leaders} of the leader; {len(control.acknowledged)} changes acknowledged, in {took:.0f} s")
