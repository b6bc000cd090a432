"""Clients share connections to real brokers: nothing is lost, doubled or out of order, whatever breaks or moves."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import KafkaError, Producer

from services.gateway import metrics
from services.gateway.upstream import seats, shared
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.shared import Pool
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.alter_client_quotas import EntityData, EntryData, OpData
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import DELIVERY_S, read_all
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import talking_to
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.wire.records import batch

SHARING = {"shared_connections": 2, "share_from_clients": 2}
CLIENTS, RECORDS = 12, 600
UNANSWERED = 3
"""Records of one client, at most: each is nearly always a request of its own."""
LARGE_EACH = 100
"""One record in so many is too large to be shared."""


@pytest.fixture(autouse=True)
def soon_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has sent something large comes back while the test looks on. A pause of the machine slows none."""
    monkeypatch.setattr(seats, "REST_S", 0.05)
    for module in (seats, shared):
        monkeypatch.setattr(module, "SLOW_S", DELIVERY_S)


@pytest.fixture
def apples() -> str:
    return f"shared-{uuid.uuid4().hex[:8]}"


def pool_of(gateway: RunningGateway, cluster: str = "c1") -> Pool:
    clusters = gateway.gateway.mesh.clusters
    (broker_id,) = clusters.known[cluster].brokers
    pool = clusters.pool(cluster, broker_id, Lanes())
    assert pool is not None
    return pool


def break_shared(gateway: RunningGateway) -> int:
    """End the shared connections, whatever is on its way there: how many requests that was."""

    async def broken() -> int:
        connections = list(pool_of(gateway).connections)
        waiting = sum(connection.in_flight for connection in connections)
        for connection in connections:
            connection.abort("broken by the test")
        return waiting

    return gateway.call(broken)


def write(bootstrap: str, topic: str, meanwhile: Callable[[int], None]) -> None:
    """Each client writes its own numbers, in order, to one partition; `meanwhile` hears how many each has written."""
    faults: list[KafkaError] = []
    clients = [
        Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "client.id": f"c{n}"})
        for n in range(CLIENTS)
    ]
    for number in range(RECORDS):
        for name, client in enumerate(clients):
            padding = "x" * 20_000 if number % LARGE_EACH == name else ""
            client.produce(
                topic,
                f"{name} {number} {padding}",
                partition=name % 3,
                on_delivery=lambda error, _: faults.append(error) if error else None,
            )
        for client in clients:
            while len(client) > UNANSWERED:
                client.poll(0.01)
        meanwhile(number)
    for client in clients:
        assert client.flush(DELIVERY_S) == 0, "records were not delivered in time"
    assert not faults, faults[:3]


def by_client(values: Iterable[str]) -> dict[int, list[int]]:
    found = defaultdict(list)
    for value in values:
        name, number, _ = value.split(" ")
        found[int(name)].append(int(number))
    return found


def test_producers_keep_their_order_and_lose_nothing_when_shared_connections_break(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]), **SHARING)
    calls, broken_off = metrics.shared_calls.labels("c1"), []
    before = calls.total

    def meanwhile(number: int) -> None:
        if number % 100 == 75:
            broken_off.append(break_shared(gateway))

    write(gateway.address, apples, meanwhile)
    found = by_client(read_all(kafka_c1.bootstrap, apples))
    assert found == {name: list(range(RECORDS)) for name in range(CLIENTS)}
    assert calls.total - before > RECORDS / 2, "they have shared"  # how often depends on the machine's other work
    assert sum(broken_off), "something was on its way when connections broke"


def test_a_topic_moves_while_its_producers_share(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, apples)
    gateway = start_gateway(rules.to("c1", [apples]), **SHARING)
    counts = [metrics.shared_calls.labels(cluster) for cluster in ("c1", "c2")]
    before = [count.total for count in counts]

    def meanwhile(number: int) -> None:
        if number == RECORDS // 2:
            gateway.move(rules.to("c2", [apples]))

    write(gateway.address, apples, meanwhile)
    first, then = (by_client(read_all(cluster.bootstrap, apples)) for cluster in (kafka_c1, kafka_c2))
    for name in range(CLIENTS):
        assert first[name] + then[name] == list(range(RECORDS))
    assert all(then.values()), "the topic has moved"
    assert all(count.total > was for count, was in zip(counts, before, strict=True)), "on both they have shared"


async def quota(gateway: RawClient, client_id: str, rate: float | None) -> None:
    entry = EntryData([EntityData("client-id", client_id)], [OpData("producer_byte_rate", rate or 0.0, rate is None)])
    answer = await gateway.ask(AlterClientQuotasRequest([entry]), 1, AlterClientQuotasResponse)
    assert [each.error_code for each in answer.entries] == [0]


async def test_who_uses_up_a_quota_slows_nobody_else_down(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]), shared_connections=1, share_from_clients=2)
    greedy_id = f"greedy-{apples}"  # what others have used up is not its own
    calls = metrics.shared_calls.labels("c1")
    left = metrics.left_shared.labels("c1", "throttled")

    async def write_as(client: RawClient, client_id: str, size: int) -> int:
        """How long it is slowed down for, in milliseconds."""
        data = [PartitionProduceData(0, batch(framed(bytes(size))))]
        request = ProduceRequest(None, -1, 10_000, [TopicProduceData(apples, partition_data=data)])
        answer = await client.ask(request, 9, ProduceResponse, client_id=client_id)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        return answer.throttle_time_ms

    async with (
        talking_to(gateway.address) as admin,
        talking_to(gateway.address) as greedy,
        talking_to(gateway.address) as modest,
    ):
        before, was = calls.total, left._value.get()
        while calls.total < before + 4:
            await write_as(greedy, greedy_id, 10)
            await write_as(modest, "modest", 10)
        await quota(admin, greedy_id, 150.0)
        try:
            throttled_ms = 0
            while not throttled_ms:
                throttled_ms = await write_as(greedy, greedy_id, 7000)
            assert throttled_ms > 10_000, "700 bytes/s, over the ten seconds that a broker counts, are far too many"
            assert left._value.get() == was + 1
            (connection,) = pool_of(gateway).connections

            async def is_muted() -> bool:
                return not connection.takes_from_anybody(connection._loop.time())

            for _ in range(20):
                assert await write_as(modest, "modest", 10) == 0
            assert gateway.call(is_muted), "all of that while the broker read nothing from the shared connection"
        finally:
            await quota(admin, greedy_id, None)


def framed(value: bytes) -> bytes:
    """A record with this value, without key and headers."""
    record = b"\x00\x00\x00\x01" + varint(len(value)) + value + b"\x00"
    return varint(len(record)) + record


def varint(number: int) -> bytes:
    """Of a number that is not negative, as records have it (zigzag)."""
    left, out = number * 2, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))
