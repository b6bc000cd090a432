"""A Produce with several partitions that one broker leads is forwarded, and nobody can tell."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mesh.traffic.counting import Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway.downstream import forwarding, turns
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.auditing.clients import AuditedBatch, ClientAudit
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topic_patterns import TopicPatterns
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_order import gated, written
from tests.unit.gateway.wire.records import batch

Planned = Callable[[], int]
ALL = {"apples": (0, 1), "bananas": (0, 1)}
MAYBE = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """How many requests went by a plan so far."""
    plans = 0

    class Counted(Exchange):
        def start(self) -> None:
            nonlocal plans
            plans += 1
            super().start()

    monkeypatch.setattr(turns, "Exchange", Counted)
    return lambda: plans


def produce(
    sequence: int | None = None,
    acks: int = -1,
    transactional_id: str | None = None,
    size: int = 5,
    **partitions: tuple[int, ...],
) -> ProduceRequest:
    """To these partitions of topics, all if none are given; with a sequence, by an idempotent producer."""
    topics = [
        TopicProduceData(
            topic,
            partition_data=[
                PartitionProduceData(
                    number,
                    batch(bytes(size))
                    if sequence is None
                    else batch(bytes(size), producer_id=7, epoch=0, sequence=sequence),
                )
                for number in numbers
            ],
        )
        for topic, numbers in (partitions or ALL).items()
    ]
    return ProduceRequest(transactional_id, acks, 1000, topics)


def with_error(code: ErrorCode, topic: str, partition: int) -> Callable[[object, ProduceRequest], ProduceResponse]:
    """Refuses what comes for this partition, and takes the rest."""

    def script(_: object, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        for each in answer.responses:
            for part in each.partition_responses:
                if (each.name, part.index) == (topic, partition):
                    part.error_code, part.base_offset = code, -1
                else:
                    part.base_offset = 40
        return answer

    return script


def codes(answer: ProduceResponse) -> dict[tuple[str, int], int]:
    return {(topic.name, p.index): p.error_code for topic in answer.responses for p in topic.partition_responses}


async def warm(stage: Stage) -> RawClient:
    """A client whose topics live on c1 both, and one of whose requests with all partitions has passed."""
    stage.gateway.mesh.run_table(stage.table(2, apples="c1", bananas="c1"))
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    for _ in range(2):
        assert not any(codes(await client.ask(produce(), 9, ProduceResponse)).values())
    stage.c1.received.clear()
    stage.c1.bodies.clear()
    return client


@pytest.mark.parametrize("version", range(3, 13))
async def test_requests_and_answers_pass_byte_for_byte(version: int, stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    offset = 0

    def stored(header: object, message: ProduceRequest) -> ProduceResponse:
        nonlocal offset
        answer = written(message)
        for topic in answer.responses:
            for part in topic.partition_responses:
                offset += 1
                part.base_offset, part.log_append_time_ms, part.log_start_offset = offset, 2, 3 if version >= 5 else -1
        return replace(answer, throttle_time_ms=11)

    await client.ask(produce(), version, ProduceResponse)
    stage.c1.scripts[ApiKey.PRODUCE] = stored
    stage.c1.received.clear()
    stage.c1.bodies.clear()
    before = planned()
    sent = [
        produce(),
        produce(bananas=(1,), apples=(1, 0)),
        produce(apples=(0, 1), size=20_000),
        produce(size=70_000),
        produce(bananas=(1, 0), size=300_000),
    ]
    for message in sent:
        client.send(message, version)
    answers = [await client.answer(ProduceResponse) for _ in sent]
    found = [part.base_offset for a in answers for topic in a.responses for part in topic.partition_responses]
    assert found == list(range(1, 16))
    assert {answer.throttle_time_ms for answer in answers} == {11}
    whole = [encode_request(message, version, 0, "raw") for message in sent]
    assert all(frame.endswith(body) for frame, body in zip(whole, stage.c1.bodies, strict=True))
    assert planned() == before
    assert not stage.gateway.mesh.producing
    (connection,) = stage.gateway.connections
    assert not connection.session.producing


async def test_topics_that_the_client_tells_by_their_ids_are_named_to_their_cluster(
    stage: Stage, planned: Planned
) -> None:
    client = await warm(stage)
    ids = {topic: mesh_topic_id(stage.gateway.mesh.mesh_id, topic) for topic in ALL}

    def by_id(message: ProduceRequest) -> ProduceRequest:
        for topic in message.topic_data:
            topic.topic_id = ids[topic.name]
        return message

    await client.ask(by_id(produce()), 13, ProduceResponse)
    stage.c1.received.clear()
    stage.c1.scripts[ApiKey.PRODUCE] = with_error(ErrorCode.NONE, "none", 0)
    before = planned()
    answer = await client.ask(by_id(produce(bananas=(1,), apples=(1, 0))), 13, ProduceResponse)
    assert planned() == before
    told = [
        (topic.topic_id, [(p.index, p.base_offset) for p in topic.partition_responses]) for topic in answer.responses
    ]
    assert told == [(ids["bananas"], [(1, 40)]), (ids["apples"], [(1, 40), (0, 40)])]
    ((header, message),) = stage.c1.received
    assert (header.api_version, header.client_id) == (12, "raw")
    sent = [(topic.name, [part.index for part in topic.partition_data]) for topic in message.topic_data]
    assert sent == [("bananas", [1]), ("apples", [1, 0])]
    stage.c1.scripts[ApiKey.PRODUCE] = with_error(ErrorCode.MESSAGE_TOO_LARGE, "apples", 1)
    answer = await client.ask(by_id(produce()), 13, ProduceResponse)
    errors = [(t.topic_id, p.index, p.error_code) for t in answer.responses for p in t.partition_responses]
    assert [each for each in errors if each[2]] == [(ids["apples"], 1, ErrorCode.MESSAGE_TOO_LARGE)]


async def test_topics_of_two_clusters_are_looked_at(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(3, apples="c1", bananas="c2"))
    for _ in range(2):
        await client.ask(produce(apples=(0, 1)), 9, ProduceResponse)
        await client.ask(produce(bananas=(0, 1)), 9, ProduceResponse)
    before = planned()
    assert not any(codes(await client.ask(produce(), 9, ProduceResponse)).values())
    assert planned() == before + 1
    await client.ask(produce(apples=(0, 1)), 9, ProduceResponse)
    assert planned() == before + 1, "by itself each of them is forwarded"


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, MAYBE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
async def test_an_error_of_one_partition_is_told_as_ever(
    said: ErrorCode, heard: ErrorCode, stage: Stage, planned: Planned
) -> None:
    client = await warm(stage)
    stage.c1.scripts[ApiKey.PRODUCE] = with_error(said, "bananas", 0)
    before = planned()
    answer = await client.ask(produce(0), 9, ProduceResponse)
    assert planned() == before
    assert {slot: code for slot, code in codes(answer).items() if code} == {("bananas", 0): heard}
    assert answer.responses[0].partition_responses[0].base_offset == 40


async def test_after_a_refused_batch_later_ones_of_its_partition_wait_for_it(stage: Stage) -> None:
    client = await warm(stage)
    stage.c1.scripts[ApiKey.PRODUCE] = with_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "bananas", 0)
    await client.ask(produce(0), 9, ProduceResponse)
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    answer = codes(await client.ask(produce(1), 9, ProduceResponse))
    assert {slot: code for slot, code in answer.items() if code} == {
        ("bananas", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert not any(codes(await client.ask(produce(0, bananas=(0,)), 9, ProduceResponse)).values())
    assert not any(codes(await client.ask(produce(1, bananas=(0,)), 9, ProduceResponse)).values())


async def test_batches_whose_answer_was_lost_may_be_stored(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce(0), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    for there in list(stage.c1.connections):
        there.transport.abort()
    assert set(codes(await client.answer(ProduceResponse)).values()) == {MAYBE}
    assert len(stage.gateway.mesh.memory.doubts) == 4
    gate.set()
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    for sequence in range(2):
        assert not any(codes(await client.ask(produce(sequence), 9, ProduceResponse)).values())


async def test_a_hold_of_any_of_its_topics_waits_for_it(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce(), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    mesh = stage.gateway.mesh
    after = stage.table(3, apples="c1", bananas="c2")
    hold = mesh.begin_hold(after)
    client.send(produce(), 9)
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    mesh.end_hold(after)
    for _ in range(2):
        assert not any(codes(await client.answer(ProduceResponse)).values())
    assert [[t.name for t in m.topic_data] for m in stage.c2.requests(ApiKey.PRODUCE)] == [["bananas"]]


@pytest.mark.parametrize("partitions", [ALL, {"apples": (0,)}])
async def test_a_hold_takes_it_for_that_of_its_own_client(stage: Stage, partitions: dict[str, tuple[int, ...]]) -> None:
    client = await warm(stage)
    message = produce(None, -1, None, 5, **partitions)
    for client_id in ("one", "one", "other"):
        await client.ask(message, 9, ProduceResponse, client_id=client_id)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before = len(stage.c1.requests(ApiKey.PRODUCE))
    client.send(message, 9, client_id="one")
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) > before)
    assert [started.client.client_id for started in stage.gateway.mesh.producing.values()] == ["one"]
    gate.set()
    await client.answer(ProduceResponse)


async def test_a_hold_of_another_topic_does_not_wait_for_it(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce(apples=(0, 1)), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    assert stage.gateway.mesh.begin_hold(stage.table(3, apples="c1", bananas="c2")).complete.is_set()
    stage.gateway.mesh.end_hold()
    gate.set()
    await client.answer(ProduceResponse)


async def test_what_is_on_its_way_elsewhere_is_not_overtaken(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce(0), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    stage.gateway.mesh.run_table(stage.table(3, apples="c1", bananas="c2"))  # without a hold
    client.send(produce(1, bananas=(0, 1)), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: [slot.done for slot in connection._slots.queue] == [False, True])
    gate.set()
    assert not any(codes(await client.answer(ProduceResponse)).values())
    assert set(codes(await client.answer(ProduceResponse)).values()) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert not stage.c2.requests(ApiKey.PRODUCE)


async def test_a_table_in_force_counts_for_the_next_request(stage: Stage) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(3, apples="c2", bananas="c2"))
    assert not any(codes(await client.ask(produce(), 9, ProduceResponse)).values())
    assert [len(there.requests(ApiKey.PRODUCE)) for there in (stage.c1, stage.c2)] == [0, 1]


async def test_a_rule_that_is_gone_counts_for_the_next_request(stage: Stage) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(3, apples="c1"))
    answer = codes(await client.ask(produce(), 9, ProduceResponse))
    assert {slot[0] for slot, code in answer.items() if code} == {"bananas"}


async def test_a_leader_in_doubt_is_asked_for(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.gateway.mesh.clusters.known["c1"].doubt(["bananas"])
    asked, before = len(stage.c1.requests(ApiKey.METADATA)), planned()
    assert not any(codes(await client.ask(produce(), 9, ProduceResponse)).values())
    assert (len(stage.c1.requests(ApiKey.METADATA)), planned()) == (asked + 1, before + 1)


async def test_a_partition_that_nobody_knows_is_looked_at(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    before = planned()
    answer = codes(await client.ask(produce(apples=(0, 7)), 9, ProduceResponse))
    assert planned() == before + 1
    assert {slot for slot, code in answer.items() if code} == {("apples", 7)}


async def test_what_is_not_acknowledged_and_what_is_of_a_transaction_is_looked_at(
    stage: Stage, planned: Planned
) -> None:
    client = await warm(stage)
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: None if message.acks == 0 else written(message)
    before = planned()
    for _ in range(3):
        client.send(produce(acks=0), 9, answered=False)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) == 3)
    assert planned() == before + 3
    for _ in range(2):
        await client.ask(produce(transactional_id="t"), 9, ProduceResponse)
    assert planned() == before + 5


async def test_an_audited_topic_is_looked_at(stage: Stage, planned: Planned) -> None:
    told: list[AuditedBatch] = []
    stage.gateway.mesh.memory.audit = ClientAudit(TopicPatterns(["bananas"]), told.extend)
    client = await warm(stage)
    before = planned()
    told.clear()
    for _ in range(2):
        await client.ask(produce(), 9, ProduceResponse)
    assert planned() == before + 2
    assert [(each.topic, each.partition) for each in told] == [("bananas", 0), ("bananas", 1)] * 2
    await client.ask(produce(apples=(0, 1)), 9, ProduceResponse)
    assert planned() == before + 2


async def test_traffic_is_counted_by_topic_and_what_was_refused_moved_nothing(stage: Stage) -> None:
    client = await warm(stage)
    counts = Counts(LatencySketch, datetime.now(UTC))
    stage.gateway.mesh.memory.traffic = ClientTraffic(counts, time.monotonic)
    stage.c1.scripts[ApiKey.PRODUCE] = with_error(ErrorCode.MESSAGE_TOO_LARGE, "bananas", 0)
    size = len(batch(bytes(5)))

    def counted() -> dict[str, tuple[int, int, int, int]]:
        tallies = counts.take(datetime.now(UTC)).tallies
        return {who.topic: (each.calls, each.records, each.bytes, each.errors) for who, each in tallies.items()}

    await client.ask(produce(), 9, ProduceResponse)
    assert counted() == {"apples": (1, 2, 2 * size, 0), "bananas": (1, 1, size, 1)}
    await client.ask(produce(apples=(0, 1)), 9, ProduceResponse)
    assert counted() == {"apples": (1, 2, 2 * size, 0)}


async def test_what_a_client_produced_before_it_left_is_waited_for(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce(), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    client.close()
    await until(lambda: not stage.gateway.connections)
    assert stage.gateway.mesh.producing
    gate.set()
    await until(lambda: not stage.gateway.mesh.producing)


async def test_what_lies_about_its_length_is_looked_at(stage: Stage) -> None:
    client = await warm(stage)
    frame = bytearray(encode_request(produce(), 9, 2, "raw"))
    frame[-1] = 1  # a tag is promised
    client.send_bytes(bytes(frame))
    assert await client.closed() == b""


async def test_what_has_more_partitions_than_anybody_writes_to_is_looked_at(
    stage: Stage, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await warm(stage)
    monkeypatch.setattr(forwarding, "PARTITIONS_AT_MOST", 3)
    before = planned()
    await client.ask(produce(), 9, ProduceResponse)
    assert planned() == before + 1
    await client.ask(produce(apples=(0, 1), bananas=(0,)), 9, ProduceResponse)
    assert planned() == before + 1
