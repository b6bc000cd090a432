"""Groups over two clusters by real clients: every assignor, both protocols, a killed gateway, topics that move."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from mesh.routing import ExactName, ForwardingRule, Subject
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.sweeps import mostly
from tests.fixtures.waiting import wait_unless, wait_until
from tests.integration.gateway.conftest import CreateTopic, DeleteTopic, StartGateway
from tests.integration.gateway.gateways import gateways_side_by_side
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway

COUNT = 60
PARTITIONS = 6
"""Three of each topic."""


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
    return start_gateway(rules.to("c2", [bananas]), listen=f"127.0.0.1:{free_block(1)}")


class Member:
    """A consumer, what it has read, and what it was given and has lost."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **config: object) -> None:
        self.values: list[str] = []
        self.rebalances = 0
        quick = {"heartbeat.interval.ms": 300} if config.get("group.protocol", "classic") == "classic" else {}
        self.consumer = Consumer(
            {
                **quick,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **config,
            }
        )
        self.consumer.subscribe(topics, on_assign=self._rebalanced, on_revoke=self._rebalanced)

    def _rebalanced(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        self.values += [(m.value() or b"").decode() for m in self.consumer.consume(100, 0.1) if m.error() is None]

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def poll_until(what: str, obstacle: Callable[[], str | None], *members: Member) -> None:
    """Let the members poll until nothing is in the way."""

    def unmet() -> str | None:
        for member in members:
            member.poll()
        return obstacle()

    wait_unless(unmet, what, 60)


def shared_out(*members: Member) -> str | None:
    """Why the partitions of both topics do not lie with these members, each once and nobody without."""
    owned = [partition for member in members for partition in member.partitions]
    fair = all(member.partitions for member in members)
    return None if fair and len(owned) == len(set(owned)) == PARTITIONS else f"partitions {owned}"


def missing(*members: Member, batches: int = 1) -> str | None:
    """Why not all records of both topics have been read."""
    found = len({value for member in members for value in member.values})
    return None if found == 2 * COUNT * batches else f"{found} records"


@pytest.mark.parametrize("assignor", mostly(["cooperative-sticky"], ["range", "roundrobin"]))
def test_members_share_topics_of_both_clusters_and_take_over(
    assignor: str, gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    strategy = {"partition.assignment.strategy": assignor}
    topics = [apples, bananas]
    with closing(Member(gateway.address, group, topics, **strategy)) as stays:
        with closing(Member(gateway.address, group, topics, **strategy)) as leaves:
            poll_until("both have partitions", lambda: shared_out(stays, leaves), stays, leaves)
            together = figure("group_rebalances_total", group)
            assert together >= 1
            wait_until(lambda: figure("group_connections", group) == 2, "each member has a connection for its group")
        poll_until("one has them all", lambda: shared_out(stays), stays)
        expected = {f"{topic} {n}" for topic in topics for n in range(COUNT)}
        for topic in topics:
            produce(gateway.address, topic, sorted(value for value in expected if value.startswith(topic)))
        poll_until("all is read", lambda: missing(stays), stays)
        assert sorted(stays.values) == sorted(expected)
        assert figure("group_rebalances_total", group) > together, "the leave of a member is a rebalance"


def figure(name: str, group: str) -> float:
    """The gateway's metric for this group; 0 if there is none."""
    return REGISTRY.get_sample_value(f"kafka_mesh_gateway_{name}", {"group": group}) or 0.0


@pytest.mark.parametrize(
    "assignor", [pytest.param("StickyAssignor", marks=pytest.mark.soak), "CooperativeStickyAssignor"]
)
def test_javas_sticky_assignors_share_topics_of_both_clusters(
    assignor: str, gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    expected = {f"{topic} {n}" for topic in (apples, bananas) for n in range(COUNT)}
    for topic in (apples, bananas):
        produce(gateway.address, topic, sorted(value for value in expected if value.startswith(topic)))
    strategy = f"org.apache.kafka.clients.consumer.{assignor}"
    config = {"group_protocol": "classic", "partition_assignment_strategy": strategy}
    pair = run_member("pair", gateway.address, group, [apples, bananas], len(expected), **config)
    assert pair.faults == []
    assert set(pair.values) == expected
    assert sum(map(int, pair.of("partitions"))) == PARTITIONS


def test_members_of_two_gateways_are_one_group(
    rules: Rules,
    create_topic: CreateTopic,
    delete_topic: DeleteTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    tmp_path: Path,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    """Neither gateway knows of the other."""
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    rules.to("c2", [bananas])
    newer = f"newer-{group}"
    delete_topic(kafka_c2, apples)  # the shadow, in the end
    home = ForwardingRule("group-home", ExactName(newer, Subject.GROUP), "c2", shadow_topics=True)
    topics = [apples, bananas]
    with gateways_side_by_side(2, tmp_path, rules.put(home)) as address:
        for batch, (name, protocol) in enumerate({group: "classic", newer: "consumer"}.items(), start=1):
            two = [Member(address, name, topics, **{"group.protocol": protocol}) for _ in range(2)]
            with closing(two[0]), closing(two[1]):
                poll_until("both have partitions", partial(shared_out, *two), *two)
                for topic in topics:
                    produce(address, topic, [f"{topic} {batch} {n}" for n in range(COUNT)])
                poll_until("all is read", partial(missing, *two, batches=batch), *two)


def share_of(bootstrap: str, group: str, members: int) -> str | None:
    """Why the partitions of both topics do not lie with so many members, as an admin client sees the group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=20)[group].result(20)
    except KafkaException as error:
        return str(error)
    owned = [len(member.assignment.topic_partitions) for member in described.members]
    return None if len(owned) == members and all(owned) and sum(owned) == PARTITIONS else f"partitions {owned}"


def offsets_at(cluster: KafkaCluster, group: str, topic: str) -> int:
    """The sum of the group's offsets of a topic, as one cluster itself keeps them."""
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})) as there:
        places = there.committed([TopicPartition(topic, n) for n in range(PARTITIONS // 2)], timeout=20)
        return sum(max(0, place.offset) for place in places)


@pytest.mark.soak
def test_a_newer_group_goes_on_without_a_rebalance_when_a_gateway_is_killed(
    rules: Rules,
    create_topic: CreateTopic,
    delete_topic: DeleteTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    tmp_path: Path,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    """Members of librdkafka and of Java, each in a group of its own, without a rule about any group."""
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    delete_topic(kafka_c1, bananas)  # the shadow, in the end
    topics, javas = [apples, bananas], f"java-{group}"
    gateways: list[subprocess.Popen[bytes]] = []
    with (
        gateways_side_by_side(2, tmp_path, rules.to("c2", [bananas]), gateways) as address,
        ThreadPoolExecutor(1) as background,
    ):
        protocol = {"group.protocol": "consumer"}
        two = [Member(address, group, topics, **protocol) for _ in range(2)]
        java = background.submit(run_member, "pair", address, javas, topics, 4 * COUNT, group_protocol="consumer")
        with closing(two[0]), closing(two[1]):
            poll_until("both have partitions", partial(shared_out, *two), *two)
            poll_until("Java's members too", partial(share_of, address, javas, 2), *two)
            for topic in topics:
                produce(address, topic, [f"{topic} 1 {n}" for n in range(COUNT)])
            poll_until("all is read", partial(missing, *two), *two)
            rebalances = [member.rebalances for member in two]

            gateways[0].kill()
            for topic in topics:
                produce(address, topic, [f"{topic} 2 {n}" for n in range(COUNT)])
            poll_until("all is read", partial(missing, *two, batches=2), *two)
            assert [member.rebalances for member in two] == rebalances
            assert sum(len(member.values) for member in two) == 4 * COUNT
            for member in two:
                member.consumer.commit(asynchronous=False)
        pair = java.result(120)
    assert pair.faults == []
    assert len(pair.values) == len(set(pair.values)) == 4 * COUNT
    for name in (group, javas):
        places = {
            (cluster.name, topic): offsets_at(cluster, name, topic)
            for cluster in (kafka_c1, kafka_c2)
            for topic in topics
        }
        assert places == {
            (kafka_c1.name, apples): 2 * COUNT,
            (kafka_c1.name, bananas): 0,
            (kafka_c2.name, apples): 0,
            (kafka_c2.name, bananas): 2 * COUNT,
        }


def test_a_newer_group_goes_on_without_a_rebalance_when_its_topics_change_places(
    gateway: RunningGateway,
    rules: Rules,
    create_topic: CreateTopic,
    delete_topic: DeleteTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    """The topic that leaves the group's home becomes its own shadow; the shadow of the one that comes becomes it."""
    create_topic(kafka_c2, apples)
    delete_topic(kafka_c1, bananas)
    topics = [apples, bananas]
    with closing(Member(gateway.address, group, topics, **{"group.protocol": "consumer"})) as member:
        poll_until("it has all partitions", lambda: shared_out(member), member)
        rebalances = member.rebalances
        rules.to("c2", [apples])
        gateway.move(rules.to("c1", [bananas]))
        for topic in topics:
            produce(gateway.address, topic, [f"{topic} 1 {n}" for n in range(COUNT)])
        poll_until("all is read", lambda: missing(member), member)
        assert member.rebalances == rebalances
        member.consumer.commit(asynchronous=False)
    assert (offsets_at(kafka_c2, group, apples), offsets_at(kafka_c1, group, bananas)) == (COUNT, COUNT)

    for topic in topics:
        produce(gateway.address, topic, [f"{topic} 2 {n}" for n in range(COUNT)])
    java = run_member("consumer", gateway.address, group, topics, 2 * COUNT, group_protocol="consumer")
    assert java.faults == []
    assert sorted(java.values) == sorted(f"{topic} 2 {n}" for topic in topics for n in range(COUNT))


def test_static_members_keep_their_partitions_over_a_new_gateway_and_their_own_restart(
    gateway: RunningGateway, rules: Rules, start_gateway: StartGateway, apples: str, bananas: str, group: str
) -> None:
    topics = [apples, bananas]

    def static(name: str) -> Member:
        return Member(gateway.address, group, topics, **{"group.instance.id": name, "session.timeout.ms": 45_000})

    first, second = static("first"), static("second")
    try:
        poll_until("both have partitions", lambda: shared_out(first, second), first, second)
        owned = first.partitions, second.partitions
        rebalances = first.rebalances

        gateway.close()
        start_gateway(rules.table, listen=gateway.address)
        second.close()
        second = static("second")
        for topic in topics:
            produce(gateway.address, topic, [f"{topic} {n}" for n in range(COUNT)])
        poll_until("all is read", lambda: missing(first, second), first, second)
        assert (first.partitions, second.partitions) == owned
        assert first.rebalances == rebalances
    finally:
        first.close()
        second.close()
