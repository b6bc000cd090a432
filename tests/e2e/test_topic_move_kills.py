"""A part is killed or frozen at a step of a move: the move ends, and each acknowledged record is there once, in order.

`tests/soak/test_topic_move_kills.py` goes through all parts and steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import PROGRESS, Hit, check, moving, sweep

SHORT_BUDGET_MS = 300
CALL_S = 30.0
HITS = (
    Hit("copying", "gateway 0 is killed"),
    Hit("cutting", "gateway 1 stands still"),
    Hit("tail", "the copier stands still"),
    Hit("tail", "control 0 is killed"),
    Hit("switching", "control 1 stands still"),
    Hit("after", "router 0 is killed"),
)


@pytest.mark.timeout(400)
async def test_a_move_outlives_a_fault_at_each_step(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1)) as run:
        owner = await sweep(run.moves, run.writers, HITS, [])
        await run.end()
    cluster = {"c1": kafka_c1, "c2": kafka_c2}[owner]
    check(await Upstream(owner, cluster.bootstrap).read(run.topic), run.writers)


async def test_a_cut_that_exceeds_its_budget_is_given_up_and_producers_go_on(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1)) as run:
        producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "transactional.id": run.topic})
        producer.init_transactions(CALL_S)
        producer.begin_transaction()  # nothing is copied behind its first record
        producer.produce(run.topic, "transaction-0")
        producer.flush(CALL_S)
        move = await run.moves.started("c2", budget_ms=SHORT_BUDGET_MS)
        found = await run.moves.shown(move, lambda found: found.cuts_given_up > 0)
        assert "took longer than its budget of 0.3 s: the copy of" in found.problem
        assert "partitions is behind" in found.problem
        for writer in run.writers:
            await writer.goes_on(PROGRESS)
        await run.moves.cancelled(move)
        producer.commit_transaction(CALL_S)
        await run.end()
    check(await Upstream("c1", kafka_c1.bootstrap).read(run.topic), run.writers)
