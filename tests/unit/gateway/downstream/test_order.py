"""What a client may count on: answers in order, Produce in order, nothing lost on the way."""

import asyncio

import pytest

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import MAX_REQUESTS, Stage
from tests.unit.gateway.scripted_broker import Script
from tests.unit.gateway.wire.records import batch


def produce(topic: str, records: bytes = b"records", acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = [PartitionProduceData(partition, batch(records))]
    return ProduceRequest(None, acks, 1000, [TopicProduceData(topic, partition_data=data)])


def written(message: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                t.name, partition_responses=[PartitionProduceResponse(p.index) for p in t.partition_data]
            )
            for t in message.topic_data
        ]
    )


def gated(gate: asyncio.Event) -> Script:
    """Produce is answered when the gate opens."""

    async def script(header: object, message: ProduceRequest) -> ProduceResponse:
        await gate.wait()
        return written(message)

    return script


async def test_answers_leave_in_the_order_of_the_requests(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client = await stage.connect()
    client.send(produce("apples"), 9)
    client.send(ApiVersionsRequest(), 3)
    client.send(MetadataRequest(None), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    gate.set()
    assert (await client.answer(ProduceResponse)).responses[0].name == "apples"
    assert (await client.answer(ApiVersionsResponse)).error_code == 0
    assert {t.name for t in (await client.answer(MetadataResponse)).topics} == {"apples", "bananas"}


async def test_produce_is_pipelined_over_clusters_and_answered_in_order(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    stage.c2.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    for topic in ("apples", "bananas", "apples"):
        client.send(produce(topic), 9)
    await until(lambda: stage.c2.requests(ApiKey.PRODUCE))  # not held up by c1
    gate.set()
    for topic in ("apples", "bananas", "apples"):
        assert (await client.answer(ProduceResponse)).responses[0].name == topic


async def test_produce_that_waits_for_metadata_is_not_overtaken(stage: Stage) -> None:
    seen: list[bytes] = []

    def keep(header: object, message: ProduceRequest) -> ProduceResponse:
        seen.extend(bytes(p.records or b"")[61:] for t in message.topic_data for p in t.partition_data)
        return written(message)

    stage.c1.scripts[ApiKey.PRODUCE] = keep
    client = await stage.connect()
    for number in range(10):
        client.send(produce("apples", b"%d" % number), 9)
    for _ in range(10):
        assert (await client.answer(ProduceResponse)).responses[0].partition_responses[0].error_code == 0
    assert seen == [b"%d" % number for number in range(10)]


async def test_a_request_larger_than_the_receive_buffer_arrives_whole(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    records = bytes(range(256)) * 12_000
    for _ in range(2):
        client.send(produce("apples", records), 9)
    for _ in range(2):
        await client.answer(ProduceResponse)
    assert all(bytes(r.topic_data[0].partition_data[0].records) == batch(records) for r in stage.c1.requests(0))
    assert stage.gateway.mesh.budget.held_bytes == 0


async def test_without_acks_the_next_request_is_answered(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: None
    client = await stage.connect()
    client.send(produce("apples", acks=0), 9, answered=False)
    assert (await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))


async def test_a_broker_that_refuses_records_without_acks_is_heard_by_the_client(stage: Stage) -> None:
    """It is not the leader, say: it closes. The client asks for metadata upon that, and so do we."""
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: None
    client, other = await stage.connect(), await stage.connect()
    client.send(produce("apples", acks=0), 9, answered=False)
    other.send(produce("apples"), 9)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) == 2)
    for connection in list(stage.c1.connections):
        connection.transport.abort()
    assert await client.closed() == b""
    told = (await other.answer(ProduceResponse)).responses[0].partition_responses[0]
    assert told.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_what_a_client_produced_before_it_left_arrives(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: None
    client = await stage.connect()
    await client.ask(MetadataRequest(None), 9, MetadataResponse)
    client.send(produce("apples", acks=0), 9, answered=False)
    client.close()
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    await until(lambda: not stage.gateway.connections)


async def test_what_waited_for_its_turn_when_the_client_left_arrives_too(stage: Stage) -> None:
    """Without acks a client closes as soon as all is sent: the first request still waits for metadata then."""
    for cluster in (stage.c1, stage.c2):
        cluster.scripts[ApiKey.PRODUCE] = lambda header, message: None
    client = await stage.connect()
    for _ in range(5):
        client.send(produce("apples", acks=0), 9, answered=False)
        client.send(produce("bananas", acks=0), 9, answered=False)
    client.close()
    for cluster in (stage.c1, stage.c2):
        await until(lambda: len(cluster.requests(ApiKey.PRODUCE)) == 5)  # noqa: B023
    await until(lambda: not stage.gateway.connections)
    assert not stage.gateway.mesh.producing
    assert stage.gateway.mesh.budget.held_bytes == 0


async def test_an_idle_cluster_does_not_delay_and_its_late_answer_is_kept(stage: Stage) -> None:
    gate = asyncio.Event()

    def found(topic: str, records: bytes) -> FetchResponse:
        part = PartitionData(0, 0, 9, 9, 0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic, partitions=[part])])

    async def late(header: object, message: object) -> FetchResponse:
        await gate.wait()
        return found("bananas", b"late")

    stage.c1.scripts[ApiKey.FETCH] = lambda header, message: found("apples", b"early")
    stage.c2.scripts[ApiKey.FETCH] = late
    topics = [FetchTopic(t, partitions=[FetchPartition(0, partition_max_bytes=100)]) for t in ("apples", "bananas")]
    request = FetchRequest(max_wait_ms=5000, min_bytes=1, topics=topics, session_epoch=0)
    client = await stage.connect()
    first = await client.ask(request, 11, FetchResponse)
    assert [bytes(t.partitions[0].records or b"") for t in first.responses] == [b"early", b""]
    gate.set()
    for partition in stage.c1.requests(ApiKey.FETCH):
        assert partition.session_epoch == -1
    stage.c1.scripts[ApiKey.FETCH] = lambda header, message: found("apples", b"")
    second = await client.ask(request, 11, FetchResponse)
    assert [bytes(t.partitions[0].records or b"") for t in second.responses] == [b"", b"late"]
    assert len(stage.c2.requests(ApiKey.FETCH)) == 1  # nothing was asked twice


async def test_reading_stops_while_too_much_is_unanswered(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client = await stage.connect()
    count = 400
    for _ in range(count):
        client.send(produce("apples", bytes(50_000)), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered >= MAX_REQUESTS)
    assert connection.unanswered < MAX_REQUESTS + 25  # those that one read brought
    assert stage.gateway.mesh.budget.held_bytes < 4 << 20
    gate.set()
    for _ in range(count):
        await client.answer(ProduceResponse)
    assert connection.unanswered == 0


async def test_answers_do_not_pile_up_for_a_client_that_does_not_read(stage: Stage) -> None:
    big = PartitionData(0, 0, 9, 9, 0, records=bytes(6 << 20))
    stage.c1.scripts[ApiKey.FETCH] = lambda header, message: FetchResponse(
        responses=[FetchableTopicResponse("apples", partitions=[big])]
    )
    topic = FetchTopic("apples", partitions=[FetchPartition(0, partition_max_bytes=8 << 20)])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=[topic], session_epoch=0)
    client = await stage.connect()
    client.pause()
    for _ in range(12):
        client.send(request, 11)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.congested)
    other = await stage.connect()
    for _ in range(12):  # who reads gets all of theirs meanwhile
        await other.ask(request, 11, FetchResponse)
    assert connection.unsent_bytes < 16 << 20
    client.resume()
    for _ in range(12):
        assert len((await client.answer(FetchResponse)).responses[0].partitions[0].records or b"") == 6 << 20


async def test_a_client_that_never_reads_its_answers_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers take the memory that the answers of others wait for."""
    monkeypatch.setattr("services.gateway.downstream.reading.UNREAD_S", 0.1)
    big = PartitionData(0, 0, 9, 9, 0, records=bytes(6 << 20))
    stage.c1.scripts[ApiKey.FETCH] = lambda header, message: FetchResponse(
        responses=[FetchableTopicResponse("apples", partitions=[big])]
    )
    topic = FetchTopic("apples", partitions=[FetchPartition(0, partition_max_bytes=8 << 20)])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=[topic], session_epoch=0)
    client = await stage.connect()
    client.pause()
    for _ in range(12):
        client.send(request, 11)
    await until(lambda: not stage.gateway.connections, "the client is cut off")
    assert stage.gateway.mesh.clusters.answer_room.held_bytes == 0
