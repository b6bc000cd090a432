"""The checker of torn transactions finds those that are planted, and takes nothing else for torn."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.torn_transactions import Twin, TwinReader
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import ANSWER_S, LibrdkafkaTransacting

SOURCES = 2
PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Copies:
    """A topic on each cluster, and a reader through the mesh."""

    on_c1: str
    on_c2: str
    c1: KafkaCluster
    c2: KafkaCluster
    gateway: RunningGateway
    reader: TwinReader

    def whole(self, *ids: int) -> None:
        """One transaction through the mesh."""
        producer = LibrdkafkaTransacting(self.gateway.address, self.on_c1)
        producer.init()
        producer.begin()
        for topic in (self.on_c1, self.on_c2):
            producer.send(topic, *map(str, ids))
        producer.commit()
        producer.close()

    def half(self, cluster: KafkaCluster, topic: str, id_: int, *, commit: bool) -> None:
        """Writes the part of a transaction on one cluster, around the mesh."""
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}/{id_}"})
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        producer.produce(topic, str(id_), str(id_))
        assert producer.flush(ANSWER_S) == 0
        if commit:
            producer.commit_transaction(ANSWER_S)
        else:
            producer.abort_transaction(ANSWER_S)

    def await_seen(self, *ids: int) -> None:
        def are_seen() -> bool:
            return all(set(ids) <= {twin.id_ for twin in seen} for seen in self.reader.twins.seen.values())

        wait_until(are_seen, f"{ids} are read from both topics")


@pytest.fixture
def copies(
    rules: Rules, start_gateway: StartGateway, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic
) -> Iterator[Copies]:
    name = f"torn-{uuid.uuid4().hex[:8]}"
    topics = (f"{name}-c1", f"{name}-c2")
    for cluster_name, cluster, topic in zip(("c1", "c2"), (kafka_c1, kafka_c2), topics, strict=True):
        create_topic(cluster, topic, 1)
        rules.to(cluster_name, [topic])
    gateway = start_gateway(rules.table)
    reader = TwinReader(dict.fromkeys(topics, gateway.address), topics, partitions=1, sources=SOURCES)
    reader.twins.patience_s = PATIENCE_S
    with reader:
        yield Copies(*topics, kafka_c1, kafka_c2, gateway, reader)
    assert reader.failure is None


def test_a_transaction_that_one_cluster_aborted_is_found_when_later_ones_are_read(copies: Copies) -> None:
    copies.whole(1, 2)
    copies.half(copies.c1, copies.on_c1, 3, commit=True)
    copies.half(copies.c2, copies.on_c2, 3, commit=False)
    copies.whole(4, 5)
    copies.await_seen(1, 2, 4, 5)
    wait_until(lambda: copies.reader.twins.torn == {Twin(1, 3)}, "the torn one is found")


def test_a_transaction_that_one_cluster_lacks_is_found_when_nothing_comes_after_it(copies: Copies) -> None:
    copies.whole(1)
    copies.half(copies.c2, copies.on_c2, 2, commit=True)
    wait_until(lambda: copies.reader.twins.torn == {Twin(0, 2)}, "the torn one is found")


def test_a_transaction_that_another_one_hides_on_one_cluster_is_not_torn(copies: Copies) -> None:
    hiding = Producer({"bootstrap.servers": copies.c2.bootstrap, "transactional.id": f"{copies.on_c2}/hides"})
    hiding.init_transactions(ANSWER_S)
    hiding.begin_transaction()
    hiding.produce(copies.on_c2, "99", "99")
    assert hiding.flush(ANSWER_S) == 0
    copies.whole(1, 2)
    wait_until(lambda: len(copies.reader.twins.seen[copies.on_c1]) == 2, "one half is read")
    assert not copies.reader.twins.seen[copies.on_c2]
    hiding.abort_transaction(ANSWER_S)
    copies.await_seen(1, 2)
    copies.whole(3)
    copies.await_seen(3)
    assert copies.reader.twins.torn == set()
