"""A cluster of three brokers behind the gateway: leaders and coordinators move under load, and no client notices."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Consumer, ElectionType, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
)
from confluent_kafka.cimpl import NewTopic

from services.gateway.requests.placement import Place
from services.gateway.requests.real_brokers import PER_CLUSTER
from services.gateway.requests.records.replication import behind_leader, questions
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from services.gateway.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from services.gateway.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.three_brokers import ThreeBrokers
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce, read
from tests.integration.gateway.running import Rules
from tests.integration.gateway.talking import comes_true, talking_to
from tests.unit.gateway.requests.playbook import World

PARTITIONS = 6
away = asyncio.to_thread
"""Clients tell their journals by the event loop: whoever blocks it makes them wait."""
BROKER = ConfigResource.Type.BROKER
SETTING = "log.cleaner.io.buffer.load.factor"


class Leaders:
    """What the real cluster says of the topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topic = topic

    def now(self) -> dict[int, int]:
        return {number: found.leader for number, found in self._partitions().items()}

    def in_sync(self) -> bool:
        partitions = self._partitions()
        return bool(partitions) and all(len(found.isrs) == 3 for found in partitions.values())

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
        await away(await_leaders, admin, topic, PARTITIONS)
    leaders = Leaders(three_brokers.bootstrap, topic)
    rules = Rules({"wide": three_brokers.bootstrap, "c2": kafka_c2.bootstrap})
    gateway = start_gateway(rules.to("wide", [topic]))
    load = await TopicUnderLoad.start(gateway.address, topic, unique_name("group"))
    try:
        await away(three_brokers.node(2).stop)
        await away(wait_until, lambda: 2 not in leaders.now().values(), "broker 2 leads nothing")
        await load.progress()
        three_brokers.node(2).launch()
        await away(three_brokers.node(2).wait_until_it_answers)
        await away(wait_until, leaders.in_sync, "broker 2 has caught up")

        load.expect_absent_clusters()  # the group's coordinator may be the one that dies
        await away(three_brokers.node(3).kill)
        await load.progress()
        await away(gateway.move, rules.to("c2", [topic]))
        await load.progress()
        three_brokers.node(3).launch()
        await away(three_brokers.node(3).wait_until_it_answers)
        await away(wait_until, leaders.in_sync, "broker 3 has caught up")
        await away(gateway.move, rules.to("wide", [topic]))
        await load.progress()

        assert set((await away(leaders.now)).values()) != {1, 2, 3}
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        through = AdminClient({"bootstrap.servers": gateway.address})
        await away(through.elect_leaders(ElectionType.PREFERRED, partitions).result, 20)
        await away(wait_until, lambda: set(leaders.now().values()) == {1, 2, 3}, "each broker leads what it prefers")
        await load.progress()
    finally:
        await load.stop()
    await load.check([Upstream("wide", three_brokers.bootstrap), Upstream("c2", kafka_c2.bootstrap)])


async def test_replicas_and_settings_of_real_brokers(
    three_brokers: ThreeBrokers,
    kafka_c2: KafkaCluster,
    start_gateway: StartGateway,
    unique_name: Callable[[str], str],
) -> None:
    """Replicas are placed and moved by the numbers of real brokers; a virtual broker is all brokers of its cluster."""
    topic = unique_name("replicas")
    rules = Rules({"wide": three_brokers.bootstrap, "c2": kafka_c2.bootstrap})
    gateway = start_gateway(rules.to("wide", [topic]))
    of_wide = [PER_CLUSTER + broker for broker in (1, 2, 3)]
    async with talking_to(gateway.address) as client:
        creating = CreatableTopic(topic, -1, -1, [CreatableReplicaAssignment(0, of_wide[:2])])
        created = await client.ask(CreateTopicsRequest([creating], 20_000), 7, CreateTopicsResponse)
        assert [each.error_code for each in created.topics] == [0]

        moving = ReassignableTopic(topic, [ReassignablePartition(0, of_wide[1:])])
        moved = await client.ask(
            AlterPartitionReassignmentsRequest(20_000, topics=[moving]), 1, AlterPartitionReassignmentsResponse
        )
        assert [p.error_code for response in moved.responses for p in response.partitions] == [0]

        async def on_the_move() -> list[str]:
            question = ListPartitionReassignmentsRequest(20_000)
            listed = await client.ask(question, 0, ListPartitionReassignmentsResponse)
            assert all(n in of_wide for t in listed.topics for p in t.partitions for n in p.replicas)
            return [found.name for found in listed.topics]

        await comes_true(on_the_move, [], "the replicas have moved")
    cluster = AdminClient({"bootstrap.servers": three_brokers.bootstrap})

    def replicas() -> list[int]:
        return sorted(cluster.list_topics(topic, timeout=20).topics[topic].partitions[0].replicas)

    wait_until(lambda: replicas() == [2, 3], "all brokers know that the replicas have moved")

    value = "0.85"
    one = ConfigEntry(SETTING, value, incremental_operation=AlterConfigOpType.SET)
    through = AdminClient({"bootstrap.servers": gateway.address})
    changing = through.incremental_alter_configs([ConfigResource(BROKER, "101", incremental_configs=[one])])
    for future in changing.values():
        future.result(20)

    def has_it(admin: AdminClient, broker: str) -> bool:
        [read] = admin.describe_configs([ConfigResource(BROKER, broker)]).values()
        return bool(read.result(20)[SETTING].value == value)

    for admin, broker in ((cluster, "1"), (cluster, "2"), (cluster, "3"), (through, "101")):  # each has it in its time
        wait_until(partial(has_it, admin, broker), f"broker {broker} has {value}")


async def test_a_leader_has_more_than_its_replicas_while_one_of_them_stands_still(
    three_brokers: ThreeBrokers, unique_name: Callable[[str], str]
) -> None:
    """Its last writes may be lost with it: seams of moved topics do not count them as stored (`replication`)."""
    topic = unique_name("ends")
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap})
    await away(admin.create_topics([NewTopic(topic, 1, replica_assignment=[[2, 3]])])[topic].result, 30)
    await away(await_leaders, admin, topic, 1)
    leader = Place("wide", 2)
    mesh = World({"wide": [topic]}).view()

    async with talking_to(three_brokers.node(2).bootstrap) as client:

        async def is_behind() -> bool:
            for call in questions(leader, {topic: [0]}, 3.0, own_names=True, mesh=mesh):
                assert isinstance(call.message, ListOffsetsRequest)
                client.send(call.message, call.version)
            end, high_watermark = [await client.answer(ListOffsetsResponse) for _ in range(2)]
            return behind_leader(end, high_watermark) == {(topic, 0)}

        assert not await is_behind()
        with three_brokers.node(3).frozen():
            await away(partial(produce, three_brokers.node(2).bootstrap, topic, ["on the leader alone"], acks="1"))
            assert await is_behind()
        await comes_true(is_behind, False, "the replica has the record")


@pytest.mark.timeout(300)
def test_records_are_read_from_the_replica_in_the_clients_rack(
    three_brokers: ThreeBrokers, start_gateway: StartGateway, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("racks")
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    await_leaders(admin, topic, 1)
    leaders = Leaders(three_brokers.bootstrap, topic)
    wait_until(leaders.in_sync, "all replicas are there")
    leader = leaders.now()[0]
    near = next(number for number in (2, 3) if number != leader)
    gateway = start_gateway(Rules({"wide": three_brokers.bootstrap}).to("wide", [topic]))

    def asked() -> dict[int, int]:
        """Broker -> how often it was asked for records."""
        sessions = [connection.session for connection in list(gateway.gateway.connections)]
        return {broker: fetches.requests for s in sessions for (_, broker), fetches in s.broker_fetches.items()}

    config = {"bootstrap.servers": gateway.address, "group.id": topic, "auto.offset.reset": "earliest"}
    with closing(Consumer({**config, "client.rack": f"rack-{near}"})) as consumer:
        consumer.subscribe([topic])
        produce(gateway.address, topic, ["first"])
        assert read(consumer, 1) == ["first"]
        before = asked()
        for number in range(5):
            produce(gateway.address, topic, [str(number)])
            assert read(consumer, 1) == [str(number)]
        read_from = {broker for broker, times in asked().items() if times > before.get(broker, 0)}
        assert read_from == {near}

        three_brokers.node(near).stop()
        produce(gateway.address, topic, ["the leader has this too"])
        assert read(consumer, 1) == ["the leader has this too"]
        assert asked()[leader] > before[leader]
    three_brokers.node(near).start()
    wait_until(leaders.in_sync, f"broker {near} has caught up")


def test_a_share_group_takes_records_from_all_leaders_and_goes_on_when_they_move(
    three_brokers: ThreeBrokers, start_gateway: StartGateway, unique_name: Callable[[str], str], group: str
) -> None:
    """Once each, or once more: that is all that share groups promise when the leader of a partition changes."""
    topic = unique_name("shared")
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    await_leaders(admin, topic, PARTITIONS)
    leaders = Leaders(three_brokers.bootstrap, topic)
    assert set(leaders.now().values()) == {1, 2, 3}
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    settings = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[earliest])
    admin.incremental_alter_configs([settings])[settings].result(20)
    gateway = start_gateway(Rules({"wide": three_brokers.bootstrap}).to("wide", [topic]))
    batches = [[f"{topic} {batch} {n}" for n in range(300)] for batch in range(2)]
    with ThreadPoolExecutor(1) as pool:
        produce(gateway.address, topic, batches[0])
        member = pool.submit(run_member, "share", gateway.address, group, [topic], 600)
        three_brokers.node(2).stop()
        produce(gateway.address, topic, batches[1])
        told = member.result()
    three_brokers.node(2).start()
    wait_until(leaders.in_sync, "broker 2 has caught up")
    assert set(told.values) == {*batches[0], *batches[1]}
