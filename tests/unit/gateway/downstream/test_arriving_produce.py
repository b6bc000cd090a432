"""A large Produce goes on while it still comes, and whatever happens in the middle, no half of it is stored or lost."""

import asyncio

import pytest

from services.gateway import metrics
from services.gateway.downstream import hold as hold_module
from services.gateway.downstream import reading
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import MAX_REQUESTS, Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_forwarding import Planned, code_of, numbered, planned, warm
from tests.unit.gateway.downstream.test_order import gated, produce, written
from tests.unit.gateway.wire.records import batch

__all__ = ["planned"]

LARGE = bytes(range(256)) * 1200
HALF = 100_000
_out = metrics.upstream_bytes.labels("c1", "out")


class Halves:
    """A large request of which the first half has gone on to the broker."""

    def __init__(self, client: RawClient, message: ProduceRequest, version: int = 9) -> None:
        self._client = client
        self._message = message
        self._version = version

    async def first(self) -> "Halves":
        before = _out.total
        self._client.expect(self._version)
        self._frame = encode_request(self._message, self._version, self._client.last_id, "raw")
        self._client.send_bytes(self._frame[:HALF])
        await until(lambda: _out.total - before >= HALF - 100, "the first half goes on")
        return self

    def second(self, until: int | None = None) -> None:
        self._client.send_bytes(self._frame[HALF:until])

    def drop(self) -> None:
        """One more byte."""
        self._client.send_bytes(b"\0")


async def half(client: RawClient, message: ProduceRequest | None = None, version: int = 9) -> Halves:
    return await Halves(client, message or produce("apples", LARGE), version).first()


def stored_records(stage: Stage, cluster: str = "c1") -> list[bytes]:
    broker = stage.c1 if cluster == "c1" else stage.c2
    return [bytes(m.topic_data[0].partition_data[0].records or b"") for m in broker.requests(ApiKey.PRODUCE)]


@pytest.mark.parametrize("version", range(3, 13))
async def test_it_goes_on_before_its_end_has_come_and_arrives_byte_for_byte(
    version: int, stage: Stage, planned: Planned
) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    for _ in range(2):
        await client.ask(produce("apples"), version, ProduceResponse)
    before = planned()
    request = await half(client, produce("apples", LARGE), version)
    assert stage.gateway.mesh.budget.held_bytes == 0, "nothing of it is kept"
    request.second()
    client.send(produce("apples", b"behind"), version)
    client.send(ApiVersionsRequest(), 0)
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert code_of(await client.answer(ProduceResponse)) == 0
    await client.answer(ApiVersionsResponse)
    assert planned() == before + 1, "ApiVersions alone"
    assert stored_records(stage)[2:] == [batch(LARGE), batch(b"behind")]
    body = encode_request(produce("apples", LARGE), version, 0, "raw")
    (received,) = [each for each in stage.c1.bodies if len(each) > HALF]
    assert body[-len(received) :] == received
    assert not stage.gateway.mesh.producing


async def test_a_topic_that_is_told_by_its_id_is_named_to_its_cluster(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    message = produce("apples", LARGE)
    message.topic_data[0].topic_id = mesh_topic_id(stage.gateway.mesh.mesh_id, "apples")
    await client.ask(message, 13, ProduceResponse)
    before = planned()
    (await half(client, message, 13)).second()
    (topic,) = (await client.answer(ProduceResponse)).responses
    assert topic.topic_id == message.topic_data[0].topic_id
    assert planned() == before
    (header, sent) = stage.c1.received[-1]
    assert (header.api_version, sent.topic_data[0].name) == (12, "apples")
    assert stored_records(stage)[-1] == batch(LARGE)


async def test_it_is_counted_as_ever(stage: Stage) -> None:
    client = await warm(stage)
    counts = (
        metrics.requests.labels("Produce", "9", "answered"),
        metrics.upstream_calls.labels("c1", "Produce"),
        metrics.client_bytes.labels("in"),
        _out,
    )
    before = [count.total for count in counts]
    (await half(client)).second()
    await client.answer(ProduceResponse)
    size = len(encode_request(produce("apples", LARGE), 9, 1, "raw"))
    assert [count.total - was for count, was in zip(counts, before, strict=True)] == [1, 1, size, size]


def two_partitions() -> ProduceRequest:
    data = [PartitionProduceData(number, batch(LARGE)) for number in range(2)]
    return ProduceRequest(None, -1, 1000, [TopicProduceData("apples", partition_data=data)])


def two_batches() -> ProduceRequest:
    data = [PartitionProduceData(0, batch(LARGE) + batch(b"another"))]
    return ProduceRequest(None, -1, 1000, [TopicProduceData("apples", partition_data=data)])


def no_batch() -> ProduceRequest:
    data = [PartitionProduceData(0, bytearray(LARGE))]
    return ProduceRequest(None, -1, 1000, [TopicProduceData("apples", partition_data=data)])


@pytest.mark.parametrize("message", [two_partitions(), two_batches(), no_batch()])
async def test_what_has_to_be_looked_at_as_a_whole_is_gathered(stage: Stage, message: ProduceRequest) -> None:
    client = await warm(stage)
    before = _out.total
    client.expect(9)
    frame = encode_request(message, 9, client.last_id, "raw")
    client.send_bytes(frame[:HALF])
    await until(lambda: stage.gateway.mesh.budget.held_bytes)
    assert _out.total == before
    client.send_bytes(frame[HALF:])
    await client.answer(ProduceResponse)
    assert len(stage.c1.requests(ApiKey.PRODUCE)) == 1
    assert stage.gateway.mesh.budget.held_bytes == 0


async def test_a_client_that_leaves_in_the_middle_has_sent_nothing_and_what_came_before_is_stored(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(numbered(0), 9)
    await half(client)
    client.abort()
    await until(lambda: not stage.gateway.connections)
    mesh = stage.gateway.mesh
    assert len(mesh.producing) == 1, "the first request, which had come"
    gate.set()
    await until(lambda: not mesh.producing)
    assert len(stored_records(stage)) == 1
    assert not mesh.memory.doubts
    assert not mesh.memory.refusals
    another = await stage.connect()  # the same producer comes back with its next batch
    assert code_of(await another.ask(numbered(1), 9, ProduceResponse)) == 0
    assert len(stage.c1.connections) < 4, "the connection with half a request has ended"


async def test_a_broker_that_ends_in_the_middle_is_told_when_the_rest_has_come(stage: Stage) -> None:
    client = await warm(stage)
    mesh = stage.gateway.mesh
    request = await half(client, numbered_large(0))
    for there in list(stage.c1.connections):
        there.transport.abort()
    await until(lambda: not mesh.producing, "a hold need not wait for it")
    (connection,) = stage.gateway.connections
    assert connection.unanswered == 1, "no client hears of a request of which it has not sent all"
    request.second()
    client.send(numbered(1), 9)
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "for sure not written"
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it comes too early"
    assert not mesh.memory.doubts
    assert code_of(await client.ask(numbered_large(0), 9, ProduceResponse)) == 0
    assert code_of(await client.ask(numbered(1), 9, ProduceResponse)) == 0
    assert len(stored_records(stage)) == 2


def numbered_large(sequence: int) -> ProduceRequest:
    records = batch(LARGE, producer_id=7, epoch=0, sequence=sequence)
    return ProduceRequest(
        None, -1, 1000, [TopicProduceData("apples", partition_data=[PartitionProduceData(0, records)])]
    )


async def test_both_gone_in_the_middle_leaves_nothing(stage: Stage) -> None:
    client = await warm(stage)
    await half(client)
    for there in list(stage.c1.connections):
        there.transport.abort()
    await until(lambda: not stage.gateway.mesh.producing)
    client.abort()
    await until(lambda: not stage.gateway.connections)
    assert not stage.gateway.mesh.budget.held_bytes


async def test_an_answer_that_was_lost_after_the_end_leaves_a_doubt(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    (await half(client, numbered_large(0))).second()
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    for there in list(stage.c1.connections):
        there.transport.abort()
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert stage.gateway.mesh.memory.doubts
    gate.set()


async def test_a_hold_waits_for_what_comes_in_time(stage: Stage) -> None:
    client = await warm(stage)
    request = await half(client)
    mesh, after = stage.gateway.mesh, stage.table(2, apples="c2", bananas="c2")
    hold = mesh.begin_hold(after)
    assert not hold.complete.is_set()
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert hold.complete.is_set()
    mesh.end_hold(after)
    assert len(stored_records(stage)) == 1


async def test_a_hold_breaks_off_what_takes_too_long_and_it_goes_to_the_new_cluster_when_it_comes_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_module, "PATIENCE_S", 0.0)
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(numbered(0), 9)
    request = await half(client, numbered_large(1))
    mesh, after = stage.gateway.mesh, stage.table(2, apples="c2", bananas="c2")
    hold = mesh.begin_hold(after)
    await until(lambda: len(mesh.producing) == 1)
    assert not hold.complete.is_set(), "what was sent before is waited for"
    gate.set()
    assert code_of(await client.answer(ProduceResponse)) == 0
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    mesh.end_hold(after)
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(await client.ask(numbered_large(1), 9, ProduceResponse)) == 0
    assert len(stored_records(stage, "c1")) == 1
    assert stored_records(stage, "c2") == [batch(LARGE, producer_id=7, epoch=0, sequence=1)]


async def test_a_hold_that_is_over_breaks_nothing_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_module, "PATIENCE_S", 0.05)
    client = await warm(stage)
    request = await half(client)
    mesh = stage.gateway.mesh
    mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    mesh.end_hold()
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, over.set)
    await over.wait()
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == 0


async def test_while_something_is_held_it_is_gathered(stage: Stage) -> None:
    client = await warm(stage)
    mesh, after = stage.gateway.mesh, stage.table(2, apples="c2", bananas="c2")
    mesh.begin_hold(after)
    client.send(produce("apples", LARGE), 9)
    await until(lambda: mesh.budget.held_bytes > len(LARGE))
    mesh.end_hold(after)
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert [len(stored_records(stage, each)) for each in ("c1", "c2")] == [0, 1]


async def test_a_table_in_force_counts_for_the_next_request_alone(stage: Stage) -> None:
    client = await warm(stage)
    request = await half(client)
    stage.gateway.mesh.run_table(stage.table(2, apples="c2", bananas="c2"))
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert len(stored_records(stage)) == 1


async def test_a_client_that_stops_in_the_middle_is_cut_off(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "STALLED_S", 0.1)
    client = await warm(stage)
    await half(client)
    await client.closed()
    await until(lambda: not stage.gateway.mesh.producing)
    assert not stored_records(stage)


async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STALLED_S", 0.2)
    cut = metrics.cut_connections.labels("stalled")
    before = cut._value.get()
    client = await warm(stage)
    request = await half(client)
    closed = asyncio.create_task(client.closed())
    while not closed.done():
        request.drop()
        await asyncio.wait([closed], timeout=0.01)
    assert cut._value.get() == before + 1
    assert not stored_records(stage)


async def test_the_first_look_already_tells_who_has_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(reading, "STALLED_S", 0.0)
    monkeypatch.setattr(reading.Reading, "_check_for_stall", lambda self, missing: looks.append(missing))
    client = await warm(stage)
    await half(client)
    await until(lambda: looks)
    assert looks[0] > 0, "that is what was missing when it began"


async def test_one_timer_serves_all_requests(stage: Stage) -> None:
    client = await warm(stage)
    (connection,) = stage.gateway.connections
    timers = []
    for _ in range(2):
        request = await half(client)
        timers.append(connection._reading._timer)
        request.second()
        assert code_of(await client.answer(ProduceResponse)) == 0
    assert timers[0] is timers[1]
    assert timers[0] is not None
    client.abort()
    await until(lambda: not stage.gateway.connections)
    assert timers[0].cancelled()


async def test_a_broker_that_takes_no_more_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "STALLED_S", 0.3)
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(numbered(0), 9)
    sent = [produce("apples", bytes(3 << 20)) for _ in range(MAX_REQUESTS - 2)]  # more than sockets take
    for message in sent:
        client.send(message, 9)
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    gate.set()
    codes = {code_of(await client.answer(ProduceResponse)) for _ in sent}
    assert codes <= {0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
    assert not stage.gateway.mesh.producing


async def test_a_broker_is_not_given_up_because_another_one_takes_no_more(stage: Stage) -> None:
    client = await warm(stage)
    request = await half(client)
    (connection,) = stage.gateway.connections
    connection._upstream_congestion(True)  # another one
    looks = connection._reading
    assert looks.arriving is not None
    assert looks.paused_for == "upstream"
    looks._check_for_stall(connection.still_missing)
    connection._upstream_congestion(False)
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert stored_records(stage)[-1] == batch(LARGE)


async def test_a_broker_that_does_not_read_makes_the_client_wait(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    sent = [produce("apples", bytes(3 << 20)) for _ in range(10)]
    before = _out.total
    for message in sent:
        client.send(message, 9)
    paused = metrics.paused_connections.labels("upstream")
    await until(paused._value.get)
    assert _out.total - before < 20 << 20
    gate.set()
    for _ in sent:
        assert code_of(await client.answer(ProduceResponse)) == 0
    assert stored_records(stage) == [batch(bytes(3 << 20))] * len(sent)


async def test_a_client_with_as_many_requests_as_it_may_have_can_finish_the_last_one(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    for _ in range(MAX_REQUESTS - 1):
        client.send(produce("apples"), 9)
    request = await half(client)
    request.second()
    (connection,) = stage.gateway.connections
    await until(lambda: not connection.still_missing)
    gate.set()
    for _ in range(MAX_REQUESTS):
        assert code_of(await client.answer(ProduceResponse)) == 0


async def test_memory_that_others_hold_stops_none_in_the_middle(stage: Stage) -> None:
    client = await warm(stage)
    budget = stage.gateway.mesh.budget
    request = await half(client)
    budget.add(budget.limit_bytes + 1)
    try:
        request.second()
        assert code_of(await client.answer(ProduceResponse)) == 0
    finally:
        budget.add(-budget.limit_bytes - 1)


async def test_a_gateway_that_stops_answers_what_has_begun(stage: Stage) -> None:
    client = await warm(stage)
    request = await half(client)
    (connection,) = stage.gateway.connections
    connection.drain("the gateway stops")
    request.second()
    assert code_of(await client.answer(ProduceResponse)) == 0
    await client.closed()


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 14, 40, 1023])
async def test_a_beginning_that_comes_in_pieces_is_waited_for(cut: int, stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    before, counted = _out.total, planned()
    client.expect(9)
    frame = encode_request(produce("apples", LARGE), 9, client.last_id, "raw")
    client.send_bytes(frame[:cut])
    (connection,) = stage.gateway.connections
    await until(lambda: len(connection._rest) == cut)
    client.send_bytes(frame[cut:HALF])
    await until(lambda: _out.total - before == HALF)
    client.send_bytes(frame[HALF:])
    assert code_of(await client.answer(ProduceResponse)) == 0
    assert planned() == counted
    assert int.from_bytes(frame[:SIZE_BYTES], "big") + SIZE_BYTES == _out.total - before
