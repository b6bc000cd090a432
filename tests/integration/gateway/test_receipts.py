"""Receipts of real clients: who was sent which offsets, in the reports that a gateway writes to the home cluster."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from mesh.rpc import traffic
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.traffic.receipts import Range, union, unpacked
from mesh.user_files import Users, written
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import FetchRequest
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.traffic import ToldTraffic
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce, read, read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.sharing import set_up
from tests.integration.gateway.transacting import LibrdkafkaTransacting, await_markers, read_committed

COUNT = 300
PASSWORD = "Tr0ub4dor&3"
ANONYMOUS = "User:ANONYMOUS"
MIB = 1 << 20


def receipts(told: ToldTraffic, topic: str, **names: object) -> list[traffic.SentOffsets]:
    """Those of the topic with these names, of all reports."""
    sent = (each for report in told.reports() for each in report.sent if each.topic == topic)
    return [each for each in sent if all(getattr(each, name) == names[name] for name in names)]


def ranges(found: Iterable[traffic.SentOffsets]) -> list[Range]:
    return union(one for each in found for one in unpacked(each.ranges))


def perhaps(found: Iterable[traffic.SentOffsets]) -> list[Range]:
    return union((each.perhaps[0], each.perhaps[1]) for each in found if each.perhaps)


def test_two_principals_with_two_clients_have_receipts_of_what_each_has_read(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    tmp_path: Path,
    apples: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    produce(kafka_c1.bootstrap, apples, map(str, range(COUNT)), **{"batch.num.messages": 100})
    users, verifiers = tmp_path / "users.yaml", {each: Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES}
    users.write_bytes(written(Users({"alice": verifiers, "bob": verifiers}, b"s" * 32)))
    gateway = start_gateway(
        rules.to("c1", [apples]),
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        sasl_mechanisms=("SCRAM-SHA-256",),
        users_file=users,
        **told_traffic.settings,
    )
    address = gateway.address.rpartition("//")[2]
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": PASSWORD}
    config = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "client.id": "shop-1"}
    with closing(Consumer(config | login | {"sasl.username": "alice"})) as alice:
        alice.subscribe([apples])
        assert len(read(alice, COUNT)) == COUNT

    async def bob_reads_a_part() -> int:
        bob = AIOKafkaConsumer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="bob",
            sasl_plain_password=PASSWORD,
            client_id="looks",
        )
        await bob.start()
        try:
            bob.assign([Place(apples, 0)])
            bob.seek(Place(apples, 0), COUNT - 1)
            return int((await bob.getone()).offset)
        finally:
            await bob.stop()

    assert asyncio.run(bob_reads_a_part()) == COUNT - 1
    gateway.close()

    of_alice = receipts(told_traffic, apples, principal="User:alice", client="shop-1", group=group, partition=0)
    assert (ranges(of_alice), perhaps(of_alice)) == ([(0, COUNT)], [])
    of_bob = receipts(told_traffic, apples, principal="User:bob", client="looks", group="")
    ((first, end),) = ranges(of_bob)
    assert first > 0, "the batch with that record, and none before it"
    assert end == COUNT
    assert len(of_alice) + len(of_bob) == len(receipts(told_traffic, apples))
    (topic_id,) = {each.topic_id for each in (*of_alice, *of_bob)}
    assert {each.cluster for each in (*of_alice, *of_bob)} == {"c1"}
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    described = admin.describe_topics(TopicCollection([apples]))[apples].result(30)
    number = (described.topic_id.get_most_significant_bits() % 2**64) << 64
    number |= described.topic_id.get_least_significant_bits() % 2**64
    assert topic_id == number.to_bytes(16, "big")


def test_records_of_aborted_transactions_are_sent_and_those_of_open_ones_are_not(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), **told_traffic.settings)
    with closing(LibrdkafkaTransacting(kafka_c1.bootstrap, group)) as producer:
        producer.init()
        for value, end in (("taken back", producer.abort), ("kept", producer.commit)):
            producer.begin()
            producer.send(apples, value)
            producer.flush()
            end()
            await_markers(kafka_c1.bootstrap, apples)
        producer.begin()
        producer.send(apples, "not yet")
        producer.flush()
        assert read_committed(gateway.address, apples, left_open=True) == ["kept"]
        producer.abort()
    gateway.close()

    found = receipts(told_traffic, apples)
    assert ranges(found) == [(0, 4)], "two records and their markers, and not the record behind them"
    assert perhaps(found) == []


def test_a_large_answer_that_passes_has_a_receipt_and_one_that_was_cut_off_perhaps(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    count, large = 60, "x" * 300_000
    produce(kafka_c1.bootstrap, apples, (f"{number} {large}" for number in range(count)), **{"batch.size": 1})
    gateway = start_gateway(rules.to("c1", [apples]), **told_traffic.settings)
    reader = {"client.id": "whole", "fetch.max.bytes": 50 * MIB, "max.partition.fetch.bytes": 40 * MIB}
    assert len(read_all(gateway.address, apples, **reader, **{"receive.message.max.bytes": 60 * MIB})) == count

    host, _, port = gateway.address.rpartition(":")
    message = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * MIB,
        topics=[FetchTopic(apples, partitions=[FetchPartition(0, partition_max_bytes=40 * MIB)])],
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.settimeout(30)
        warm = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=message.topics)
        client.sendall(encode_request(warm, 12, 1, "cut"))
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
        while size:
            size -= len(client.recv(min(size, 65_536)))
        client.sendall(encode_request(message, 12, 2, "cut"))
        client.recv(5 * 4096, socket.MSG_WAITALL)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    wait_until(lambda: len(gateway.gateway.connections) == 0, "the gateway has noticed")
    gateway.close()

    whole = receipts(told_traffic, apples, client="whole")
    assert (ranges(whole), perhaps(whole)) == ([(0, count)], [])
    cut = receipts(told_traffic, apples, client="cut")
    certain, uncertain = ranges(cut), perhaps(cut)
    assert all(end < count for _, end in certain), "none of the second answer is certain"
    assert uncertain, "but some of it was sent"


def test_a_share_group_has_receipts_of_what_its_members_acquired(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), listen=f"127.0.0.1:{free_block(1)}", **told_traffic.settings)
    set_up(gateway.address, group)
    produce(gateway.address, apples, map(str, range(COUNT)))
    member = run_member("share", gateway.address, group, [apples], COUNT, client_id="javas")
    assert (len(member.values), member.faults) == (COUNT, [])
    gateway.close()

    found = receipts(told_traffic, apples, client="javas")
    assert {(each.principal, each.group, each.cluster) for each in found} == {(ANONYMOUS, group, "c1")}
    assert ranges(found) == [(0, COUNT)]


def test_javas_consumer_has_receipts_with_its_group(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    group: str,
) -> None:
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]), listen=f"127.0.0.1:{free_block(1)}", **told_traffic.settings)
    produce(gateway.address, apples, map(str, range(COUNT)))
    member = run_member("consumer", gateway.address, group, [apples], COUNT, auto_offset_reset="earliest")
    assert (len(member.values), member.faults) == (COUNT, [])
    gateway.close()

    found = receipts(told_traffic, apples)
    assert {each.group for each in found} == {group}
    total = sum(end - first for part in range(3) for first, end in ranges(e for e in found if e.partition == part))
    assert total == COUNT


def test_a_topic_that_moves_has_receipts_of_both_clusters(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    for cluster, count in ((kafka_c1, 5), (kafka_c2, 7)):
        create_topic(cluster, apples, 1)
        produce(cluster.bootstrap, apples, map(str, range(count)))
    gateway = start_gateway(rules.to("c1", [apples]), **told_traffic.settings)
    assert len(read_all(gateway.address, apples)) == 5
    gateway.move(rules.to("c2", [apples]))
    assert len(read_all(gateway.address, apples)) == 7
    gateway.close()

    found = {name: receipts(told_traffic, apples, cluster=name) for name in ("c1", "c2")}
    assert {name: ranges(each) for name, each in found.items()} == {"c1": [(0, 5)], "c2": [(0, 7)]}
    assert len({each.topic_id for one in found.values() for each in one}) == 2


def jump(address: str, topic: str, offsets: Iterable[int]) -> None:
    """A consumer that reads single records."""
    settings = {
        "bootstrap.servers": address, "group.id": "jumps", "enable.auto.commit": False,
        "queued.min.messages": 1, "fetch.max.bytes": 1_000, "max.partition.fetch.bytes": 1, "message.max.bytes": 1_000,
    }  # fmt: skip
    with closing(Consumer(settings)) as consumer:
        for offset in offsets:
            consumer.assign([TopicPartition(topic, 0, offset)])
            found = consumer.poll(60)
            assert found is not None
            assert found.offset() == offset
            consumer.unassign()


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_reader_that_jumps_is_told_exactly_where_the_topic_asks_for_that(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    is_exact: bool,
) -> None:
    create_topic(kafka_c1, apples, 1)
    produce(kafka_c1.bootstrap, apples, map(str, range(200)), **{"batch.num.messages": 1})
    told = told_traffic.settings | {"traffic_interval_s": 3600}
    gateway = start_gateway(rules.to("c1", [apples]), exact_receipt_topics=(apples,) * is_exact, **told)
    jump(gateway.address, apples, range(0, 200, 10))
    gateway.close()

    (found,) = receipts(told_traffic, apples)
    assert found.exact is is_exact
    touched = {first for first, _ in unpacked(found.ranges)}
    if is_exact:
        assert set(range(0, 200, 10)) <= {n for first, end in unpacked(found.ranges) for n in range(first, end)}
        assert not found.perhaps
    else:
        assert len(touched) <= 16
        last = found.perhaps[1] if found.perhaps else unpacked(found.ranges)[-1][1]
        assert last > 190


def test_topics_that_are_not_named_have_no_receipts(
    told_traffic: ToldTraffic,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
) -> None:
    create_topic(kafka_c1, apples, 1)
    gateway = start_gateway(rules.to("c1", [apples]), receipt_topics=("others*",), **told_traffic.settings)
    produce(gateway.address, apples, ["one"])
    assert read_all(gateway.address, apples) == ["one"]
    gateway.close()
    assert receipts(told_traffic, apples) == []
    assert told_traffic.figures(topic=apples, api="Fetch").records == 1
