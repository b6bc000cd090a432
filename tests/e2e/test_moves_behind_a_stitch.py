"""`meshctl topic move`, as it is by default: the log is stitched, copied whole, and is one topic again."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import Addresses, World
from tests.e2e.test_stitched_moves import check_one_log, parts
from tests.e2e.test_topic_moves import PARTITIONS, Reader, on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, WITHIN_S, certified, ended, of_moves
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.transacting import JavaTransactions, LibrdkafkaTransacting, Transacting, TransactionError

pytestmark = pytest.mark.timeout(400)

CLIENTS = ("java-4.4", "confluent", "aiokafka")
RECORDS = 3
"""Of a transaction."""
PAUSE_S = 0.05
"""Seconds between two transactions: an open one keeps a cut waiting."""
ABORT_EACH = 5


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("behind") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


async def test_a_topic_moves_whole_behind_a_stitch_and_back_with_new_records(two_gateways: Mesh, world: World) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    reader = Reader(mesh.endpoints["gateway-2"], topic, world.name("reader"))
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    try:
        with reader.running():
            there = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c2", *BUDGET))
            await load.progress()
            certified(mesh, there)
            back = await asyncio.to_thread(ended, mesh, of_moves(mesh, "undo", there["name"]))
            await load.progress()
            await load.stop()
            await asyncio.to_thread(
                wait_until, lambda: len(reader.read) >= len(load.acked), "the reader has read all", WITHIN_S
            )
    finally:
        await load.stop()
    assert not load.errors
    for move in (there, back):
        assert move["spec"]["kind"] == "TOPIC_MOVE_KIND_STITCH_THEN_COPY", move
        assert move["stitch"]["cuts"]
        certified(mesh, move)
        mesh.meshctl("topic", "move", "verify", move["name"])
    assert parts(mesh, topic) == ["c1"]
    records = [(each.partition, each.offset, each.value.encode()) for each in await world.c1.read(topic)]
    check_one_log(sorted(records, key=lambda each: each[:2]), load.acked)
    assert sorted(reader.read) == sorted(records), "a reader that goes on reads what the cluster has"


class Transactions:
    """A transactional producer in a thread of its own: each transaction has a record for each partition."""

    def __init__(self, name: str, producer: Transacting, topic: str) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.errors: list[str] = []
        self._name, self._producer, self._topic = name, producer, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[Transactions]:
        self._thread.start()
        try:
            wait_until(lambda: self.committed or self.errors, f"{self._name} commits", WITHIN_S)
            yield self
        finally:
            self._ended.set()
            self._thread.join(WITHIN_S)

    async def goes_on(self, transactions: int = 10) -> None:
        wanted = len(self.committed) + transactions * RECORDS
        await asyncio.to_thread(
            wait_until, lambda: len(self.committed) >= wanted or self.errors, f"{self._name} goes on", WITHIN_S
        )
        assert not self.errors

    def _run(self) -> None:
        try:
            self._producer.init()
            for number in itertools.count():
                if self._ended.wait(PAUSE_S):
                    break
                self._one(number)
        except TransactionError as error:
            self.errors.append(str(error))
        self._producer.close()

    def _one(self, number: int) -> None:
        values = [f"{self._name}-{number}-{each}" for each in range(RECORDS)]
        self._producer.begin()
        try:
            self._producer.send(self._topic, *values)
            failed = self._producer.flush()
            if number % ABORT_EACH == 0 or failed:
                self._producer.abort()
                self.aborted += values
            else:
                self._producer.commit()
                self.committed += values
        except TransactionError as error:
            if error.fatal:
                raise
            self._producer.abort()
            self.aborted += values


async def test_transactions_and_newer_groups_go_on_over_both_cuts_and_the_old_cluster_may_die(
    two_gateways: Mesh, world: World
) -> None:
    """Nothing of the topic is on the old cluster in the end: it is killed, and all records are read from the start."""
    mesh = two_gateways
    assert world.operator is not None
    world.operator.route_prefix("c2-", "c2")
    _, topic = await world.topic_on_each(PARTITIONS)
    reader = Reader(mesh.endpoints["gateway-2"], topic, world.name("reader"), **{"group.protocol": "consumer"})
    java = JavaTransactions()
    told = [
        Transactions("librdkafka", LibrdkafkaTransacting(world.bootstrap, world.name("librdkafka")), topic),
        Transactions("java", java.open(mesh.endpoints["gateway-2"], world.name("java")), topic),
    ]
    try:
        with told[0].running(), told[1].running(), reader.running():
            move = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c1", *BUDGET))
            assert move["stitch"]["cuts"]
            certified(mesh, move)
            for each in told:
                await each.goes_on()
            await asyncio.to_thread(
                wait_until, lambda: len(reader.read) >= len(told[0].committed), "the reader goes on", WITHIN_S
            )
    finally:
        java.close()
    committed = [value for each in told for value in each.committed]
    assert not any(each.errors for each in told)
    mesh.kill("kafka-c2")
    try:
        records = await Upstream("the mesh", world.bootstrap).read(topic)
        mesh.meshctl("topic", "move", "verify", move["name"])
    finally:
        mesh.start("kafka-c2")
    assert Counter(each.value for each in records) == Counter(committed)
    assert {value.decode() for *_, value in reader.read} <= set(committed), "an aborted record was read"
