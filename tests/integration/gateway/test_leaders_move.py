"""A cluster of three brokers behind the gateway: leaders and coordinators move under load, and no client notices."""

from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.three_brokers import ThreeBrokers
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules

PARTITIONS = 6


class Leaders:
    """What the real cluster says of the topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topic = topic

    def now(self) -> dict[int, int]:
        return {number: found.leader for number, found in self._partitions().items()}

    def in_sync(self) -> bool:
        return all(len(found.isrs) == 3 for found in self._partitions().values())

    def _partitions(self) -> dict[int, PartitionMetadata]:
        return dict(self._admin.list_topics(self._topic, timeout=20).topics[self._topic].partitions)


@pytest.mark.timeout(300)
async def test_leaders_move_and_brokers_die_under_load(
    three_brokers: ThreeBrokers,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    unique_name: Callable[[str], str],
) -> None:
    topic = unique_name("leaders")
    for bootstrap, replicas in ((three_brokers.bootstrap, 3), (kafka_c2.bootstrap, 1)):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(30)
    leaders = Leaders(three_brokers.bootstrap, topic)
    rules = Rules({"wide": three_brokers.bootstrap, "c2": kafka_c2.bootstrap})
    gateway = start_gateway(rules.to("wide", [topic]))
    load = await TopicUnderLoad.start(gateway.address, topic, unique_name("group"))
    try:
        three_brokers.node(2).stop()
        assert 2 not in leaders.now().values()
        await load.progress()
        three_brokers.node(2).start()
        wait_until(leaders.in_sync, "broker 2 has caught up")

        load.expect_absent_clusters()  # the group's coordinator may be the one that dies
        three_brokers.node(3).kill()
        await load.progress()
        gateway.move(rules.to("c2", [topic]))
        await load.progress()
        three_brokers.node(3).start()
        wait_until(leaders.in_sync, "broker 3 has caught up")
        gateway.move(rules.to("wide", [topic]))
        await load.progress()

        assert set(leaders.now().values()) != {1, 2, 3}
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        through = AdminClient({"bootstrap.servers": gateway.address})
        through.elect_leaders(ElectionType.PREFERRED, partitions).result(20)
        wait_until(lambda: set(leaders.now().values()) == {1, 2, 3}, "each broker leads what it prefers")
        await load.progress()
    finally:
        await load.stop()
    await load.check([Upstream("wide", three_brokers.bootstrap), Upstream("c2", kafka_c2.bootstrap)])
