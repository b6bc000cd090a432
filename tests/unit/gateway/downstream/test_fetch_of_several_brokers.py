"""A Fetch that is forwarded to several brokers, or in a broker's session: nobody can tell it from one by its plan."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from mesh.traffic.counting import Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway import metrics
from services.gateway.downstream import fetch_forwarding, turns
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.fetch_forwarding import FetchForwarder
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.answer_memory import LEAST_POLL_BYTES, POLL_BYTES, Share
from services.gateway.upstream.lanes import LEFT_BEHIND_S
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import FetchPartition, ForgottenTopic
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_fetch_forwarding import MESH, brought, fetch, seen
from tests.unit.gateway.scripted_broker import ScriptedBroker
from tests.unit.gateway.wire.records import batch

Planned = Callable[[], int]
BOTH = ("apples", "bananas")


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


class Log:
    """What a broker has: it answers when there is something behind the offset that it is asked for."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.end = 42
        self.error = 0
        self._came = asyncio.Event()
        broker.scripts[ApiKey.FETCH] = self.answer

    async def answer(self, header: RequestHeader, message: FetchRequest) -> FetchResponse:
        offset = message.topics[0].partitions[0].fetch_offset
        while offset >= self.end and not self.error:
            self._came.clear()
            await self._came.wait()
        records = b"" if self.error else b"%d" % offset
        return brought(records, end=self.end, error=self.error)(header, message)  # type: ignore[no-any-return]

    def write(self) -> None:
        self.end += 1
        self._came.set()

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self._came.set()


class Reader:
    """A client without a session, of both topics."""

    def __init__(self, client: RawClient, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.offsets = dict.fromkeys(BOTH, 42)
        self.max_bytes = 1_000_000

    def ask(self, wait_ms: int = 30_000) -> None:
        message = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=self.max_bytes, session_epoch=-1)
        for topic, offset in self.offsets.items():
            message.topics += fetch(topic, offset=offset, version=self.version).topics
        self.client.send(message, self.version)

    async def heard(self) -> list[tuple[str, int, bytes]]:
        """What it is told; where there are records, it goes on behind them."""
        told = sorted(seen(await self.client.answer(FetchResponse)))
        assert [topic for topic, *_ in told] == list(BOTH)
        for topic, _, records in told:
            if records:
                assert int(records) == self.offsets[topic]
                self.offsets[topic] += 1
        return told

    async def read(self, wait_ms: int = 30_000) -> list[tuple[str, int, bytes]]:
        self.ask(wait_ms)
        return await self.heard()


async def reading(stage: Stage, version: int = 12) -> tuple[Reader, Log, Log]:
    """A client whose requests are forwarded to both clusters, and what these have."""
    apples, bananas = Log(stage.c1), Log(stage.c2)
    apples.write()
    bananas.write()
    reader = Reader(await stage.connect(), version)
    while reader.offsets != {"apples": 43, "bananas": 43}:
        await reader.read()
    return reader, apples, bananas


async def left_behind(stage: Stage, reader: Reader, apples: Log, bananas: Log) -> LeftBehind:
    """What the bananas' broker says after the poll has been answered."""
    reader.ask()
    apples.write()
    await reader.heard()
    bananas.write()
    (connection,) = stage.gateway.connections
    waiting = connection._lanes.left_behind
    await until(lambda: [left.outcome is not None for left in waiting.values()] == [True])
    return next(iter(waiting.values()))


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_who_has_something_is_heard_and_the_other_one_is_left_behind(
    version: int, stage: Stage, planned: Planned
) -> None:
    reader, apples, bananas = await reading(stage, version)
    before, asked = planned(), len(stage.c2.requests(ApiKey.FETCH))
    for offset in range(43, 48):
        reader.ask()
        apples.write()
        assert await reader.heard() == [("apples", 0, b"%d" % offset), ("bananas", 0, b"")]
    assert len(stage.c2.requests(ApiKey.FETCH)) <= asked + 1, "it has been asked already"
    bananas.write()
    assert await reader.read() == [("apples", 0, b""), ("bananas", 0, b"43")]
    assert planned() == before
    for message in (*stage.c1.requests(ApiKey.FETCH), *stage.c2.requests(ApiKey.FETCH)):
        assert (len(message.topics), message.max_bytes) == (1, 500_000)


async def test_brokers_are_asked_for_no_more_than_is_gathered(stage: Stage, planned: Planned) -> None:
    reader, apples, bananas = await reading(stage)
    before = planned()
    reader.max_bytes = 50 << 20
    for log in (apples, bananas, apples, bananas):
        log.write()
        await reader.read()
    assert planned() == before
    for there in (stage.c1, stage.c2):
        assert there.requests(ApiKey.FETCH)[-1].max_bytes == POLL_BYTES // 2


async def test_a_poll_that_says_the_same_asks_for_less_when_there_is_less_room(stage: Stage, planned: Planned) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(b"")
    client, room = await stage.connect(), stage.gateway.mesh.clusters.answer_room
    for _ in range(3):
        await client.ask(fetch(*BOTH), 12, FetchResponse)
    before, others = planned(), Share(room)
    others.take(room.limit_bytes)
    for _ in range(2):
        await client.ask(fetch(*BOTH), 12, FetchResponse)
    assert planned() == before
    for there in (stage.c1, stage.c2):
        assert there.requests(ApiKey.FETCH)[-1].max_bytes == LEAST_POLL_BYTES // 2


async def test_what_was_left_behind_and_dropped_for_others_is_asked_for_again(stage: Stage) -> None:
    reader, apples, bananas = await reading(stage)
    (await left_behind(stage, reader, apples, bananas)).drop()
    assert await reader.read() == [("apples", 0, b""), ("bananas", 0, b"43")]
    for offset in (44, 45):
        bananas.write()
        assert await reader.read() == [("apples", 0, b""), ("bananas", 0, b"%d" % offset)]


async def test_a_poll_ends_with_its_wait(stage: Stage, planned: Planned) -> None:
    reader, apples, _ = await reading(stage)
    before = planned()
    assert await reader.read(wait_ms=20) == [("apples", 0, b""), ("bananas", 0, b"")]
    assert await reader.read(wait_ms=20) == [("apples", 0, b""), ("bananas", 0, b"")]
    apples.write()
    assert await reader.read() == [("apples", 0, b"43"), ("bananas", 0, b"")]
    assert planned() == before


async def test_who_is_left_behind_at_a_position_that_is_not_wanted_any_more_is_asked_again(stage: Stage) -> None:
    reader, apples, bananas = await reading(stage)
    reader.ask()
    apples.write()
    await reader.heard()
    reader.offsets["bananas"] = 42
    reader.ask()
    bananas.write()
    assert await reader.heard() == [("apples", 0, b""), ("bananas", 0, b"42")]


async def test_what_has_long_been_left_behind_is_heard_by_a_client_that_has_paused(stage: Stage) -> None:
    reader, apples, bananas = await reading(stage)
    left = await left_behind(stage, reader, apples, bananas)
    left.arrived -= 2 * LEFT_BEHIND_S
    async with asyncio.timeout(WITHIN_S):
        while reader.offsets["bananas"] == 43:
            assert len(await reader.read(wait_ms=100)) == 2


@pytest.mark.parametrize("error", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_an_error_of_one_is_told_as_ever(error: ErrorCode, stage: Stage, planned: Planned) -> None:
    reader, apples, bananas = await reading(stage)
    before = planned()
    reader.ask()
    await until(lambda: len(stage.c1.requests(ApiKey.FETCH)) > 1)
    bananas.fail(error)
    assert await reader.heard() == [("apples", 0, b""), ("bananas", error, b"")]
    assert planned() == before + 1
    bananas.error = 0
    bananas.write()
    while reader.offsets["bananas"] == 43:
        await reader.read()
    apples.write()
    while reader.offsets["apples"] == 43:
        await reader.read()


async def test_a_broker_that_is_lost_is_asked_again_and_the_other_one_read_on(stage: Stage) -> None:
    reader, apples, bananas = await reading(stage)
    reader.ask(wait_ms=100)
    for there in list(stage.c2.connections):
        there.transport.abort()
    await reader.heard()
    apples.write()
    while reader.offsets["apples"] == 43:
        await reader.read()
    bananas.write()
    async with asyncio.timeout(WITHIN_S):
        while reader.offsets["bananas"] == 43:
            await reader.read(wait_ms=100)


async def test_a_topic_that_moves_is_read_where_it_is(stage: Stage, planned: Planned) -> None:
    reader, _, _ = await reading(stage)

    def all_of_it(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        answer: FetchResponse = brought()(header, message)
        for asked, told in zip(message.topics, answer.responses, strict=True):
            told.partitions[0].records = b"%d" % asked.partitions[0].fetch_offset
        return answer

    before = planned()
    stage.gateway.mesh.run_table(stage.table(2, apples="c2", bananas="c2"))
    stage.c2.scripts[ApiKey.FETCH] = all_of_it
    for there in list(stage.c2.connections):  # what was asked there hangs
        there.transport.abort()
    async with asyncio.timeout(WITHIN_S):
        while min(reader.offsets.values()) < 45:
            await reader.read(wait_ms=100)
    assert planned() > before


async def test_a_client_that_is_gone_takes_its_poll_along(stage: Stage) -> None:
    reader, _, _ = await reading(stage)
    reader.ask()
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 1)
    reader.client.abort()
    await until(lambda: not stage.gateway.connections)
    await until(lambda: connection._fetches._timer is None)


async def test_it_is_counted_as_ever(stage: Stage, planned: Planned) -> None:
    counts = Counts(LatencySketch, datetime.now(UTC))
    stage.gateway.mesh.memory.traffic = ClientTraffic(counts, time.monotonic)
    records = bytes(batch(b"x"))
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(records)
    client = await stage.connect()
    for _ in range(3):
        await client.ask(fetch(*BOTH), 12, FetchResponse)
    counts.take(datetime.now(UTC))
    calls = (metrics.upstream_calls.labels("c1", "Fetch"), metrics.upstream_calls.labels("c2", "Fetch"))
    before, asked = planned(), sum(count.total for count in calls)
    heard = [seen(await client.ask(fetch(*BOTH), 12, FetchResponse)) for _ in range(4)]
    brought_by = {topic: sum(bool(r) for told in heard for name, _, r in told if name == topic) for topic in BOTH}
    tallies = counts.take(datetime.now(UTC)).tallies
    found = {who[2]: (who[4], tally.records, tally.bytes) for who, tally in tallies.items() if who[5] == "Fetch"}
    assert found == {
        topic: (cluster, times, times * len(records))
        for (topic, times), cluster in zip(brought_by.items(), ("c1", "c2"), strict=True)
        if times
    }
    assert planned() == before
    assert sum(count.total for count in calls) - asked <= 8


class InSession:
    """A broker that keeps a session: it has all partitions of apples, and tells what is new."""

    def __init__(self, partitions: int) -> None:
        self.ends = dict.fromkeys(range(partitions), 42)
        self.wanted: dict[int, int] = {}
        self.told: dict[int, int] = {}
        self.epoch = 0
        self.sessions = 0

    def answer(self, header: RequestHeader, message: FetchRequest) -> FetchResponse:
        if message.session_epoch == 0:
            self.sessions += 1
            self.epoch, self.wanted, self.told = 0, {}, {}
        elif (message.session_id, message.session_epoch) != (self.sessions, self.epoch):
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self.epoch += 1
        self.wanted |= {p.partition: p.fetch_offset for topic in message.topics for p in topic.partitions}
        news = [n for n, at in self.wanted.items() if at < self.ends[n] or self.told.get(n) != self.ends[n]]
        answer: FetchResponse = brought()(header, fetch("apples"))
        (part,) = answer.responses[0].partitions
        answer.session_id = self.sessions
        answer.responses[0].partitions = []
        for number in news:
            end = self.told[number] = self.ends[number]
            records = b"new" if self.wanted[number] < end else b""
            made = type(part)(number, 0, end, end, 0, records=records)
            answer.responses[0].partitions.append(made)
        if not news:
            answer.responses = []
        return answer


@pytest.mark.parametrize("version", [11, 12, 17])
async def test_many_partitions_of_a_session_are_forwarded_in_a_session_of_the_broker(
    version: int, stage: Stage, planned: Planned
) -> None:
    stage.c1.topics = {"apples": 20}
    there = InSession(20)
    stage.c1.scripts[ApiKey.FETCH] = there.answer
    client = await stage.connect()
    message = fetch("apples", epoch=0, version=version)
    message.topics[0].partitions = [FetchPartition(n, -1, 42, partition_max_bytes=1000) for n in range(20)]
    session = (await client.ask(message, version, FetchResponse)).session_id
    assert seen(await client.ask(fetch(session=session, epoch=1), version, FetchResponse)) == []
    before, begun = planned(), len(stage.c1.received)
    for epoch in (2, 3):
        answer = await client.ask(fetch(session=session, epoch=epoch), version, FetchResponse)
        assert (answer.session_id, answer.throttle_time_ms, seen(answer)) == (session, 7, [])
    there.ends[7] = 43
    answer = await client.ask(fetch(session=session, epoch=4), version, FetchResponse)
    assert seen(answer) == [("apples", 0, b"new")]
    assert answer.responses[0].partitions[0].partition_index == 7
    moved = fetch("apples", session=session, epoch=5, version=version)
    moved.topics[0].partitions = [FetchPartition(7, -1, 43, partition_max_bytes=1000)]
    assert seen(await client.ask(moved, version, FetchResponse)) == []
    assert planned() == before
    asked = [message for _, message in stage.c1.received[begun:]]
    assert [[p.fetch_offset for t in m.topics for p in t.partitions] for m in asked] == [[], [], [], [43]]
    there.sessions += 1  # it has forgotten the session
    there.ends[3] = 43
    answer = await client.ask(fetch(session=session, epoch=6), version, FetchResponse)
    assert (answer.session_id, answer.error_code, seen(answer)) == (session, 0, [("apples", 0, b"new")])
    assert planned() == before + 1
    assert mesh_topic_id(MESH, "apples") == answer.responses[0].topic_id or version < 13
    wrong = await client.ask(fetch(session=session, epoch=6), version, FetchResponse)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_two_connections_of_one_session_do_not_mistake_each_other(stage: Stage) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(b"", end=42)
    one, other = await stage.connect(), await stage.connect()
    session = (await one.ask(fetch(*BOTH, epoch=0), 12, FetchResponse)).session_id
    for epoch in (1, 2, 3):
        assert (await one.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)).error_code == 0
    asked = fetch("apples", offset=50, session=session, epoch=4)
    assert (await other.ask(asked, 12, FetchResponse)).error_code == 0
    for client, epoch in ((one, 5), (other, 6), (other, 7), (one, 8)):
        before = len(stage.c1.requests(ApiKey.FETCH))
        assert (await client.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)).error_code == 0
        if len(stage.c1.requests(ApiKey.FETCH)) > before:
            assert stage.c1.requests(ApiKey.FETCH)[-1].topics[0].partitions[0].fetch_offset == 50
    repeated = await one.ask(fetch(session=session, epoch=8), 12, FetchResponse)
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_a_poll_whose_session_another_connection_has_used_ends_with_its_wait(stage: Stage) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(b"", end=42)
    one, other = await stage.connect(), await stage.connect()
    session = (await one.ask(fetch(*BOTH, epoch=0), 12, FetchResponse)).session_id
    for epoch in (1, 2):
        assert (await one.ask(fetch(session=session, epoch=epoch), 12, FetchResponse)).error_code == 0
    bananas = Log(stage.c2)
    stage.c1.scripts[ApiKey.FETCH] = brought(b"little", end=43)
    poll = fetch(session=session, epoch=3)
    poll.max_wait_ms, poll.min_bytes = 30_000, 1000
    one.send(poll, 12)

    def waiting() -> list[FetchForwarder]:
        """Where one broker has said something, and the other has not."""
        ways = [each._fetches for each in stage.gateway.connections]
        return [way for way in ways if way._current and any(each.outcome for each in way._current.parts)]

    await until(lambda: len(waiting()) == 1)
    forgets = fetch(session=session, epoch=4)
    forgets.forgotten_topics_data = [ForgottenTopic("apples", partitions=[0])]
    other.send(forgets, 12)
    kept = stage.gateway.mesh.memory.fetch_sessions.get(session)
    await until(lambda: kept is not None and kept.epoch == 5)
    (way,) = waiting()
    assert way._current is not None
    way._current.began -= 60  # its wait is over
    way._look_at_the_time()
    bananas.write()
    assert (await one.answer(FetchResponse)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await other.answer(FetchResponse)).error_code == 0


async def test_what_has_no_room_comes_with_the_next_poll(stage: Stage, planned: Planned) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(bytes(600))
    client = await stage.connect()
    message = fetch(*BOTH)
    message.min_bytes, message.max_bytes = 1200, 1000
    for _ in range(3):
        told: list[tuple[str, int, bytes]] = seen(await client.ask(message, 12, FetchResponse))
        assert [len(records) for _, _, records in told] == [600, 0]
    before = planned()
    assert [len(r) for _, _, r in seen(await client.ask(message, 12, FetchResponse))] == [600, 0]
    assert planned() == before
