"""Clusters of 4.3 and 3.9 beside one of today: clients of all three times write, read and commit on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.contract import Message, Reading, Sending
from tests.clients.java.driver import JavaClient
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.earlier_kafka import EARLIER, EarlierKafka
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules

JAVA = ("4.4.0", "4.3.1", "3.9.1")
VALUES = [f"value {number}" for number in range(20)]


@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=pytest.mark.soak if version != EARLIER[-1] else ()) for version in EARLIER]
)
def test_clients_of_three_times_use_a_cluster_of_today_and_an_earlier_one(
    version: str,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    earlier_kafka: Callable[[str], EarlierKafka],
    apples: str,
    bananas: str,
    group: str,
) -> None:
    earlier = earlier_kafka(version)
    owners: dict[str, KafkaCluster] = {apples: kafka_c1, bananas: earlier}
    for topic, owner in owners.items():
        create_topic(owner, topic)
    rules = Rules({"today": kafka_c1.bootstrap, "earlier": earlier.bootstrap})
    rules.to("today", [apples])
    gateway = start_gateway(rules.to("earlier", [bananas]))
    for topic in owners:
        produce(gateway.address, topic, VALUES, **{"enable.idempotence": True})
    written = len(VALUES)
    for java in JAVA:
        client = JavaClient(gateway.address, java)
        messages = [Message(topic, f"{java} {value}") for topic in owners for value in VALUES]
        asyncio.run(client.produce(messages, Sending()))
        written += len(VALUES)
        reading = Reading((apples, bananas), f"{group}-{java}", 2 * written)
        assert len(asyncio.run(client.consume(reading))) == 2 * written
    for topic, owner in owners.items():
        assert len(read_all(owner.bootstrap, topic)) == written

    admin = AdminClient({"bootstrap.servers": gateway.address})
    for java in JAVA:
        name = f"{group}-{java}"
        admin.delete_consumer_groups([name])[name].result(20)
    left = {each.group_id for each in admin.list_consumer_groups().result(20).valid}
    assert left.isdisjoint(f"{group}-{java}" for java in JAVA)
