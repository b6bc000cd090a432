"""A Produce that is forwarded: nobody can tell it from one that goes by its plan."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion
from services.gateway import metrics
from services.gateway.downstream import following, sweeping, turns
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_request
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.metadata import MetadataResponsePartition
from services.gateway.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    TopicProduceData,
)
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_order import gated, produce, written
from tests.unit.gateway.wire.records import batch

Planned = Callable[[], int]


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


async def warm(stage: Stage, topic: str = "apples", partition: int = 0) -> RawClient:
    """A client two of whose requests have passed: at the first one the leader was not known."""
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    for _ in range(2):
        await client.ask(produce(topic, partition=partition), 9, ProduceResponse)
    for there in (stage.c1, stage.c2):
        there.received.clear()
    return client


def numbered(sequence: int, topic: str = "apples") -> ProduceRequest:
    """Of an idempotent producer."""
    records = batch(b"%d" % sequence, producer_id=7, epoch=0, sequence=sequence)
    return ProduceRequest(None, -1, 1000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])])


def code_of(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("version", range(3, 13))
async def test_requests_and_answers_pass_byte_for_byte(version: int, stage: Stage, planned: Planned) -> None:
    offset = 0

    def stored(header: object, message: ProduceRequest) -> ProduceResponse:
        nonlocal offset
        offset += 1
        answer = written(message)
        part = answer.responses[0].partition_responses[0]
        part.base_offset, part.log_append_time_ms, part.log_start_offset = offset, 2, 3 if version >= 5 else -1
        return replace(answer, throttle_time_ms=11)

    stage.c1.scripts[ApiKey.PRODUCE] = stored
    client = await stage.connect()
    sent = [produce("apples", bytes(size)) for size in (5, 9, 200, 20_000, 70_000)]
    for message in sent:
        client.send(message, version)
    answers = [await client.answer(ProduceResponse) for _ in sent]
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == [1, 2, 3, 4, 5]
    assert {answer.throttle_time_ms for answer in answers} == {11}
    bodies = [encode_request(message, version, 0, "raw") for message in sent]
    received = [
        body for (header, _), body in zip(stage.c1.received, stage.c1.bodies, strict=True) if not header.api_key
    ]
    assert [body[-len(there) :] for body, there in zip(bodies, received, strict=True)] == received
    assert {header.client_id for header, _ in stage.c1.received if header.api_key == ApiKey.PRODUCE} == {"raw"}
    before = planned()
    await client.ask(sent[0], version, ProduceResponse)
    assert planned() == before


async def test_a_topic_that_the_client_tells_by_its_id_is_named_to_its_cluster(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    topic_id = mesh_topic_id(stage.gateway.mesh.mesh_id, "apples")

    def by_id(records: bytes) -> ProduceRequest:
        message = produce("apples", records)
        message.topic_data[0].topic_id = topic_id
        return message

    def stored(header: object, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        answer.responses[0].partition_responses[0].base_offset = 77
        return answer

    await client.ask(by_id(b"first"), 13, ProduceResponse)
    stage.c1.scripts[ApiKey.PRODUCE] = stored
    before = planned()
    client.send(by_id(b"apples"), 13)
    client.send(by_id(bytes(70_000)), 13)
    for _ in range(2):
        (topic,) = (await client.answer(ProduceResponse)).responses
        assert (topic.topic_id, topic.partition_responses[0].base_offset) == (topic_id, 77)
    assert planned() == before
    assert {(header.api_version, header.client_id) for header, _ in stage.c1.received} == {(12, "raw")}
    sent = [message.topic_data[0] for message in stage.c1.requests(ApiKey.PRODUCE)]
    assert [topic.name for topic in sent] == ["apples"] * 3
    assert [bytes(topic.partition_data[0].records) for topic in sent[1:]] == [batch(b"apples"), batch(bytes(70_000))]
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: refused(message, ErrorCode.MESSAGE_TOO_LARGE)
    (topic,) = (await client.ask(by_id(b"apples"), 13, ProduceResponse)).responses
    assert (topic.topic_id, topic.partition_responses[0].error_code) == (topic_id, ErrorCode.MESSAGE_TOO_LARGE)


def refused(message: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    answer = written(message)
    answer.responses[0].partition_responses[0].error_code = error
    return answer


async def test_answers_leave_in_the_order_of_the_requests(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    for _ in range(2):
        await client.ask(produce("bananas"), 9, ProduceResponse)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before = planned()
    for topic in ("apples", "bananas", "apples"):
        client.send(produce(topic), 9)
    client.send(ApiVersionsRequest(), 0)
    await until(lambda: len(stage.c2.requests(ApiKey.PRODUCE)) == 3)  # not held up by c1
    gate.set()
    for topic in ("apples", "bananas", "apples"):
        assert (await client.answer(ProduceResponse)).responses[0].name == topic
    assert (await client.answer(ApiVersionsResponse)).error_code == 0
    assert planned() == before + 1, "ApiVersions alone"
    assert not stage.gateway.mesh.producing


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
async def test_an_error_is_told_as_ever(said: ErrorCode, heard: ErrorCode, stage: Stage) -> None:
    client = await warm(stage)
    await client.ask(numbered(0), 9, ProduceResponse)
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: refused(message, said)
    assert code_of(await client.ask(numbered(1), 9, ProduceResponse)) == heard


async def test_after_a_refused_batch_later_ones_wait_for_it_to_come_back(stage: Stage) -> None:
    client = await warm(stage)
    await client.ask(numbered(0), 9, ProduceResponse)

    def not_leader(header: object, message: ProduceRequest) -> ProduceResponse:
        stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        return refused(message, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    stage.c1.scripts[ApiKey.PRODUCE] = not_leader
    assert code_of(await client.ask(numbered(1), 9, ProduceResponse))
    assert code_of(await client.ask(numbered(2), 9, ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(await client.ask(numbered(1), 9, ProduceResponse)) == 0
    assert code_of(await client.ask(numbered(2), 9, ProduceResponse)) == 0


async def test_an_answer_with_a_message_reaches_the_client(stage: Stage) -> None:
    client = await warm(stage)

    def explained(header: object, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        part = answer.responses[0].partition_responses[0]
        part.error_code = ErrorCode.INVALID_RECORD
        part.record_errors, part.error_message = [BatchIndexAndErrorMessage(0, "no key")], "bad records"
        return answer

    stage.c1.scripts[ApiKey.PRODUCE] = explained
    part = (await client.ask(produce("apples"), 9, ProduceResponse)).responses[0].partition_responses[0]
    assert (part.error_message, part.record_errors[0].batch_index_error_message) == ("bad records", "no key")


async def test_a_batch_whose_answer_was_lost_may_be_stored(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(numbered(0), 9)
    client.send(numbered(1), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 2)
    for there in list(stage.c1.connections):
        there.transport.abort()
    heard = [code_of(await client.answer(ProduceResponse)) for _ in range(2)]
    assert heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] * 2
    assert len(stage.gateway.mesh.memory.doubts) == 1
    gate.set()
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    for sequence in range(3):
        assert code_of(await client.ask(numbered(sequence), 9, ProduceResponse)) == 0


async def test_a_batch_without_an_answer_is_in_doubt_where_it_was_sent_whatever_table_is_in_force(stage: Stage) -> None:
    client = await warm(stage)
    await client.ask(numbered(0), 9, ProduceResponse)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(numbered(1), 9)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) == 2)
    mesh = stage.gateway.mesh
    mesh.run_table(stage.table(2, apples="c2", bananas="c2"))  # without a hold, or after one that has lasted too long
    for there in list(stage.c1.connections):
        there.transport.abort()
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    gate.set()
    doubt = mesh.memory.doubts.get((7, 0, "apples", 0), asyncio.get_running_loop().time())
    assert doubt is not None
    assert doubt.stay.cluster == "c1"


async def test_a_hold_waits_for_it_and_what_comes_then_goes_to_the_new_cluster(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce("apples", b"old"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    after = stage.table(2, apples="c2", bananas="c2")
    hold = stage.gateway.mesh.begin_hold(after)
    client.send(produce("apples", b"new"), 9)
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    stage.gateway.mesh.end_hold(after)
    for _ in range(2):
        assert code_of(await client.answer(ProduceResponse)) == 0
    assert [bytes(m.topic_data[0].partition_data[0].records)[61:] for m in stage.c2.requests(ApiKey.PRODUCE)] == [
        b"new"
    ]


async def test_a_hold_of_another_topic_does_not_wait_for_it(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce("apples"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    assert stage.gateway.mesh.begin_hold(stage.table(2, apples="c1", bananas="c1")).complete.is_set()
    stage.gateway.mesh.end_hold()
    gate.set()
    await client.answer(ProduceResponse)


async def test_a_table_in_force_counts_for_the_next_request(stage: Stage) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(2, apples="c2", bananas="c2"))
    await client.ask(produce("apples"), 9, ProduceResponse)
    assert [len(there.requests(ApiKey.PRODUCE)) for there in (stage.c1, stage.c2)] == [0, 1]


async def test_a_rule_that_is_gone_counts_for_the_next_request(stage: Stage) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(2, bananas="c2"))
    assert code_of(await client.ask(produce("apples"), 9, ProduceResponse)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_rules_that_rename_others_are_no_obstacle_and_what_they_rename_is_looked_at(
    stage: Stage, planned: Planned
) -> None:
    before = stage.table(1, bananas="c1")
    renaming = ForwardingRule("green", ExactName("pears"), "c1", "apples")
    table = RoutingTable(2, before.clusters.values(), [*before.versions, RuleVersion(renaming, 9.0, 2)])
    stage.gateway.mesh.run_table(table)
    client = await warm(stage, "bananas")
    counted = planned()
    await client.ask(produce("bananas"), 9, ProduceResponse)
    assert planned() == counted
    for _ in range(3):
        assert (await client.ask(produce("pears"), 9, ProduceResponse)).responses[0].name == "pears"
    assert planned() == counted + 3
    assert [m.topic_data[0].name for m in stage.c1.requests(ApiKey.PRODUCE)] == [
        "bananas",
        "apples",
        "apples",
        "apples",
    ]


async def test_a_leader_in_doubt_is_asked_for(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.gateway.mesh.clusters.known["c1"].doubt(["apples"])
    asked, before = len(stage.c1.requests(ApiKey.METADATA)), planned()
    assert code_of(await client.ask(produce("apples"), 9, ProduceResponse)) == 0
    assert (len(stage.c1.requests(ApiKey.METADATA)), planned()) == (asked + 1, before + 1)


async def test_a_partition_without_a_leader_is_not_written_to(stage: Stage) -> None:
    client = await warm(stage)
    told = stage.c1.metadata

    def leaderless(header: RequestHeader, message: object) -> MetadataResponse:
        answer = told(message)  # type: ignore[arg-type]
        for topic in answer.topics:
            topic.partitions = [MetadataResponsePartition(5, part.partition_index, -1) for part in topic.partitions]
        return answer

    stage.c1.scripts[ApiKey.METADATA] = leaderless
    stage.gateway.mesh.clusters.known["c1"].doubt(["apples"])
    assert code_of(await client.ask(produce("apples"), 9, ProduceResponse)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_what_a_client_produced_before_it_left_is_waited_for(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce("apples"), 9)
    await until(lambda: stage.c1.requests(ApiKey.PRODUCE))
    client.close()
    await until(lambda: not stage.gateway.connections)
    assert stage.gateway.mesh.producing
    gate.set()
    await until(lambda: not stage.gateway.mesh.producing)


async def test_clients_of_one_connection_are_told_apart(stage: Stage) -> None:
    client = await warm(stage)
    await client.ask(produce("apples"), 9, ProduceResponse, client_id="other")
    for name in ("raw", "other", None, "raw"):
        await client.ask(produce("apples"), 9, ProduceResponse, client_id=name)
    names = [header.client_id for header, _ in stage.c1.received if header.api_key == ApiKey.PRODUCE]
    assert names == ["other", "raw", "other", None, "raw"]


async def test_it_is_counted_as_ever(stage: Stage) -> None:
    client = await warm(stage)
    counts = (
        metrics.requests.labels("Produce", "9", "answered"),
        metrics.upstream_calls.labels("c1", "Produce"),
        metrics.client_bytes.labels("in"),
        metrics.upstream_bytes.labels("c1", "out"),
    )
    before = [count.total for count in counts]
    await client.ask(produce("apples"), 9, ProduceResponse)
    size = len(encode_request(produce("apples"), 9, 1, "raw"))
    assert [count.total - was for count, was in zip(counts, before, strict=True)] == [1, 1, size, size]


async def test_another_version_needs_no_plan_and_one_that_the_cluster_lacks_does(
    stage: Stage, planned: Planned
) -> None:
    client = await warm(stage)
    before = planned()
    await client.ask(produce("apples"), 10, ProduceResponse)
    assert planned() == before
    versions = stage.gateway.mesh.clusters.known["c1"].versions
    versions[ApiKey.PRODUCE] = VersionRange(3, 9)
    stage.gateway.mesh.clusters._recount()
    await client.ask(produce("apples"), 9, ProduceResponse)
    assert planned() == before
    await client.ask(produce("apples"), 10, ProduceResponse)
    assert planned() == before + 1
    assert {header.api_version for header, _ in stage.c1.received} == {9, 10}


async def test_message_sets_need_a_plan_also_if_the_cluster_takes_them(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.gateway.mesh.clusters.known["c1"].versions[ApiKey.PRODUCE] = VersionRange(0, 11)
    stage.gateway.mesh.clusters._recount()
    before = planned()
    client.send(produce("apples"), 2)
    await until(lambda: planned() == before + 1)
    await client.answer(ProduceResponse)
    assert {header.api_version for header, _ in stage.c1.received} <= {3}


async def test_a_partition_and_a_topic_that_come_for_the_first_time_need_no_plan(
    stage: Stage, planned: Planned
) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(2, apples="c1", bananas="c1"))
    for topic in ("apples", "bananas"):
        await client.ask(produce(topic), 9, ProduceResponse, client_id="who knows the leaders")
    before = planned()
    await client.ask(produce("apples", partition=1), 9, ProduceResponse)
    await client.ask(produce("bananas", partition=1), 9, ProduceResponse, client_id="new")
    assert planned() == before


async def test_what_lies_about_its_length_is_looked_at(stage: Stage) -> None:
    client = await warm(stage)
    frame = bytearray(encode_request(produce("apples"), 9, 2, "raw"))
    frame[-1] = 1  # a tag is promised
    client.send_bytes(bytes(frame))
    assert await client.closed() == b""


async def test_a_connection_remembers_no_more_than_so_many_routes(
    stage: Stage, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ROUTES_REMEMBERED", 1)
    client = await warm(stage)
    for _ in range(2):
        await client.ask(produce("bananas"), 9, ProduceResponse)
    before = planned()
    for topic in ("apples", "bananas", "apples"):
        await client.ask(produce(topic), 9, ProduceResponse)
    assert planned() == before
    (connection,) = stage.gateway.connections
    assert list(connection._forwarder._routes) == ["apples"]


async def test_the_look_for_shadows_leaves_the_ways_as_they_are(
    stage: Stage, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the clusters for all their topics, and hears nothing new."""
    client = await warm(stage)
    monkeypatch.setattr(sweeping, "SHADOWS_PAUSE_S", 0.01)
    asked = len(stage.c1.requests(ApiKey.METADATA))
    looking = asyncio.create_task(sweeping.Sweeping(stage.gateway.mesh, Advertised("127.0.0.1", 1)).run())
    await until(lambda: len(stage.c1.requests(ApiKey.METADATA)) > asked + 1)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    before = planned()
    assert code_of(await client.ask(produce("apples"), 9, ProduceResponse)) == ErrorCode.NONE
    assert planned() == before
