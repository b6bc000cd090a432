"""The polls of quiet consumers wait at the gateway: answers are the broker's, and one poll asks it for all."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway import metrics
from services.gateway.downstream import fetch_forwarding, waiting_room
from services.gateway.downstream.mesh import Mesh
from services.gateway.requests.plan import Call, Lane
from services.gateway.requests.records import log_ends
from services.gateway.upstream.connection import OUR_CLIENT_ID
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_fetch_forwarding import seen
from tests.unit.gateway.scripted_broker import ScriptedBroker

QUIET_S = 0.2
WAIT_MS = 300
LONG_MS = 300_000
"""Longer than any bound of these tests, so a poll that nobody wakes fails its test."""
SILENT_MS = 5_000
VERSION = 12


@dataclass
class Logs:
    """A broker's script for Fetch: all its partitions have logs that grow, and it waits as brokers do."""

    broker: ScriptedBroker
    end: int = 5
    stable: int | None = None
    """The last stable offset, if a transaction is open."""
    error: int = 0
    is_silent: Callable[[RequestHeader], bool] = lambda _: False
    polls: list[tuple[str | None, FetchRequest]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.broker.scripts[ApiKey.FETCH] = self.answer

    async def answer(self, header: RequestHeader, message: FetchRequest) -> FetchResponse | None:
        self.polls.append((header.client_id, message))
        over_at = asyncio.get_running_loop().time() + message.max_wait_ms / 1000
        while not self._news(message) or self.is_silent(header):
            self.changed.clear()
            try:
                async with asyncio.timeout_at(over_at if not self.is_silent(header) else None):
                    await self.changed.wait()
            except TimeoutError:
                break
        return FetchResponse(
            responses=[
                FetchableTopicResponse(topic.topic, partitions=[self._part(message, each) for each in topic.partitions])
                for topic in message.topics
            ]
        )

    def _news(self, message: FetchRequest) -> int:
        parts = [self._part(message, each) for topic in message.topics for each in topic.partitions]
        return any(part.error_code for part in parts) or sum(len(part.records or b"") for part in parts) >= max(
            1, message.min_bytes
        )

    def _part(self, message: FetchRequest, asked: FetchPartition) -> PartitionData:
        if self.error:
            return PartitionData(asked.partition, self.error, -1, -1, -1, records=b"")
        stable = self.end if self.stable is None else self.stable
        readable = stable if message.isolation_level else self.end
        return PartitionData(
            asked.partition, 0, self.end, stable, 0, records=b"r" * max(0, readable - asked.fetch_offset)
        )

    def change(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self, name, value)
        self.changed.set()

    @property
    def asked(self) -> list[FetchRequest]:
        """By clients."""
        return [message for who, message in self.polls if who != OUR_CLIENT_ID]

    @property
    def watched(self) -> list[FetchRequest]:
        return [message for who, message in self.polls if who == OUR_CLIENT_ID]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers are quiet soon, and for long."""
    monkeypatch.setattr(fetch_forwarding, "QUIET_AFTER_S", QUIET_S)
    for module in (fetch_forwarding, waiting_room):
        monkeypatch.setattr(module, "RENEWED_AFTER_S", 1_000.0)


@pytest.fixture
def logs(stage: Stage) -> Logs:
    return Logs(stage.c1)


def poll(*topics: str, offset: int = 5, wait_ms: int = WAIT_MS, **values: Any) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=values.pop("min_bytes", 1),
        max_bytes=10_000_000,
        session_epoch=values.pop("session_epoch", -1),
        topics=[
            FetchTopic(topic, bytes(16), [FetchPartition(0, -1, offset, partition_max_bytes=1_000_000)])
            for topic in topics
        ],
        **values,
    )


async def ask(client: RawClient, request: FetchRequest) -> FetchResponse:
    return await client.ask(request, VERSION, FetchResponse)


async def waits(stage: Stage, request: FetchRequest | None = None, client: RawClient | None = None) -> RawClient:
    """A client whose last poll was answered by the gateway alone."""
    client, request = client or await stage.connect(), request or poll("apples")
    before = metrics.waited_out.total

    async def is_quiet() -> bool:
        await ask(client, request)
        return metrics.waited_out.total > before

    await until(is_quiet, "a poll that waits at the gateway")
    return client


def room(stage: Stage) -> waiting_room.WaitingRoom:
    mesh: Mesh = stage.gateway.mesh
    return mesh.room


async def someone_waits(stage: Stage, count: int = 1) -> None:
    await until(lambda: room(stage).waiting == count, f"{count} polls that wait")


async def test_quiet_polls_are_answered_as_the_broker_answers_them(stage: Stage, logs: Logs) -> None:
    client = await stage.connect()
    first = await ask(client, poll("apples"))
    await waits(stage, client=client)
    before = len(logs.asked)
    for _ in range(3):
        began = time.monotonic()
        answer = await ask(client, poll("apples"))
        assert time.monotonic() - began >= WAIT_MS / 1000
        assert answer.responses[0].partitions[0].aborted_transactions in (None, [])
        answer.responses[0].partitions[0].aborted_transactions = first.responses[0].partitions[0].aborted_transactions
        assert answer == first
    assert len(logs.asked) == before
    assert {message.session_epoch for message in logs.watched} == {-1}


async def test_records_come_at_once_and_by_the_broker(stage: Stage, logs: Logs) -> None:
    client = await waits(stage)
    before = len(logs.asked)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    logs.change(end=7)
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"rr")]
    (sent,) = logs.asked[before:]
    assert sent.max_wait_ms < LONG_MS
    assert (sent.min_bytes, sent.max_bytes, sent.topics) == (1, 10_000_000, poll("apples").topics)
    assert room(stage).waiting == 0


async def test_the_broker_decides_about_the_minimum(stage: Stage, logs: Logs) -> None:
    client = await waits(stage)
    client.send(poll("apples", wait_ms=LONG_MS, min_bytes=3), VERSION)
    await someone_waits(stage)
    before = len(logs.asked)
    logs.change(end=6)
    await until(lambda: len(logs.asked) > before, "the poll at the broker")
    logs.change(end=8)
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"rrr")]


async def test_an_error_comes_at_once(stage: Stage, logs: Logs) -> None:
    client = await waits(stage)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    logs.change(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert seen(await client.answer(FetchResponse)) == [("apples", ErrorCode.OFFSET_OUT_OF_RANGE, b"")]


async def test_a_poll_of_several_clusters_waits_for_both(stage: Stage, logs: Logs) -> None:
    others = Logs(stage.c2)
    request = poll("apples", "bananas")
    client = await waits(stage, request)
    before = len(logs.asked), len(others.asked)
    assert seen(await ask(client, request)) == [("apples", 0, b""), ("bananas", 0, b"")]
    assert (len(logs.asked), len(others.asked)) == before
    client.send(poll("apples", "bananas", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    others.change(end=6)
    assert ("bananas", 0, b"r") in seen(await client.answer(FetchResponse))


async def test_a_session_goes_on(stage: Stage, logs: Logs) -> None:
    client = await stage.connect()
    session = (await ask(client, poll("apples", session_epoch=0))).session_id
    assert session
    epoch, before = 0, metrics.waited_out.total

    async def next_is_empty() -> bool:
        nonlocal epoch
        epoch += 1
        answer = await ask(client, poll(session_id=session, session_epoch=epoch))
        assert (answer.error_code, answer.session_id, answer.responses) == (0, session, [])
        return metrics.waited_out.total > before

    await until(next_is_empty, "a poll that waits at the gateway")
    client.send(poll(session_id=session, session_epoch=epoch + 1, wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    logs.change(end=6)
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"r")]


async def test_an_open_transaction_is_left_to_the_broker(stage: Stage, logs: Logs) -> None:
    stage.gateway.mesh.run_table(stage.table(2, apples="c1"))
    committed = poll("apples", isolation_level=1)
    client = await waits(stage, committed)
    client.send(poll("apples", wait_ms=LONG_MS, isolation_level=1), VERSION)
    await someone_waits(stage)
    before = len(logs.asked)
    logs.change(end=8, stable=5)
    await until(lambda: len(logs.asked) > before, "the poll at the broker")
    assert room(stage).waiting == 0
    logs.change(stable=8)
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"rrr")]


@pytest.mark.parametrize("request_", [poll("apples", min_bytes=0), poll("apples", wait_ms=10)], ids=["min 0", "short"])
async def test_who_does_not_wait_asks_the_broker(stage: Stage, logs: Logs, request_: FetchRequest) -> None:
    client = await waits(stage)
    before = len(logs.asked)
    await ask(client, request_)
    assert len(logs.asked) == before + 1


async def test_a_lost_watch_sends_all_who_wait(stage: Stage, logs: Logs) -> None:
    """A client whose own connection to the broker is lost as well has its answer when its wait is over."""
    client, lost = await waits(stage), metrics.ended_waits.labels("lost")
    client.send(poll("apples", wait_ms=SILENT_MS), VERSION)
    await someone_waits(stage)
    before = lost.total
    for writer in list(stage.c1.connections):
        writer.transport.abort()
    logs.change(end=6)
    await until(lambda: lost.total > before, "the poll is sent, for the watch is lost")
    assert (room(stage).waiting, room(stage).watches) == (0, 0)
    answer = await client.answer(FetchResponse)
    while seen(answer) != [("apples", 0, b"r")]:
        assert seen(answer) == [("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")], "as for a poll that was sent"
        answer = await ask(client, poll("apples"))


async def test_a_watch_that_hangs_sends_all_who_wait(stage: Stage, logs: Logs) -> None:
    client = await waits(stage)
    logs.change(is_silent=lambda header: header.client_id == OUR_CLIENT_ID)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    logs.end = 6  # of which the watch does not hear
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"r")]


async def test_a_watch_whose_request_is_never_sent_sends_all_who_wait(
    stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await waits(stage)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    clusters = stage.gateway.mesh.clusters
    submit, swallowed = clusters.submit, asyncio.Event()

    def swallow(call: Call, lanes: Lanes, client_id: str | None, *more: Any) -> None:
        if client_id == OUR_CLIENT_ID and call.lane is Lane.FETCH:
            swallowed.set()
        else:
            submit(call, lanes, client_id, *more)

    monkeypatch.setattr(clusters, "submit", swallow)
    await swallowed.wait()
    logs.end = 6
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"r")]


async def test_after_a_while_a_consumer_asks_the_broker_itself(
    stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_forwarding, "RENEWED_AFTER_S", 1.0)
    client = await waits(stage)
    before = len(logs.asked)

    async def is_sent() -> bool:
        await ask(client, poll("apples"))
        return len(logs.asked) > before

    await until(is_sent, "a poll that is sent to the broker")
    await waits(stage, client=client)


async def test_clients_that_leave_wait_no_more(stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await waits(stage)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    client.abort()
    await someone_waits(stage, 0)
    for module in (log_ends, waiting_room):
        monkeypatch.setattr(module, "UNUSED_S", 0.1)
    await until(lambda: room(stage).watches == 0, "the end of the watch")
    watches = len(logs.watched)
    await waits(stage)
    assert len(logs.watched) > watches


async def test_many_are_woken_in_portions(stage: Stage, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_room, "PORTION", 2)
    clients = [await waits(stage) for _ in range(5)]
    for client in clients:
        client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage, len(clients))
    logs.change(end=6)
    for client in clients:
        assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"r")]
    assert room(stage).waiting == 0


async def test_a_cluster_that_is_described_anew_is_watched_anew(stage: Stage, logs: Logs) -> None:
    client = await waits(stage)
    client.send(poll("apples", wait_ms=LONG_MS), VERSION)
    await someone_waits(stage)
    stage.gateway.mesh.run_table(stage.table(2, apples="c2", bananas="c1"))
    logs.change(end=6)
    assert seen(await client.answer(FetchResponse)) == [("apples", 0, b"r")], "its table is that of its beginning"
    Logs(stage.c2, end=1)
    assert seen(await ask(client, poll("apples", offset=0))) == [("apples", 0, b"r")]
