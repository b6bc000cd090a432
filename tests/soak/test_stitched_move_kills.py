"""A topic moves to and fro without a copy; each part is killed and frozen, and each link cut, at each step of a move.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import count, islice, takewhile
from pathlib import Path

import pytest

from mesh.stitches.log import MOST_PARTS
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import STITCH, Hit, check, moving, sweep

SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))
MOVES_OF_A_TOPIC = MOST_PARTS - 1


@pytest.mark.timeout(2 * SOAK_S + 600)
async def test_a_stitched_move_ends_forward_whatever_fails_at_whichever_step(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Each topic moves until its log is full. Then the test reads it as clients see it, and goes on with another."""
    print(f"MESH_SEED={SEED}")
    chance, until = random.Random(SEED), time.monotonic() + SOAK_S
    left: list[Hit] | None = None
    for number in count():
        topic, folder = unique_name(f"stitched-{number}"), tmp_path / str(number)
        folder.mkdir()
        async with moving(postgres(), kafka_c1, kafka_c2, topic, folder, chance, kind=STITCH) as run:
            left = run.moves.hits() if left is None else left
            hits = takewhile(lambda _: time.monotonic() < until, islice(left, MOVES_OF_A_TOPIC))
            told: list[str] = []
            await sweep(run.moves, run.writers, hits, told)
            await run.end()
            check(await Upstream("the mesh", run.mesh.gateways[0].address).read(run.topic), run.writers)
        print(run.figures(told))
        left = left[len(told) :]
        if not left or time.monotonic() >= until:
            break
