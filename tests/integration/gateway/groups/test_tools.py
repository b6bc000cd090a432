"""kafka-consumer-groups on classic, consumer and simple groups of two clusters."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read
from tests.integration.gateway.running import Rules, RunningGateway

COUNT = 30


@pytest.fixture
def gateway(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
) -> RunningGateway:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    for topic in (apples, bananas):
        produce(gateway.address, topic, [f"{topic} {n}" for n in range(COUNT)])
    return gateway


def member(bootstrap: str, group: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


@contextmanager
def kept_alive(*consumers: Consumer) -> Iterator[None]:
    """Members that stay, whatever else the test does."""
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            for consumer in consumers:
                consumer.poll(0.1)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rows(printed: str, group: str) -> dict[tuple[str, int], str]:
    """What `--describe` tells of a group: topic and partition, and the offset."""
    found = re.findall(rf"^{re.escape(group)}\s+(\S+)\s+(\d+)\s+(\S+)\s", printed, re.MULTILINE)
    return {(topic, int(partition)): offset for topic, partition, offset in found}


def test_consumer_groups_are_listed_described_reset_and_deleted_as_on_one_cluster(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    tools = ConsoleTools(gateway.address)
    classic, consumer, simple = f"classic-{group}", f"consumer-{group}", f"simple-{group}"
    everyone = [part for name in (classic, consumer, simple) for part in ("--group", name)]

    def run(*options: str) -> str:
        return asyncio.run(tools.run(Tool.CONSUMER_GROUPS, *options))

    with (
        closing(member(gateway.address, classic)) as over_two,
        closing(member(gateway.address, consumer, **{"group.protocol": "consumer"})) as on_c2,
        closing(member(gateway.address, simple)) as nobody,
    ):
        over_two.subscribe([apples, bananas])
        on_c2.subscribe([bananas])
        read(over_two, 2 * COUNT)
        read(on_c2, COUNT)
        over_two.commit(asynchronous=False)
        on_c2.commit(asynchronous=False)
        nobody.commit(offsets=[TopicPartition(apples, 0, 1), TopicPartition(bananas, 1, 1)], asynchronous=False)
        with kept_alive(over_two, on_c2):
            listed = dict(re.findall(r"^(\S+)\s+(\S+)\s*$", run("--list", "--type"), re.MULTILINE))
            kinds = {classic: "Classic", consumer: "Consumer", simple: "Classic"}
            assert {name: listed[name] for name in kinds} == kinds
            described = run("--describe", *everyone)
            assert set(rows(described, classic)) == {(topic, n) for topic in (apples, bananas) for n in range(3)}
            assert set(rows(described, consumer)) == {(bananas, n) for n in range(3)}
            assert rows(described, simple) == {(apples, 0): "1", (bananas, 1): "1"}
            refused = run("--delete", *everyone[:4])
            assert len(re.findall(r"could not be deleted due to: \S*GroupNotEmptyException", refused)) == 2

    both = ("--topic", apples, "--topic", bananas)
    for name, topics in ((classic, both), (consumer, both[2:])):
        reset = run("--reset-offsets", "--to-earliest", "--execute", "--group", name, *topics)
        assert set(rows(reset + " ", name).values()) == {"0"}
    forgotten = run("--delete-offsets", "--group", classic, "--topic", bananas)
    assert len(re.findall(rf"^{re.escape(bananas)}\s+\d\s+Successful", forgotten, re.MULTILINE)) == 3
    described = run("--describe", *everyone[:4])
    assert rows(described, classic) == {(apples, n): "0" for n in range(3)}
    assert rows(described, consumer) == {(bananas, n): "0" for n in range(3)}
    run("--delete", *everyone)
    assert not {classic, consumer, simple} & set(run("--list").split())
