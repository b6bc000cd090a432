"""One address in front of two real clusters: what librdkafka clients produce and consume, and where it is stored."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from services.gateway.downstream.awaited import Awaited
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read, read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.stored import assert_stored_once

COUNT = 500
PROMPTLY_S = 45.0
"""Less than one request to a cluster that does not answer may take, and enough for a busy machine."""


@pytest.mark.parametrize(
    "config",
    [
        {"enable.idempotence": True},
        {"acks": "1", "compression.type": "gzip"},
        {"acks": "0"},
        {"acks": "all", "compression.type": "zstd", "batch.size": 2_000_000, "linger.ms": 100},
    ],
    ids=lambda config: "-".join(map(str, config.values())),
)
def test_records_arrive_on_the_owner_and_come_back(
    config: dict[str, object],
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    for topic, cluster in ((apples, kafka_c1), (bananas, kafka_c2)):
        values = [f"{topic} {n} {'x' * (n % 300)}" for n in range(COUNT)]
        producer = produce(gateway.address, topic, values, **config)
        stored = wait_until(partial(_all_of, cluster.bootstrap, topic), "all are stored, acknowledged or not")
        del producer  # no sooner: see there
        assert_stored_once(stored, values)
        assert sorted(read_all(gateway.address, topic)) == sorted(values)


def _all_of(bootstrap: str, topic: str) -> list[str] | None:
    return found if len(found := read_all(bootstrap, topic)) >= COUNT else None


def test_clients_see_one_cluster_with_only_the_routed_topics(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]))
    seen = AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=20)
    assert set(seen.topics) == {apples}
    assert sorted(seen.brokers) == [101, 102]
    assert {f"{b.host}:{b.port}" for b in seen.brokers.values()} == {gateway.address}


def test_an_unrouted_topic_is_unknown_and_nobody_is_disconnected(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    unique_name: Callable[[str], str],
) -> None:
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]))
    nowhere = unique_name("nowhere")
    producer = Producer({"bootstrap.servers": gateway.address, "topic.metadata.propagation.max.ms": 3000})
    faults: list[KafkaError | None] = []
    producer.produce(nowhere, b"x", on_delivery=lambda error, _: faults.append(error))
    producer.produce(apples, b"y")
    assert producer.flush(60) == 0
    assert [fault and fault.name() for fault in faults] in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"])
    assert read_all(gateway.address, apples) == ["y"]
    for cluster in (kafka_c1, kafka_c2):
        assert nowhere not in AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20).topics


def test_a_group_reads_topics_of_both_clusters_and_resumes_where_it_committed(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas]))
    config = {"bootstrap.servers": gateway.address, "group.id": group, "auto.offset.reset": "earliest"}
    for batch in range(2):
        expected = {f"{topic} {batch} {n}" for topic in (apples, bananas) for n in range(100)}
        for topic in (apples, bananas):
            produce(gateway.address, topic, sorted(v for v in expected if v.startswith(topic)))
        with closing(Consumer({**config, "enable.auto.commit": False})) as consumer:
            consumer.subscribe([apples, bananas])
            assert sorted(read(consumer, len(expected))) == sorted(expected)
            consumer.commit(asynchronous=False)


def test_a_dead_cluster_leaves_the_other_as_it_was(
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    rules = Rules({"c1": kafka_c1.bootstrap, "dead": "127.0.0.1:1"})
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("dead", [bananas]), request_timeout_s=2 * PROMPTLY_S)
    began = time.monotonic()
    produce(gateway.address, apples, [str(n) for n in range(COUNT)])
    assert len(read_all(gateway.address, apples)) == COUNT
    assert set(AdminClient({"bootstrap.servers": gateway.address}).list_topics(timeout=PROMPTLY_S).topics) == {apples}
    assert time.monotonic() - began < PROMPTLY_S
    config = {"bootstrap.servers": gateway.address, "group.id": group, "auto.offset.reset": "earliest"}
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([apples, bananas])
        assert len(read(consumer, COUNT)) == COUNT


def test_a_restarted_gateway_that_control_waits_for_serves_from_its_last_table(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    tmp_path: Path,
) -> None:
    """No router hears a goodbye of this gateway, so control moves no topic without the gateway."""
    create_topic(kafka_c1, apples)
    Awaited(tmp_path / "gateway", "gateway-test").write()
    first = start_gateway(rules.to("c1", [apples]), router_addresses=("127.0.0.1:1",))
    produce(first.address, apples, ["before"])
    first.close()
    second = start_gateway(None, router_addresses=("127.0.0.1:1",), listen=first.address)
    produce(second.address, apples, ["after"])
    assert sorted(read_all(second.address, apples)) == ["after", "before"]
