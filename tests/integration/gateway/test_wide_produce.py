"""A producer that sends several partitions at once (aiokafka) writes to a real cluster through the gateway: what it
sends goes straight on, and each record is stored once, in the order of its partition.
"""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from services.gateway.downstream.wide import WideWay
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules

PARTITIONS, COUNT, AT_ONCE = 6, 6_000, 300


@pytest.mark.parametrize("idempotent", [False, True])
async def test_records_for_many_partitions_go_straight_on_and_are_stored_once(
    idempotent: bool,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    straight, begun = 0, WideWay.begun

    def begins(self: WideWay, *arguments: Any) -> Any:
        nonlocal straight
        found = begun(self, *arguments)
        straight += found is not None
        return found

    monkeypatch.setattr(WideWay, "begun", begins)
    create_topic(kafka_c1, apples, PARTITIONS)
    gateway = start_gateway(rules.to("c1", [apples]))
    async with AIOKafkaProducer(
        bootstrap_servers=gateway.address, enable_idempotence=idempotent, linger_ms=5, acks="all"
    ) as producer:
        for first in range(0, COUNT, AT_ONCE):
            sent = [
                await producer.send(apples, b"%06d" % number, partition=number % PARTITIONS)
                for number in range(first, first + AT_ONCE)
            ]
            for each in sent:
                await each
    assert straight, "none of it went straight on"
    found = read_all(gateway.address, apples)
    assert sorted(found) == [f"{number:06}" for number in range(COUNT)]
    for partition in range(PARTITIONS):
        of_it = [value for value in found if int(value) % PARTITIONS == partition]
        assert of_it == sorted(of_it)
