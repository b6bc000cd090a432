"""A cluster of 2.8 beside one of today: clients of both times use both, and are told the truth about what they can."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from mesh.compression import Codec
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.older_kafka import OlderKafka
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read, read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_old_clients import THREE, OldClient
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1

ANSWER_S = 60.0


@pytest.fixture(params=["today", "2.8"])
def gateway(
    request: pytest.FixtureRequest,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    older_kafka: OlderKafka,
    apples: str,
    bananas: str,
) -> Iterator[RunningGateway]:
    """Apples live on the cluster of today, bananas on the one of 2.8; either of them is the mesh's home."""
    create_topic(kafka_c1, apples)
    create_topic(older_kafka, bananas)
    clusters = {"today": kafka_c1.bootstrap, "2.8": older_kafka.bootstrap}
    home = {name: address for name, address in clusters.items() if name == request.param}
    rules = Rules(home | clusters)
    rules.to("today", [apples])
    yield start_gateway(rules.to("2.8", [bananas, f"{bananas}-new"]))


def test_clients_of_today_use_both(
    gateway: RunningGateway, kafka_c1: KafkaCluster, older_kafka: OlderKafka, apples: str, bananas: str
) -> None:
    owners: dict[str, KafkaCluster] = {apples: kafka_c1, bananas: older_kafka}
    for topic, owner in owners.items():
        values = [f"{topic} {n}" for n in range(50)]
        produce(gateway.address, topic, values, **{"enable.idempotence": True, "compression.type": "zstd"})
        assert sorted(read_all(owner.bootstrap, topic)) == sorted(values)
    group = {"bootstrap.servers": gateway.address, "group.id": f"group-{apples}", "auto.offset.reset": "earliest"}
    with closing(Consumer({**group, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([apples, bananas])
        assert len(read(consumer, 100)) == 100
        consumer.commit(asynchronous=False)
    with closing(Consumer(group)) as consumer:
        kept = consumer.committed([TopicPartition(t, p) for t in owners for p in range(3)], timeout=ANSWER_S)
        assert sum(max(0, place.offset) for place in kept) == 100
        ends = [
            consumer.get_watermark_offsets(TopicPartition(t, p), timeout=ANSWER_S)[1] for t in owners for p in range(3)
        ]
        assert sum(ends) == 100
    admin = AdminClient({"bootstrap.servers": gateway.address})
    new = f"{bananas}-new"
    admin.create_topics([NewTopic(new, 2, 1)])[new].result(ANSWER_S)
    setting = ConfigResource(
        ConfigResource.Type.TOPIC,
        new,
        incremental_configs=[ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)],
    )
    for future in admin.incremental_alter_configs([setting]).values():
        future.result(ANSWER_S)
    admin.delete_topics([new])[new].result(ANSWER_S)


def test_old_clients_use_both(gateway: RunningGateway, apples: str, bananas: str) -> None:
    with closing(OldClient(gateway.address)) as client:
        expected = 0
        for version, sets in ((0, MAGIC_0), (2, MAGIC_1)):
            for codec in (Codec.NONE, Codec.LZ4):
                told = client.produce(version, (apples, sets[codec]), (bananas, sets[codec]))
                assert told == [(apples, 0, expected), (bananas, 0, expected)]
                expected += 3
        for version in range(4):
            for topic in (apples, bananas):
                assert client.read(version, topic, 12) == [(offset, *THREE[offset % 3]) for offset in range(12)]


def test_what_an_older_broker_keeps_in_old_formats_is_read(
    gateway: RunningGateway, older_kafka: OlderKafka, bananas: str
) -> None:
    """Such a broker gives message sets to clients of every version, and each client what it can read."""
    admin = AdminClient({"bootstrap.servers": older_kafka.bootstrap})
    setting = ConfigEntry("message.format.version", "0.10.0", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, bananas, incremental_configs=[setting])
    for future in admin.incremental_alter_configs([topic]).values():
        future.result(ANSWER_S)
    with closing(OldClient(gateway.address)) as client:
        client.produce(2, (bananas, MAGIC_1[Codec.GZIP]))
        producer = Producer({"bootstrap.servers": gateway.address})
        producer.produce(bananas, b"today", b"k", 0)
        assert producer.flush(ANSWER_S) == 0
        for version in range(4):
            rows = client.read(version, bananas, 4)
            assert rows == [(offset, *THREE[offset]) for offset in range(3)] + [(3, b"k", b"today")]
    assert "today" in read_all(gateway.address, bananas)


def test_nothing_is_offered_that_one_of_them_can_not_do(gateway: RunningGateway) -> None:
    with closing(OldClient(gateway.address)) as client:
        told = client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    offered = {api.api_key: (api.min_version, api.max_version) for api in told.api_keys}
    assert offered[ApiKey.LIST_OFFSETS] == (0, 6), "asked of several clusters at once: what 2.8 speaks"
    assert offered[ApiKey.PRODUCE][0] == offered[ApiKey.FETCH][0] == offered[ApiKey.OFFSET_FETCH][0] == 0
    assert offered[ApiKey.CREATE_TOPICS] == (0, 7), "each topic has one owner"
