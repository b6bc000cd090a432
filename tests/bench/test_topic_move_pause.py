"""How long producers wait when a topic moves with its records, to and fro: two gateways, routers and controls.

The pause that control tells lasts from the first hold to the switch on all gateways. The pause of a producer is its
longest time from a record to the record's acknowledgement during the move. `MESH_BENCH_MOVES` bounds the moves.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import PROGRESS, check, moving

MOVES = int(os.environ.get("MESH_BENCH_MOVES", "24"))


@pytest.mark.timeout(1200)
async def test_the_pause_of_a_move(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    met: list[float] = []
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1)) as run:
        for number in range(MOVES):
            for writer in run.writers:
                writer.longest_s = 0.0
            move = await run.moves.undisturbed("c1" if number % 2 else "c2")
            for writer in run.writers:
                await writer.goes_on(PROGRESS)
            met.extend(1000 * writer.longest_s for writer in run.writers)
            print(f"{move.pause_ms} ms, {move.cuts_given_up} cuts given up: {move.problem}")
        given_up = run.moves.given_up
        await run.end()
    owner, cluster = ("c1", kafka_c1) if MOVES % 2 == 0 else ("c2", kafka_c2)
    check(await Upstream(owner, cluster.bootstrap).read(run.topic), run.writers)
    told = [float(each) for each in run.moves.pauses]
    for name, pauses in (("control tells", told), ("a producer met", met)):
        ordered = sorted(pauses)
        print(f"{name}: half {at(ordered, 0.5):.0f} ms, p99 {at(ordered, 0.99):.0f} ms, most {ordered[-1]:.0f} ms")
    print(f"{MOVES} moves, {given_up} cuts given up")


def at(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
