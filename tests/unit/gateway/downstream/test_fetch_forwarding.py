"""A Fetch that is forwarded to one broker: nobody can tell it from one that goes by its plan."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion
from mesh.traffic.counting import Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway import metrics
from services.gateway.downstream import fetch_forwarding, fetch_passing, turns
from services.gateway.downstream.exchange import Exchange
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.answer_memory import LEAST_POLL_BYTES, POLL_BYTES, SCARCE_POLL_BYTES, Share
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_response
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    PartitionData,
)
from services.gateway.wire.scanner.fetch_beginning import read_beginning
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.wire.records import batch

Planned = Callable[[], int]
MESH = "kafka-mesh"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """How many requests went by a plan so far."""
    plans = 0

    class Counted(Exchange):
        def start(self) -> None:
            nonlocal plans
            plans += 1
            super().start()

    for module in (turns, fetch_forwarding):
        monkeypatch.setattr(module, "Exchange", Counted)
    return lambda: plans


def fetch(*topics: str, offset: int = 42, session: int = 0, epoch: int = -1, version: int = 12) -> FetchRequest:
    by_ids = version >= 13
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000_000,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                "" if by_ids else topic,
                mesh_topic_id(MESH, topic) if by_ids else bytes(16),
                [FetchPartition(0, -1, offset, partition_max_bytes=1_000_000)],
            )
            for topic in topics
        ],
    )


def brought(records: bytes = b"records", *, end: int = 50, error: int = 0) -> Callable[[RequestHeader, Any], Any]:
    """A broker's script: it has this for each partition that it is asked for."""

    def answer(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        return FetchResponse(
            throttle_time_ms=7,
            responses=[
                FetchableTopicResponse(
                    topic.topic,
                    partitions=[
                        PartitionData(p.partition, error, end, end, 0, records=records) for p in topic.partitions
                    ],
                )
                for topic in message.topics
            ],
        )

    return answer


async def warm(stage: Stage, version: int = 12, *topics: str) -> RawClient:
    """A client two of whose polls have passed: at the first one the leader was not known."""
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought()
    client = await stage.connect()
    for _ in range(2):
        await client.ask(fetch(*(topics or ("apples",)), version=version), version, FetchResponse)
    for there in (stage.c1, stage.c2):
        there.received.clear()
    return client


def seen(answer: FetchResponse) -> list[tuple[str, int, bytes]]:
    names = {mesh_topic_id(MESH, topic): topic for topic in ("apples", "bananas", "pears")}
    return [
        (topic.topic or names[topic.topic_id], part.error_code, bytes(part.records or b""))
        for topic in answer.responses
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", [4, 6, 7, 9, 11, 12, 13, 18])
async def test_polls_and_answers_are_those_of_a_plan(version: int, stage: Stage, planned: Planned) -> None:
    client = await warm(stage, version)
    before = planned()
    for offset, records in ((42, b"same again"), (43, b""), (43, b""), (44, bytes(70_000)), (45, bytes(2_000_000))):
        stage.c1.scripts[ApiKey.FETCH] = brought(records, end=offset + 1)
        answer = await client.ask(fetch("apples", offset=offset, version=version), version, FetchResponse)
        assert seen(answer) == [("apples", 0, records)]
        assert answer.throttle_time_ms == 7
        assert answer.responses[0].partitions[0].high_watermark == offset + 1
    assert planned() == before
    asked = [(header, message) for header, message in stage.c1.received if header.api_key == ApiKey.FETCH]
    assert {(header.api_version, header.client_id) for header, _ in asked} == {(min(version, 12), "raw")}
    if version >= 12:
        assert [message for _, message in asked] == [fetch("apples", offset=at) for at in (42, 43, 43, 44, 45)]
    assert [message.topics[0].partitions[0].fetch_offset for _, message in asked] == [42, 43, 43, 44, 45]


@pytest.mark.parametrize("version", [7, 12, 17])
async def test_a_session_is_told_what_is_new(version: int, stage: Stage, planned: Planned) -> None:
    stage.gateway.mesh.run_table(stage.table(2, apples="c1", bananas="c1"))
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=42)
    client = await stage.connect()
    first = await client.ask(fetch("apples", "bananas", epoch=0, version=version), version, FetchResponse)
    session = first.session_id
    assert session
    assert seen(await client.ask(fetch(session=session, epoch=1), version, FetchResponse)) == []
    before = planned()
    for epoch in (2, 3):
        answer = await client.ask(fetch(session=session, epoch=epoch), version, FetchResponse)
        assert (answer.session_id, answer.error_code, seen(answer)) == (session, 0, [])

    def one_brings(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        answer = brought(b"", end=42)(header, message)
        part = answer.responses[0].partitions[0]
        part.records, part.high_watermark = b"new", 43
        return answer  # type: ignore[no-any-return]

    stage.c1.scripts[ApiKey.FETCH] = one_brings
    answer = await client.ask(fetch(session=session, epoch=4), version, FetchResponse)
    assert (answer.session_id, seen(answer)) == (session, [("apples", 0, b"new")])
    stage.c1.scripts[ApiKey.FETCH] = brought(b"all", end=44)
    request = fetch("apples", offset=43, session=session, epoch=5, version=version)
    answer = await client.ask(request, version, FetchResponse)
    assert sorted(seen(answer)) == [("apples", 0, b"all"), ("bananas", 0, b"all")]
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=44)
    for epoch in (6, 7):
        request = fetch("apples", "bananas", offset=44, session=session, epoch=epoch, version=version)
        assert seen(await client.ask(request, version, FetchResponse)) == []
    assert planned() == before
    asked = stage.c1.requests(ApiKey.FETCH)[-1]
    assert {(t.topic, t.partitions[0].fetch_offset) for t in asked.topics} == {("apples", 44), ("bananas", 44)}
    wrong = await client.ask(fetch(session=session, epoch=7), version, FetchResponse)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_two_connections_of_one_session_do_not_mistake_each_other(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=42)
    one, other = await stage.connect(), await stage.connect()
    session = (await one.ask(fetch("apples", epoch=0), 12, FetchResponse)).session_id
    for epoch in (1, 2, 3):
        assert (await one.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)).error_code == 0
    asked = fetch("apples", offset=50, session=session, epoch=4)
    assert (await other.ask(asked, 12, FetchResponse)).error_code == 0
    for client, epoch in ((one, 5), (other, 6), (other, 7), (one, 8)):
        assert (await client.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)).error_code == 0
        assert stage.c1.requests(ApiKey.FETCH)[-1].topics[0].partitions[0].fetch_offset == 50
    repeated = await one.ask(fetch(session=session, epoch=8), 12, FetchResponse)
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_many_partitions_of_a_client_without_a_session_are_forwarded_too(stage: Stage, planned: Planned) -> None:
    stage.c1.topics = {"apples": 20}
    stage.c1.scripts[ApiKey.FETCH] = brought()
    client = await stage.connect()
    message = fetch("apples")
    message.topics[0].partitions = [FetchPartition(n, -1, 5, partition_max_bytes=1000) for n in range(20)]
    await client.ask(message, 12, FetchResponse)
    before = planned()
    for _ in range(2):
        assert len(seen(await client.ask(message, 12, FetchResponse))) == 20
    assert planned() == before
    assert {(asked.session_id, asked.session_epoch) for asked in stage.c1.requests(ApiKey.FETCH)} == {(0, -1)}


async def test_only_what_passes_while_it_comes_is_asked_for_as_a_whole(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    before = planned()
    for partitions, most in ((1, 50 << 20), (2, POLL_BYTES), (1, 50 << 20)):
        message = fetch("apples")
        message.topics[0].partitions = [
            FetchPartition(n, -1, 42, partition_max_bytes=50 << 20) for n in range(partitions)
        ]
        message.min_bytes = message.max_bytes = 50 << 20
        await client.ask(message, 12, FetchResponse)
        asked = stage.c1.requests(ApiKey.FETCH)[-1]
        assert (asked.min_bytes, asked.max_bytes) == (most, most)
    assert planned() == before


async def test_an_answer_that_may_have_to_be_held_back_is_gathered(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    message = fetch("apples")
    message.isolation_level, message.max_bytes = 1, 50 << 20
    await client.ask(message, 12, FetchResponse)
    before = planned()
    await client.ask(message, 12, FetchResponse)
    assert planned() == before
    assert stage.c1.requests(ApiKey.FETCH)[-1].max_bytes == POLL_BYTES


async def test_a_poll_that_says_the_same_asks_for_less_when_there_is_less_room(stage: Stage, planned: Planned) -> None:
    client, room = await warm(stage), stage.gateway.mesh.clusters.answer_room
    stage.c1.scripts[ApiKey.FETCH] = brought(b"")
    before, others = planned(), Share(room)
    message = fetch("apples")
    message.topics[0].partitions.append(FetchPartition(1, -1, 42, partition_max_bytes=1))
    for taken, most in ((0, POLL_BYTES), (0.6, SCARCE_POLL_BYTES), (0.3, LEAST_POLL_BYTES), (0, LEAST_POLL_BYTES)):
        others.take(int(taken * room.limit_bytes))
        for _ in range(2):
            await client.ask(message, 12, FetchResponse)
            assert stage.c1.requests(ApiKey.FETCH)[-1].max_bytes == min(message.max_bytes, most)
    assert planned() == before


async def test_who_is_overtaken_in_its_session_by_another_connection_is_told(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=42)
    one, other = await stage.connect(), await stage.connect()
    session = (await one.ask(fetch("apples", epoch=0), 12, FetchResponse)).session_id
    for epoch in (1, 2):
        await one.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)
    gate = asyncio.Event()

    async def later(header: RequestHeader, message: FetchRequest) -> Any:
        await gate.wait()
        return brought(b"late")(header, message)

    before = len(stage.c1.requests(ApiKey.FETCH))
    stage.c1.scripts[ApiKey.FETCH] = later
    one.send(fetch(session=session, epoch=3), 12)
    await until(lambda: len(stage.c1.requests(ApiKey.FETCH)) == before + 1)
    other.send(fetch(session=session, epoch=4), 12)
    await until(lambda: len(stage.c1.requests(ApiKey.FETCH)) == before + 2)
    gate.set()
    assert (await one.answer(FetchResponse)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert seen(await other.answer(FetchResponse)) == [("apples", 0, b"late")]


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_an_error_is_told_as_ever(error: ErrorCode, stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", error=error)
    asked, before = len(stage.c1.requests(ApiKey.FETCH)), planned()
    assert seen(await client.ask(fetch("apples"), 12, FetchResponse)) == [("apples", error, b"")]
    assert (len(stage.c1.requests(ApiKey.FETCH)), planned()) == (asked + 1, before + 1), "it is not asked twice"
    stage.c1.scripts[ApiKey.FETCH] = brought()
    assert seen(await client.ask(fetch("apples"), 12, FetchResponse)) == [("apples", 0, b"records")]
    is_led_elsewhere = error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(stage.c1.requests(ApiKey.METADATA)) == is_led_elsewhere


async def test_a_nearer_replica_is_asked_and_not_named(stage: Stage) -> None:
    client = await warm(stage)

    def nearer(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        answer = brought(b"")(header, message)
        answer.responses[0].partitions[0].preferred_read_replica = 1
        return answer  # type: ignore[no-any-return]

    stage.c1.scripts[ApiKey.FETCH] = nearer
    answer = await client.ask(fetch("apples"), 12, FetchResponse)
    assert answer.responses[0].partitions[0].preferred_read_replica == -1


async def test_a_broker_that_is_lost_in_mid_poll_is_told_after_the_wait(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()

    async def hangs(header: RequestHeader, message: FetchRequest) -> None:
        await gate.wait()

    stage.c1.scripts[ApiKey.FETCH] = hangs
    client.send(fetch("apples"), 12)
    await until(lambda: stage.c1.requests(ApiKey.FETCH))
    for there in list(stage.c1.connections):
        there.transport.abort()
    assert seen(await client.answer(FetchResponse)) == [("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")]
    gate.set()
    stage.c1.scripts[ApiKey.FETCH] = brought()
    async with asyncio.timeout(WITHIN_S):
        while seen(await client.ask(fetch("apples"), 12, FetchResponse)) != [("apples", 0, b"records")]:
            pass


async def test_a_poll_finishes_under_the_table_that_it_started_with_and_the_next_one_does_not(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()

    async def later(header: RequestHeader, message: FetchRequest) -> Any:
        await gate.wait()
        return brought(b"old")(header, message)

    stage.c1.scripts[ApiKey.FETCH] = later
    stage.c2.scripts[ApiKey.FETCH] = brought(b"new")
    client.send(fetch("apples"), 12)
    await until(lambda: stage.c1.requests(ApiKey.FETCH))
    stage.gateway.mesh.run_table(stage.table(2, apples="c2", bananas="c2"))
    gate.set()
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"old")]
    assert seen(await client.ask(fetch("apples"), 12, FetchResponse)) == [("apples", 0, b"new")]


async def test_a_poll_whose_cluster_goes_with_the_table_is_answered_all_the_same(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()

    async def hangs(header: RequestHeader, message: FetchRequest) -> None:
        await gate.wait()

    stage.c1.scripts[ApiKey.FETCH] = hangs
    client.send(fetch("apples"), 12)
    await until(lambda: stage.c1.requests(ApiKey.FETCH))
    mesh = stage.gateway.mesh
    full = stage.table(2, apples="c2", bananas="c2")
    mesh.run_table(RoutingTable(2, [full.clusters["c2"]], full.versions))
    mesh.clusters.known = {name: known for name, known in mesh.clusters.known.items() if name != "c1"}
    for there in list(stage.c1.connections):
        there.transport.abort()
    assert seen(await client.answer(FetchResponse)) == [("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")]
    gate.set()


async def test_a_rule_that_is_gone_counts_for_the_next_poll(stage: Stage) -> None:
    client = await warm(stage)
    stage.gateway.mesh.run_table(stage.table(2, bananas="c2"))
    answer = await client.ask(fetch("apples"), 12, FetchResponse)
    assert seen(answer) == [("apples", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")]


async def test_a_leader_in_doubt_is_asked_for(stage: Stage, planned: Planned) -> None:
    client = await warm(stage)
    stage.gateway.mesh.clusters.known["c1"].doubt(["apples"])
    asked, before = len(stage.c1.requests(ApiKey.METADATA)), planned()
    assert seen(await client.ask(fetch("apples"), 12, FetchResponse)) == [("apples", 0, b"records")]
    assert (len(stage.c1.requests(ApiKey.METADATA)), planned()) == (asked + 1, before + 1)


@pytest.mark.parametrize("version", [11, 12, 17])
async def test_a_renamed_topic_has_its_clients_name_in_answers_and_its_clusters_in_polls(
    version: int, stage: Stage
) -> None:
    before = stage.table(1, bananas="c1")
    renaming = ForwardingRule("green", ExactName("pears"), "c1", "apples")
    stage.gateway.mesh.run_table(
        RoutingTable(2, before.clusters.values(), [*before.versions, RuleVersion(renaming, 9.0, 2)])
    )
    client = await warm(stage, version, "pears", "bananas")
    for records in (b"", b"", bytes(1024), bytes(70_000)):
        stage.c1.scripts[ApiKey.FETCH] = brought(records)
        answer = await client.ask(fetch("pears", "bananas", version=version), version, FetchResponse)
        assert seen(answer) == [("pears", 0, records), ("bananas", 0, records)]
    for message in stage.c1.requests(ApiKey.FETCH):
        assert [topic.topic for topic in message.topics] == ["apples", "bananas"]
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", error=ErrorCode.OFFSET_OUT_OF_RANGE)
    answer = await client.ask(fetch("pears", "bananas", version=version), version, FetchResponse)
    assert seen(answer) == [(topic, ErrorCode.OFFSET_OUT_OF_RANGE, b"") for topic in ("pears", "bananas")]


async def test_topics_of_two_clusters_are_divided(stage: Stage) -> None:
    client = await warm(stage)
    answer = await client.ask(fetch("apples", "bananas"), 12, FetchResponse)
    assert len(seen(answer)) == 2
    assert stage.c1.requests(ApiKey.FETCH)
    await until(lambda: stage.c2.requests(ApiKey.FETCH))


async def test_what_comes_behind_a_poll_waits_for_it_as_on_a_broker(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()

    async def later(header: RequestHeader, message: FetchRequest) -> Any:
        await gate.wait()
        return brought()(header, message)

    stage.c1.scripts[ApiKey.FETCH] = later
    for _ in range(2):
        client.send(fetch("apples"), 12)
    client.send(MetadataRequest(), 9)
    client.send(ApiVersionsRequest(), 0)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 4)
    assert len(stage.c1.requests(ApiKey.FETCH)) == 1
    gate.set()
    for _ in range(2):
        assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"records")]
    assert (await client.answer(MetadataResponse)).brokers
    assert (await client.answer(ApiVersionsResponse)).error_code == 0


async def test_a_client_that_is_gone_takes_its_poll_along(stage: Stage) -> None:
    client = await warm(stage)
    gate = asyncio.Event()

    async def hangs(header: RequestHeader, message: FetchRequest) -> None:
        await gate.wait()

    stage.c1.scripts[ApiKey.FETCH] = hangs
    client.send(fetch("apples"), 12)
    await until(lambda: stage.c1.requests(ApiKey.FETCH))
    connections = len(stage.c1.connections)
    client.abort()
    await until(lambda: not stage.gateway.connections)
    gate.set()
    await until(lambda: len(stage.c1.connections) < connections)


async def test_it_is_counted_as_ever(stage: Stage) -> None:
    client = await warm(stage)
    counts = (metrics.requests.labels("Fetch", "12", "answered"), metrics.upstream_calls.labels("c1", "Fetch"))
    before = [count.total for count in counts]
    await client.ask(fetch("apples"), 12, FetchResponse)
    assert [count.total - was for count, was in zip(counts, before, strict=True)] == [1, 1]


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("version", [11, 12, 17])
async def test_a_large_answer_passes_while_it_comes(
    version: int, counted: bool, stage: Stage, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    def begins(*arguments: Any) -> Any:
        nonlocal begun
        found = read_beginning(*arguments)
        begun += found is not None
        return found

    monkeypatch.setattr(fetch_passing, "read_beginning", begins)
    counts = Counts(LatencySketch, datetime.now(UTC))
    if counted:
        stage.gateway.mesh.memory.traffic = ClientTraffic(counts, time.monotonic)
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=42)
    client = await stage.connect()
    session = (await client.ask(fetch("apples", epoch=0, version=version), version, FetchResponse)).session_id
    await client.ask(fetch(session=session, epoch=1), version, FetchResponse)
    counts.take(datetime.now(UTC))
    before = planned()
    records = b"".join(batch(bytes(100_000)) for _ in range(30))
    stage.c1.scripts[ApiKey.FETCH] = brought(records, end=80)
    for epoch in (2, 3):
        asked = fetch("apples", offset=40 + epoch, session=session, epoch=epoch, version=version)
        answer = await client.ask(asked, version, FetchResponse)
        assert (answer.session_id, answer.throttle_time_ms, seen(answer)) == (session, 7, [("apples", 0, records)])
    assert (planned(), begun) == (before, 2)
    stage.c1.scripts[ApiKey.FETCH] = brought(b"", end=80)
    assert seen(await client.ask(fetch(session=session, epoch=4), version, FetchResponse)) == []
    tallies = counts.take(datetime.now(UTC)).tallies
    by_topic = {who[2]: (tally.records, tally.bytes) for who, tally in tallies.items() if who[5] == "Fetch"}
    assert by_topic == ({"apples": (60, 2 * len(records)), "": (0, 0)} if counted else {})


async def test_a_broker_that_is_lost_in_mid_answer_takes_the_client_along(stage: Stage) -> None:
    client = await warm(stage)
    begun = asyncio.Event()

    async def half(header: RequestHeader, message: FetchRequest) -> bytes:
        begun.set()
        frame = encode_response(brought(bytes(3_000_000))(header, message), header.api_version, header.correlation_id)
        return frame[:2_000_000]

    stage.c1.scripts[ApiKey.FETCH] = half
    client.send(fetch("apples"), 12)
    await begun.wait()
    (connection,) = stage.gateway.connections
    await until(lambda: connection._slots.passing is not None)
    for there in list(stage.c1.connections):
        there.transport.abort()
    await client.closed()
    await until(lambda: not stage.gateway.connections)
