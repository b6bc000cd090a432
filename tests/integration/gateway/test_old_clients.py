"""Clients of 0.8 to 0.10 on brokers of today: their own bytes through a gateway to two real clusters, and back."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mesh.compression import Allowance, Codec
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_response_header
from services.gateway.wire.legacy.message_sets import read_message_set
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.create_topics import CreatableTopic
from services.gateway.wire.messages.describe_configs import DescribeConfigsResource
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic, PartitionData
from services.gateway.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from services.gateway.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from services.gateway.wire.messages.offset_fetch import OffsetFetchRequestTopic
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from services.gateway.wire.schema import Struct, api_key_of
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.transacting import await_markers
from tests.unit.gateway.wire.old_client_bytes import MAGIC_0, MAGIC_1

R = TypeVar("R", bound=Struct)
Row = tuple[int, bytes | None, bytes | None]

ANSWER_S = 60.0
PLENTY = 1 << 20
T = 1_600_000_000_000
THREE: list[tuple[bytes | None, bytes | None]] = [(b"k", b"apple"), (None, b"pear"), (b"gone", None)]
"""What each message set of `old_client_bytes` holds."""


class OldClient:
    """Asks in whatever version it is told, and never for ApiVersions by itself."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)
        self._stream = self._socket.makefile("rb")

    def send(self, message: Struct, version: int) -> None:
        self._socket.sendall(encode_request(message, version, 7, "old"))

    def ask(self, message: Struct, version: int, answer: type[R]) -> R:
        self.send(message, version)
        size = self._stream.read(SIZE_BYTES)
        frame = size + self._stream.read(int.from_bytes(size, "big"))
        header = parse_response_header(frame, SIZE_BYTES, len(frame), api_key_of(message), version)
        assert header.correlation_id == 7
        return decode(answer, version, frame, header.body_offset)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    # --- what the tests do -------------------------------------------------------------------------------------------

    def produce(self, version: int, *sets: tuple[str, bytes], acks: int = -1) -> list[tuple[str, int, int]]:
        """To partition 0 of each topic. Topic, error code, offset."""
        topics = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)]) for topic, records in sets]
        message = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)
        if acks == 0:
            self.send(message, version)
            return []
        told = self.ask(message, version, ProduceResponse)
        return [(t.name, p.error_code, p.base_offset) for t in told.responses for p in t.partition_responses]

    def fetch(self, version: int, *positions: tuple[str, int], max_bytes: int = PLENTY) -> dict[str, PartitionData]:
        topics = [
            FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)])
            for topic, offset in positions
        ]
        told = self.ask(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), version, FetchResponse)
        return {topic.topic: topic.partitions[0] for topic in told.responses}

    def read(self, version: int, topic: str, count: int, offset: int = 0, max_bytes: int = PLENTY) -> list[Row]:
        """So many records from an offset on."""
        found: list[Row] = []
        while len(found) < count:
            part = self.fetch(version, (topic, offset), max_bytes=max_bytes)[topic]
            assert part.error_code == 0
            rows = rows_of(bytes(part.records or b""))
            assert rows, f"nothing at offset {offset}"
            found += rows
            offset = rows[-1][0] + 1
        return found


def rows_of(messages: bytes) -> list[Row]:
    return [
        (r.offset, None if r.key is None else bytes(r.key), None if r.value is None else bytes(r.value))
        for group in read_message_set(messages, 0, len(messages), Allowance(PLENTY))
        for r in group.records
    ]


@pytest.fixture
def old_client(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
) -> Iterator[OldClient]:
    """Of a gateway with apples on c1 and bananas on c2; the tests use partition 0 of each."""
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    gateway = start_gateway(rules.to("c2", [bananas, f"{bananas}-new"]))
    client = OldClient(gateway.address)
    yield client
    client.close()


def stored(cluster: KafkaCluster, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Time, key and value of records as a client of today reads them from the cluster itself."""
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    with closing(Consumer({**config, "check.crcs": True})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[int, bytes | None, bytes | None]] = []
        deadline = time.monotonic() + ANSWER_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for message in consumer.consume(count, 0.2):
                assert message.error() is None, message.error()
                found.append((message.timestamp()[1], message.key(), message.value()))
        return found


def test_what_old_clients_write_in_any_codec_is_stored_and_read_by_all(
    old_client: OldClient, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, apples: str, bananas: str
) -> None:
    assert {t.name for t in old_client.ask(MetadataRequest([]), 0, MetadataResponse).topics} == {apples, bananas}
    expected = 0
    for version, sets in ((0, MAGIC_0), (1, MAGIC_0), (2, MAGIC_1)):
        for message_set in sets.values():
            told = old_client.produce(version, (bananas, message_set), (apples, message_set))
            assert told == [(bananas, 0, expected), (apples, 0, expected)]
            expected += 3
    old_client.produce(2, (apples, MAGIC_1[Codec.LZ4]), (bananas, MAGIC_1[Codec.LZ4]), acks=0)
    assert old_client.produce(1, (apples, MAGIC_0[Codec.NONE]))[0][1:] == (0, expected + 3), (
        "after the one without acks"
    )

    timeless, timed = [-1] * 3, [T, T + 2, T + 1]
    found = stored(kafka_c2, bananas, expected + 3)
    assert [(key, value) for _, key, value in found] == THREE * 13
    assert [max(time, -1) for time, _, _ in found] == timeless * 8 + timed * 5
    assert len(stored(kafka_c1, apples, expected + 6)) == 42

    for version in range(4):
        rows = old_client.read(version, bananas, expected + 3)
        assert rows == [(offset, *THREE[offset % 3]) for offset in range(expected + 3)]
    in_the_middle = old_client.read(1, bananas, expected - 1, offset=4, max_bytes=1)
    assert [offset for offset, _, _ in in_the_middle] == list(range(4, expected + 3)), "one message at least, each time"


def test_what_clients_of_today_write_is_read_by_old_ones(
    old_client: OldClient, kafka_c1: KafkaCluster, apples: str
) -> None:
    """zstd, headers, aborted transactions: their records are read, as by every old client, their markers are not."""
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap, "compression.type": "zstd", "linger.ms": 50})
    for n in range(50):
        producer.produce(apples, f"value {n}" * 20, f"key {n}", 0, headers={"h": b"1"})
    assert producer.flush(ANSWER_S) == 0
    transactional = Producer({"bootstrap.servers": kafka_c1.bootstrap, "transactional.id": apples})
    transactional.init_transactions(ANSWER_S)
    for commit in (False, True, False):
        transactional.begin_transaction()
        transactional.produce(apples, f"committed: {commit}", partition=0)
        transactional.flush(ANSWER_S)
        transactional.commit_transaction(ANSWER_S) if commit else transactional.abort_transaction(ANSWER_S)
    await_markers(kafka_c1.bootstrap, apples)
    end = 50 + 3 + 3
    for version in (1, 3):
        rows = old_client.read(version, apples, 53)
        assert [(key, value) for _, key, value in rows[:50]] == [
            (f"key {n}".encode(), (f"value {n}" * 20).encode()) for n in range(50)
        ]
        assert [value for _, _, value in rows[50:]] == [b"committed: False", b"committed: True", b"committed: False"]
    began = time.monotonic()
    last = old_client.fetch(1, (apples, end - 1))[apples]
    assert (last.error_code, last.high_watermark, bytes(last.records or b"")) == (0, end, b"")
    assert time.monotonic() - began > 0.3, "behind the last marker the gateway waits, as the client wanted to"


def test_damaged_messages_are_refused_alone(old_client: OldClient, apples: str, bananas: str) -> None:
    damaged = MAGIC_0[Codec.NONE][:-1] + b"x"
    assert old_client.produce(1, (apples, damaged), (bananas, MAGIC_0[Codec.GZIP])) == [
        (apples, 2, -1),
        (bananas, 0, 0),
    ]


def test_offsets_are_listed_and_kept_for_old_clients(old_client: OldClient, apples: str, bananas: str) -> None:
    old_client.produce(2, (apples, MAGIC_1[Codec.NONE]), (bananas, MAGIC_1[Codec.NONE]))
    times = {apples: (-1, T + 1, T + 5000), bananas: (-2, T, T + 1)}
    found = {}
    for topic, asked in times.items():
        for at in asked:
            wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=at, max_num_offsets=1)])
            told = old_client.ask(ListOffsetsRequest(-1, topics=[wanted]), 0, ListOffsetsResponse)
            found[topic, at] = [(p.error_code, p.old_style_offsets) for t in told.topics for p in t.partitions]
    assert {key: value for key, [(error, value)] in found.items() if not error} == {
        (apples, -1): [3],
        (apples, T + 1): [1],
        (apples, T + 5000): [3],
        (bananas, -2): [0],
        (bananas, T): [0],
        (bananas, T + 1): [1],
    }
    commit = OffsetCommitRequest(
        f"group-{apples}",
        topics=[
            OffsetCommitRequestTopic(
                topic, partitions=[OffsetCommitRequestPartition(0, committed_offset=2, committed_metadata="here")]
            )
            for topic in (apples, bananas)
        ],
    )
    wanted_offsets = OffsetFetchRequest(commit.group_id, [OffsetFetchRequestTopic(t, [0]) for t in (apples, bananas)])
    before = old_client.ask(wanted_offsets, 0, OffsetFetchResponse)
    assert [(p.committed_offset, p.error_code) for t in before.topics for p in t.partitions] == [(-1, 3)] * 2
    for version in (0, 1):
        committed = old_client.ask(commit, version, OffsetCommitResponse)
        assert [p.error_code for t in committed.topics for p in t.partitions] == [0, 0]
        kept = old_client.ask(wanted_offsets, version, OffsetFetchResponse)
        found_offsets = [(p.committed_offset, p.metadata, p.error_code) for t in kept.topics for p in t.partitions]
        assert found_offsets == [(2, "here", 0)] * 2


def test_topics_are_administrated_by_old_clients(
    old_client: OldClient, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, bananas: str
) -> None:
    new = f"{bananas}-new"
    created = old_client.ask(CreateTopicsRequest([CreatableTopic(new, 2, 1)], 10_000), 0, CreateTopicsResponse)
    assert [t.error_code for t in created.topics] == [0]
    on_c2 = AdminClient({"bootstrap.servers": kafka_c2.bootstrap})
    assert len(on_c2.list_topics(new, timeout=ANSWER_S).topics[new].partitions) == 2
    again = old_client.ask(CreateTopicsRequest([CreatableTopic(new, 2, 1)], 10_000), 1, CreateTopicsResponse)
    assert [t.error_code for t in again.topics] == [36]
    asked = DescribeConfigsRequest([DescribeConfigsResource(2, new, ["retention.ms", "cleanup.policy"])])
    (described,) = old_client.ask(asked, 0, DescribeConfigsResponse).results
    assert (described.error_code, {c.name for c in described.configs}) == (0, {"retention.ms", "cleanup.policy"})
    deleted = old_client.ask(DeleteTopicsRequest(topic_names=[new], timeout_ms=10_000), 0, DeleteTopicsResponse)
    assert [(t.name, t.error_code) for t in deleted.responses] == [(new, 0)]


def test_all_of_it_is_offered(old_client: OldClient) -> None:
    offered = old_client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    lowest = {api.api_key: api.min_version for api in offered.api_keys}
    assert {lowest[key] for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 32)} == {0}
