"""A topic moves between clusters under load: nothing is lost, nothing stored twice, and nobody hears an error."""

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest
from confluent_kafka import KafkaError, Producer

from services.gateway.requests.plan import Lane
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.stored import assert_stored_once

MOVES = ("c2", "c1", "c2")
BETWEEN_MOVES = 100
"""Records acknowledged between two moves."""


class SteadyProducer:
    """Produces numbered records until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, name: str, **config: object) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 2, **config})
        self._topic = topic
        self._name = name
        self.acknowledged: list[str] = []
        self.faults: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = f"{self._name} {number}"
            self._producer.produce(self._topic, value, str(number % 7), on_delivery=self._delivered(value))
            number += 1
            self._producer.poll(0.001)
            time.sleep(0.001)  # a steady rate, not as fast as it goes

    def _delivered(self, value: str):  # type: ignore[no-untyped-def]
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.append(value)
            else:
                self.faults.append(error)

        return delivered

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "records were not delivered in time"


def wait_for_progress(producers: Sequence[SteadyProducer], records: int) -> None:
    """Until so many more records of each are acknowledged."""
    wanted = {producer: len(producer.acknowledged) + records for producer in producers}
    wait_until(
        lambda: all(len(producer.acknowledged) >= count for producer, count in wanted.items()),
        f"{records} more records of each producer",
    )


@pytest.mark.parametrize(
    "idempotent",
    [pytest.param(True, id="idempotent"), pytest.param(False, id="plain", marks=pytest.mark.soak)],
)
def test_a_topic_moves_back_and_forth_under_load(
    idempotent: bool,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    clusters = (kafka_c1, kafka_c2)
    for cluster in clusters:
        create_topic(cluster, apples)
    gateway = start_gateway(rules.to("c1", [apples]))
    config = {"enable.idempotence": idempotent, "acks": "all"}
    producers = [SteadyProducer(gateway.address, apples, f"p{n}", **config) for n in range(3)]
    try:
        for target in MOVES:
            wait_for_progress(producers, BETWEEN_MOVES)
            gateway.move(rules.to(target, [apples]))
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[], [], []]
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    stored = [read_all(cluster.bootstrap, apples) for cluster in clusters]
    assert all(stored), "both clusters have had their share"
    assert_stored_once(stored[0] + stored[1], acknowledged)


async def break_produce(gateway: RunningGateway) -> int:
    """The connections on which answers of Produce are waited for, as soon as there is one; how many those are."""
    broken = 0
    async with asyncio.timeout(30):
        while not broken:
            for client in gateway.gateway.connections:
                for key, connection in list(client._lanes.connections.items()):
                    if key.lane is Lane.PRODUCE and connection.in_flight:
                        connection.abort("a test breaks it")
                        broken += 1
            await asyncio.sleep(0)
    return broken


def test_a_write_whose_answer_was_lost_at_the_move_is_not_stored_twice(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    """The old cluster has stored records and told so, but the connection broke; they are sent again after the move."""
    clusters = (kafka_c1, kafka_c2)
    for cluster in clusters:
        create_topic(cluster, apples)
    gateway = start_gateway(rules.to("c1", [apples]))
    producers = [
        SteadyProducer(gateway.address, apples, f"p{n}", **{"enable.idempotence": True, "linger.ms": 0})
        for n in range(3)
    ]
    unanswered = 0
    try:
        for target in MOVES:
            wait_for_progress(producers, BETWEEN_MOVES)
            table = rules.to(target, [apples])
            unanswered += gateway.call(partial(break_produce, gateway))
            gateway.move(table)
    finally:
        for producer in producers:
            producer.stop()
    assert unanswered >= len(MOVES)
    assert [producer.faults for producer in producers] == [[], [], []]
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    stored = [value for cluster in clusters for value in read_all(cluster.bootstrap, apples)]
    assert_stored_once(stored, acknowledged)


def test_what_a_cluster_that_stands_still_was_sent_is_not_stored_on_the_next_one_too(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    """It stores it when it goes on, long after the topic has left."""
    clusters = (kafka_c1, kafka_c2)
    for cluster in clusters:
        create_topic(cluster, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), request_timeout_s=3.0)
    producer = SteadyProducer(gateway.address, apples, "p0", **{"enable.idempotence": True, "linger.ms": 0})
    try:
        wait_for_progress([producer], BETWEEN_MOVES)
        with kafka_c1.frozen():
            gateway.call(partial(break_produce, gateway))
            gateway.move(rules.to("c2", [apples]))
            knowledge = gateway.gateway.mesh.clusters.known["c1"]
            wait_until(lambda: knowledge.down is not None, "the gateway has noticed", 60)
        wait_for_progress([producer], BETWEEN_MOVES)
    finally:
        producer.stop()
    assert producer.faults == []
    stored = [read_all(cluster.bootstrap, apples) for cluster in clusters]
    assert all(stored), "both clusters have had their share"
    assert_stored_once(stored[0] + stored[1], producer.acknowledged)
