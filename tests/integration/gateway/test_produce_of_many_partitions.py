"""A producer that sends several partitions at once (aiokafka) writes to a real cluster through the gateway: what it
sends is forwarded without plans, and each record is stored once, in the order of its partition.
"""

import pytest
from aiokafka import AIOKafkaProducer

from services.gateway import metrics
from services.gateway.downstream import turns
from services.gateway.downstream.exchange import Exchange
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sweeps import mostly
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules

PARTITIONS, COUNT, AT_ONCE = 6, 6_000, 300


def produced() -> int:
    """Requests of Produce so far."""
    return sum(count.total for (api, *_), count in metrics.requests._counts.items() if api == "Produce")


@pytest.mark.parametrize("idempotent", mostly([True], [False]))
async def test_records_for_many_partitions_are_forwarded_and_stored_once(
    idempotent: bool,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = 0

    class Counted(Exchange):
        def start(self) -> None:
            nonlocal plans
            plans += 1
            super().start()

    monkeypatch.setattr(turns, "Exchange", Counted)
    before = produced()
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
    assert plans < (produced() - before) / 2, "little of it was forwarded without a plan"
    found = read_all(gateway.address, apples)
    assert sorted(found) == [f"{number:06}" for number in range(COUNT)]
    for partition in range(PARTITIONS):
        of_it = [value for value in found if int(value) % PARTITIONS == partition]
        assert of_it == sorted(of_it)
