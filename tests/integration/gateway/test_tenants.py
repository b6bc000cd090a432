"""Two tenants who use the same names at the same time, over two real clusters, with real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from mesh.tenants import Tenant
from tests.clients.console.driver import Tool
from tests.clients.contract import ClientError
from tests.clients.entrances import of_python
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.records import read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.tenants import ANSWER_S, TOPIC, House, two_tenants
from tests.integration.gateway.transacting import LibrdkafkaTransacting, read_committed

GROUP, TRANSACTION = "readers", "writer"


@pytest.fixture
def house(
    rules: Rules, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, start_gateway: StartGateway, tmp_path: Path
) -> Iterator[House]:
    with two_tenants(rules, kafka_c1, kafka_c2, start_gateway, tmp_path) as house:
        yield house


@contextmanager
def reading(house: House, user: str, *topics: str, **more: Any) -> Iterator[Consumer]:
    config = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False, **more}
    consumer = Consumer(house.confluent(user, **config))
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def records(consumer: Consumer, count: int) -> list[tuple[str, str]]:
    """Topic and value."""
    found: list[tuple[str, str]] = []

    def enough() -> bool:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None, message.error()
            found.append((message.topic() or "", (message.value() or b"").decode()))
        return len(found) >= count

    wait_until(enough, f"{count} records are read", ANSWER_S)
    return sorted(found)


NEWER = {"group.protocol": "consumer"}
PROTOCOLS: list[dict[str, Any]] = [{}, {"partition.assignment.strategy": "cooperative-sticky"}, NEWER]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["classic", "cooperative", "consumer"])
@pytest.mark.parametrize("wanted", [TOPIC, "^ord.*"])
def test_the_same_topic_and_group_of_two_tenants_are_two(house: House, protocol: dict[str, Any], wanted: str) -> None:
    for user, values in (("ann", ("a1", "a2", "a3")), ("bob", ("b1", "b2"))):
        house.create(user)
        house.write(user, *values)
    with reading(house, "ann", wanted, **protocol) as ann, reading(house, "bob", wanted, **protocol) as bob:
        assert records(ann, 3) == [(TOPIC, "a1"), (TOPIC, "a2"), (TOPIC, "a3")]
        assert records(bob, 2) == [(TOPIC, "b1"), (TOPIC, "b2")]
        assert {each.topic for each in ann.assignment()} == {TOPIC}
        ann.commit(asynchronous=False)
        bob.commit(asynchronous=False)
        for user, count in (("ann", 3), ("bob", 2)):
            admin = house.admin(user)
            listed = admin.list_consumer_groups(request_timeout=ANSWER_S).result().valid
            assert [each.group_id for each in listed] == [GROUP]
            described = admin.describe_consumer_groups([GROUP], request_timeout=ANSWER_S)[GROUP].result()
            (member,) = described.members
            assert {each.topic for each in member.assignment.topic_partitions} == {TOPIC}
            offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(ANSWER_S)
            parts = offsets.topic_partitions or []
            assert {each.topic for each in parts} == {TOPIC}
            assert sum(each.offset for each in parts if each.offset > 0) == count
    groups = {each.group_id for each in house.admin("root").list_consumer_groups().result(ANSWER_S).valid}
    assert {f"{prefix}{GROUP}" for prefix in house.prefixes} <= groups
    assert house.topics("root") == {f"{prefix}{TOPIC}" for prefix in house.prefixes}
    assert sorted(read_all(house.c1.bootstrap, f"{house.left.prefix}{TOPIC}")) == ["a1", "a2", "a3"]
    assert sorted(read_all(house.c2.bootstrap, f"{house.right.prefix}{TOPIC}")) == ["b1", "b2"]


def test_a_member_takes_over_what_another_has_read(house: House) -> None:
    house.create("ann", partitions=4)
    house.create("bob", partitions=4)
    house.write("ann", *(f"a{number}" for number in range(8)))
    with reading(house, "ann", TOPIC) as one, reading(house, "ann", TOPIC) as two, reading(house, "bob", TOPIC) as bob:
        found: list[int] = []

        def shared() -> bool:
            for each in (one, two, bob):
                each.consume(100, 0.2)
            found[:] = [len(each.assignment()) for each in (one, two, bob)]
            return found == [2, 2, 4]

        wait_until(shared, "two members of one tenant share, and the other tenant has all of its own", ANSWER_S)


def opened(house: House, user: str) -> LibrdkafkaTransacting:
    login = {name.replace(".", "_"): value for name, value in house.confluent(user).items()}
    return LibrdkafkaTransacting(login.pop("bootstrap_servers"), TRANSACTION, **login)


def test_the_same_transactional_id_of_two_tenants_is_two(house: House) -> None:
    for user in ("ann", "bob"):
        house.create(user, partitions=1)
    one, other = opened(house, "ann"), opened(house, "bob")
    for producer in (one, other):
        producer.init()
        producer.begin()
    one.send(TOPIC, "a1")
    other.send(TOPIC, "b1")
    assert one.flush() == other.flush() == []
    listed = house.transactions("ann")
    assert {each.split()[0] for each in listed} == {TRANSACTION}
    assert {f"{prefix}{TRANSACTION}" for prefix in house.prefixes} <= {
        each.split()[0] for each in house.transactions("root")
    }
    one.abort()
    other.commit()
    one.begin()
    one.send(TOPIC, "a2")
    one.commit()
    assert read_committed(house.c1.bootstrap, f"{house.left.prefix}{TOPIC}") == ["a2"]
    assert read_committed(house.c2.bootstrap, f"{house.right.prefix}{TOPIC}") == ["b1"]
    for producer in (one, other):
        producer.close()


async def test_aiokafka_reads_and_writes_as_two_tenants(house: House) -> None:
    for user in ("ann", "bob"):
        await asyncio.to_thread(house.create, user)

    async def both(user: str) -> list[str]:
        login = of_python(house.entrance(user))
        producer = AIOKafkaProducer(**login, transactional_id=TRANSACTION)
        async with producer, producer.transaction():
            for number in range(4):
                await producer.send_and_wait(TOPIC, f"{user}-{number}".encode())
        consumer = AIOKafkaConsumer(TOPIC, **login, group_id=GROUP, auto_offset_reset="earliest")
        async with consumer:
            found = [await asyncio.wait_for(consumer.getone(), ANSWER_S) for _ in range(4)]
            await consumer.commit()
            assert {each.topic for each in found} == {TOPIC}
            return sorted((each.value or b"").decode() for each in found)

    found = await asyncio.gather(both("ann"), both("bob"))
    assert list(found) == [[f"{user}-{number}" for number in range(4)] for user in ("ann", "bob")]


def test_the_tools_of_kafka_see_one_tenant(house: House) -> None:
    for user in ("ann", "bob"):
        house.java(user, Tool.TOPICS, "--create", "--topic", TOPIC, "--partitions", "1")
        house.java(user, Tool.CONSOLE_PRODUCER, "--topic", TOPIC, stdin=f"from {user}\n")
    for user in ("ann", "bob"):
        printed = house.java(
            user, Tool.CONSOLE_CONSUMER, "--topic", TOPIC, "--from-beginning", "--max-messages", "1", "--group", GROUP
        )
        assert printed.split("\n")[0] == f"from {user}"
        assert house.java(user, Tool.TOPICS, "--list").split() == [TOPIC]
        assert house.java(user, Tool.CONSUMER_GROUPS, "--list").split() == [GROUP]
        described = house.java(user, Tool.CONSUMER_GROUPS, "--describe", "--group", GROUP)
        assert f"{GROUP} " in described
        assert TOPIC in described
        assert not any(prefix in described for prefix in house.prefixes)
    house.java("ann", Tool.CONSUMER_GROUPS, "--delete", "--group", GROUP)
    house.java("ann", Tool.TOPICS, "--delete", "--topic", TOPIC)
    wait_until(lambda: not house.topics("ann"), "the topic is gone", ANSWER_S)
    assert house.topics("bob") == {TOPIC}
    assert house.java("bob", Tool.CONSUMER_GROUPS, "--list").split() == [GROUP]
    with pytest.raises(ClientError, match="exit code 1"):
        house.java("ann", Tool.ACLS, "--list")
    assert TOPIC not in house.java("ann", Tool.LOG_DIRS, "--describe")


def test_what_is_not_the_tenants_does_not_exist(house: House) -> None:
    house.create("bob")
    house.create("ann", "own")
    ann = house.admin("ann")
    assert house.topics("ann") == {"own"}
    named = f"{house.right.prefix}{TOPIC}"
    for topic in (TOPIC, named, "__consumer_offsets"):
        with pytest.raises(KafkaException) as gone:
            ann.delete_topics([topic])[topic].result(ANSWER_S)
        assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert house.left.prefix not in str(gone.value)
    resource = ConfigResource(ResourceType.TOPIC, named)
    with pytest.raises(KafkaException) as gone:
        ann.describe_configs([resource])[resource].result(ANSWER_S)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(ann.list_topics(timeout=ANSWER_S).brokers))))
    with pytest.raises(KafkaException) as refused:
        ann.describe_configs([broker])[broker].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    own = ConfigResource(ResourceType.TOPIC, "own")
    assert ann.describe_configs([own])[own].result(ANSWER_S)["cleanup.policy"].value == "delete"


def test_a_name_that_is_too_long_with_the_prefix_is_explained(house: House) -> None:
    name = "x" * 240
    with pytest.raises(KafkaException) as refused:
        house.admin("ann").create_topics([NewTopic(name, 1, 1)])[name].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
    assert f"{249 - len(house.left.prefix)} are possible for this client" in refused.value.args[0].str()


def test_a_topic_that_is_made_by_its_first_record_has_the_prefix(house: House) -> None:
    house.write("ann", "first", topic="made")
    assert read_all(house.c1.bootstrap, f"{house.left.prefix}made") == ["first"]


def test_a_shared_topic_is_read_by_its_full_name_and_written_if_the_tenant_may(house: House) -> None:
    shared, open_to_all = f"{house.right.prefix}rates", f"{house.right.prefix}events"
    for topic in ("rates", "events"):
        house.create("bob", topic, 1)
    house.write("bob", "1.08", topic="rates")
    house.follow(Tenant("left", house.left.prefix, ("User:ann",), {shared: False, open_to_all: True}), house.right)
    assert house.topics("ann") == {shared, open_to_all}
    with reading(house, "ann", shared) as ann:
        assert records(ann, 1) == [(shared, "1.08")]
    house.write("ann", "by ann", topic=open_to_all)
    assert read_all(house.c2.bootstrap, open_to_all) == ["by ann"]
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        house.write("ann", "no", topic=shared)
    with pytest.raises(KafkaException) as refused:
        house.admin("ann").delete_topics([shared])[shared].result(ANSWER_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    groups = house.admin("root").list_consumer_groups().result(ANSWER_S).valid
    assert f"{house.left.prefix}{GROUP}" in {each.group_id for each in groups}


def test_a_client_becomes_one_of_a_tenant_while_it_runs(house: House) -> None:
    house.follow()
    assert not [each for each in house.topics("ann") if each.startswith(house.prefixes)]
    producer = Producer(house.confluent("ann", **{"linger.ms": 0}))
    full = f"{house.left.prefix}{TOPIC}"

    def ends(topic: str) -> KafkaError | None:
        found: list[KafkaError | None] = []
        producer.produce(topic, "x", on_delivery=lambda error, _: found.append(error))
        assert producer.flush(ANSWER_S) == 0
        return found[0]

    assert ends(full) is None
    house.follow(house.left, house.right)
    assert ends(TOPIC) is None, "it has the same topic by its own name now"
    assert read_all(house.c1.bootstrap, full) == ["x", "x"]


def test_an_offset_that_a_tenant_sets_is_its_own(house: House) -> None:
    for user in ("ann", "bob"):
        house.create(user, partitions=1)
        house.write(user, "1", "2", "3")
    for user, offset in (("ann", 2), ("bob", 1)):
        request = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0, offset)])
        house.admin(user).alter_consumer_group_offsets([request])[GROUP].result(ANSWER_S)
    for user, left in (("ann", "3"), ("bob", "2")):
        with reading(house, user, TOPIC) as consumer:
            assert records(consumer, 1)[0] == (TOPIC, left)


def test_a_share_group_of_the_same_name_is_one_of_each_tenant(house: House) -> None:
    for user in ("ann", "bob"):
        house.create(user, partitions=1)
        config = ("--alter", "--entity-type", "groups", "--entity-name", GROUP)
        house.java(user, Tool.CONFIGS, *config, "--add-config", "share.auto.offset.reset=earliest")
        house.write(user, f"from {user}")
    for user in ("ann", "bob"):
        read = ("--topic", TOPIC, "--group", GROUP, "--max-messages", "1", "--timeout-ms", "60000")
        assert house.java(user, Tool.CONSOLE_SHARE_CONSUMER, *read).split("\n")[0] == f"from {user}"
        assert house.java(user, Tool.SHARE_GROUPS, "--list").split() == [GROUP]
        described = house.java(user, Tool.SHARE_GROUPS, "--describe", "--group", GROUP)
        assert TOPIC in described
        assert not any(prefix in described for prefix in house.prefixes)
