"""A topic moves with its records to and fro; each part is killed and frozen at each step of a move.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import cycle, takewhile
from pathlib import Path

import pytest

from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import check, moving, sweep

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.timeout(SOAK_S + 600)
async def test_a_move_ends_forward_whatever_is_killed_at_whichever_step(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    print(f"MESH_SEED={SEED}")
    until = time.monotonic() + SOAK_S
    told: list[str] = []
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(SEED)) as run:
        hits = takewhile(lambda _: time.monotonic() < until, cycle(run.moves.hits()))
        owner = await sweep(run.moves, run.writers, hits, told)
        await run.end()
    cluster = {"c1": kafka_c1, "c2": kafka_c2}[owner]
    check(await Upstream(owner, cluster.bootstrap).read(run.topic), run.writers)
    print(run.figures(told))
