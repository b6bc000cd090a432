"""A part is killed or frozen at a step of a move: the move ends, and each acknowledged record is there once, in order.

`tests/soak/test_topic_move_kills.py` goes through all parts and steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from mesh.rpc import admin, topic_moves
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.moves_under_faults import PROGRESS, Hit, Move, check, moving, sweep
from tests.fixtures.waiting import until

SHORT_BUDGET_MS = 300
LONG_BUDGET_MS = 10_000
CALL_S = 30.0
REFUSES_AFTER_S = 7.0
"""A gateway's requests wait 6 s in this mesh: 3 s that control waits for HELD, and as much again."""
DONE, GATEWAY = topic_moves.TOPIC_MOVE_STATE_DONE, admin.MEMBER_KIND_GATEWAY
HITS = (
    Hit("copying", "gateway 0 is killed"),
    Hit("cutting", "gateway 1 stands still"),
    Hit("tail", "the copier stands still"),
    Hit("tail", "control 0 is killed"),
    Hit("switching", "control 1 stands still"),
    Hit("after", "router 0 is killed"),
)


def open_transaction(bootstrap: str, topic: str) -> Producer:
    """Nothing is copied behind its first record, so a cut is begun and can't be reached."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    producer.produce(topic, "transaction-0")
    producer.flush(CALL_S)
    return producer


def ends(bootstrap: str, move: Move) -> dict[int, int]:
    """The end of each partition's log, as it is now."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(move.spec.topic, each.partition): latest for each in move.cuts}
    return {place.partition: int(found.result(CALL_S).offset) for place, found in client.list_offsets(places).items()}


@pytest.mark.timeout(400)
async def test_a_gateway_that_stands_still_from_its_promise_to_behind_the_cut_lets_no_record_into_the_old_log(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1)) as run:
        producer = open_transaction(kafka_c1.bootstrap, run.topic)
        move = await run.moves.started("c2", budget_ms=LONG_BUDGET_MS)

        async def all_hold() -> bool:
            phases = [each.phase for each in (await run.mesh.status()).members if each.kind == GATEWAY]
            return phases == [admin.MEMBER_PHASE_HELD] * 2

        await until(all_hold, "both gateways hold")
        async with run.moves.faults["gateway 0 stands still"]():
            frozen_at = asyncio.get_running_loop().time()
            producer.commit_transaction(CALL_S)
            done = await run.moves.shown(move, lambda found: found.HasField("end_time"))
            assert done.state == DONE, done
            cut = {each.partition: each.end for each in done.cuts}
            await run.writers[1].goes_on(PROGRESS)  # the other gateway has switched
            left = frozen_at + REFUSES_AFTER_S - asyncio.get_running_loop().time()
            await asyncio.wait([asyncio.create_task(asyncio.sleep(left))])  # nobody can ask a process that stands still
            stuck = await asyncio.to_thread(ends, kafka_c1.bootstrap, done)
        await run.writers[0].goes_on(PROGRESS)
        assert stuck == cut
        assert await asyncio.to_thread(ends, kafka_c1.bootstrap, done) == cut
        certified = await run.moves.shown(move, lambda found: found.HasField("certificate"))
        assert certified.certificate.confirmed, certified
        assert not certified.strays
        await run.end()
    records = await Upstream("c2", kafka_c2.bootstrap).read(run.topic)
    check([each for each in records if each.value != "transaction-0"], run.writers)


@pytest.mark.timeout(400)
async def test_a_gateway_that_stands_still_before_its_promise_stops_the_cut_and_nobody_is_passed_over(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    async with moving(postgres(), kafka_c1, kafka_c2, unique_name("moving"), tmp_path, random.Random(1)) as run:
        async with run.moves.faults["gateway 0 stands still"]():
            move = await run.moves.started("c2")
            given_up = await run.moves.shown(move, lambda found: found.cuts_given_up > 0)
            assert "g1" in given_up.problem, given_up
            assert not given_up.revision
            await run.writers[1].goes_on(PROGRESS)  # on the old cluster
        done = await run.moves.shown(move, lambda found: found.HasField("end_time"))
        assert done.state == DONE, done
        for writer in run.writers:
            await writer.goes_on(PROGRESS)
        assert await asyncio.to_thread(ends, kafka_c1.bootstrap, done) == {
            each.partition: each.end for each in done.cuts
        }
        await run.end()
    check(await Upstream("c2", kafka_c2.bootstrap).read(run.topic), run.writers)


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
        producer = open_transaction(kafka_c1.bootstrap, run.topic)
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
