"""Share groups over two clusters by real clients: Java's and librdkafka's members, a killed gateway, a moved topic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_unless
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway

COUNT = 60


@pytest.fixture
def table(
    rules: Rules, create_topic: CreateTopic, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, apples: str, bananas: str
) -> Rules:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    rules.to("c2", [bananas])
    return rules


@pytest.fixture
def gateway(table: Rules, start_gateway: StartGateway) -> RunningGateway:
    return start_gateway(table.table, listen=f"127.0.0.1:{free_block(1)}")


def begins_at_the_earliest(bootstrap: str, group: str) -> None:
    """The group does not exist yet; a cluster that has never had a group makes its coordinators only now."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def obstacle() -> str | None:
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
        try:
            admin.incremental_alter_configs([resource])[resource].result(20)
        except KafkaException as error:
            return str(error)
        return None

    wait_unless(obstacle, "the group has its setting", 60)


def batch(number: int, *topics: str) -> set[str]:
    return {f"{topic} {number} {n}" for topic in topics for n in range(COUNT)}


def produce_batch(bootstrap: str, number: int, *topics: str) -> set[str]:
    for topic in topics:
        produce(bootstrap, topic, sorted(batch(number, topic)))
    return batch(number, *topics)


class Member:
    """A member by librdkafka, and the records that it has accepted."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self.accepted: list[str] = []
        self.faults: list[str] = []
        config = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(config)
        self._consumer.subscribe(topics)

    def poll(self) -> None:
        read: list[str] = []
        for message in self._consumer.poll(0.5):
            if message.error() is None:
                read.append((message.value() or b"").decode())
                self._consumer.acknowledge(message)
            else:
                self.faults.append(str(message.error()))
        outcomes = self._consumer.commit_sync(30)
        failed = [str(fault) for fault in outcomes.values() if fault is not None]
        self.faults += failed
        if not failed:
            self.accepted += read

    def close(self) -> None:
        self._consumer.close()


def poll_until(what: str, obstacle: Callable[[], str | None], *members: Member) -> None:
    def unmet() -> str | None:
        for member in members:
            member.poll()
        return obstacle()

    wait_unless(unmet, what, 90)


def missing(wanted: set[str], *members: Member) -> str | None:
    """Why not all of these have been accepted."""
    lacking = wanted - {value for member in members for value in member.accepted}
    faults = [fault for member in members for fault in member.faults]
    return f"{len(lacking)} of {len(wanted)} records, such as {sorted(lacking)[:3]}; {faults[-3:]}" if lacking else None


def test_javas_member_reads_and_accepts_records_of_both_clusters(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    begins_at_the_earliest(gateway.address, group)
    expected = produce_batch(gateway.address, 0, apples, bananas)
    produce(gateway.address, apples, ["again apple"])
    produce(gateway.address, bananas, ["again banana"])
    member = run_member("share", gateway.address, group, [apples, bananas], len(expected) + 2)
    assert member.faults == []
    assert sorted(member.values) == sorted(expected | {"again apple", "again banana"})
    assert sorted(member.of("released")) == ["again apple", "again banana"]


def test_librdkafkas_members_share_the_records_of_both_clusters(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    begins_at_the_earliest(gateway.address, group)
    expected = produce_batch(gateway.address, 0, apples, bananas)
    two = [Member(gateway.address, group, [apples, bananas]) for _ in range(2)]
    with closing(two[0]), closing(two[1]):
        poll_until("all is accepted", partial(missing, expected, *two), *two)
    assert [member.faults for member in two] == [[], []]
    assert sorted(value for member in two for value in member.accepted) == sorted(expected)
