"""A large answer leaves while it comes, in its turn, and never but as a whole."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest

from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.passing import Passed
from services.gateway.frame_stream import Passage
from services.gateway.requests.plan import Unreachable
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lookup import Lookup
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES, RequestHeader, encode_request
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, HeartbeatRequest
from services.gateway.wire.scanner import patch_correlation_id
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient

BODY = bytes(range(256)) * 1200
HALF = 100_000


class Slot:
    """A request whose answer passes; it waits at a client's connection and at a broker's."""

    api_key = ApiKey.HEARTBEAT
    produces = False
    correlation_id = 0
    exchange = None
    held_bytes = 0
    close: str | None = None
    answer: list[bytes] | None = None

    def __init__(self, client: ClientConnection, clients_id: int, timeout_s: float) -> None:
        self.header = RequestHeader(ApiKey.HEARTBEAT, 0, clients_id, None, 0)
        self.deadline = asyncio.get_running_loop().time() + timeout_s
        self.source: BrokerConnection | None = None
        self.done = False
        self.told = ""
        self._client = client

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        assert self.source is not None
        if not self._client._slots.is_next(self):
            return None
        patch_correlation_id(beginning, SIZE_BYTES, self.header.correlation_id)
        return self._client._slots.answer_begun(self, (beginning,), self.source)

    def passed_on(self) -> None:
        self.told = "passed on"
        self._ended(Passed())

    def answered(self, frame: memoryview, owned: bool) -> None:
        self.told = "answered"
        patch_correlation_id(frame, SIZE_BYTES, self.header.correlation_id)
        self.answer = [bytes(frame)]
        self._ended(Passed())

    def _ended(self, answer: Any) -> None:
        if self._client.is_open:
            self._client._slots.fill(cast(Any, self), answer)
            self._client._slots.flush()

    def failed(self, outcome: Unreachable) -> None:
        self.told = f"failed: {outcome}"


@dataclass
class World:
    client: RawClient
    connection: ClientConnection
    broker: BrokerConnection
    say: Callable[[bytes], None]
    """As the broker."""
    leave: Callable[[], None]

    def ask(self, clients_id: int, timeout_s: float = 30) -> Slot:
        slot = Slot(self.connection, clients_id, timeout_s)
        slot.source = self.broker
        self.connection._queue.append(cast(Any, slot))
        request = memoryview(bytearray(encode_request(HeartbeatRequest(), 0, 0, "me")))
        self.broker.pass_on(request, slot)
        return slot


def answer_of(slot: Slot, body: bytes = BODY) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + slot.correlation_id.to_bytes(4, "big") + body


def passed(sent: Count, total: int) -> bool:
    return sent.total == total


@asynccontextmanager
async def world(stage: Stage) -> AsyncIterator[World]:
    stage.c1.scripts[ApiKey.HEARTBEAT] = lambda header, message: None
    client = await stage.connect()
    await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    (connection,) = stage.gateway.connections
    before = set(stage.c1.connections)
    broker = BrokerConnection("c1", stage.c1.address, 1 << 26, 100, AnswerRoom(1 << 30))
    assert await broker.open("127.0.0.1", stage.c1.port, 5, Lookup("c1")) is None
    await until(lambda: len(stage.c1.connections) > len(before))
    (writer,) = set(stage.c1.connections) - before
    yield World(client, connection, broker, writer.write, writer.transport.abort)
    broker.shut("the test is over")


async def test_it_leaves_before_its_end_has_come(stage: Stage) -> None:
    async with world(stage) as here:
        sent = metrics.client_bytes.labels("out")
        slot, behind = here.ask(4711), here.ask(4712)
        before, whole = sent.total, answer_of(slot)
        here.say(whole[:HALF])
        await until(lambda: sent.total - before == HALF)
        assert here.connection.unanswered == 2
        here.say(whole[HALF:] + answer_of(behind, b"small"))
        assert await here.client.frame() == (4711).to_bytes(4, "big") + BODY
        assert await here.client.frame() == (4712).to_bytes(4, "big") + b"small"
        assert (slot.told, behind.told) == ("passed on", "answered")
        assert here.connection.unanswered == 0
        assert sent.total - before == len(whole) + 13


async def test_an_answer_whose_turn_has_not_come_is_gathered(stage: Stage) -> None:
    async with world(stage) as here:
        first = Slot(here.connection, 1, 30)
        here.connection._queue.append(cast(Any, first))
        slot = here.ask(2)
        whole = answer_of(slot)
        here.say(whole[:HALF])
        await until(lambda: here.broker.still_missing)
        here.say(whole[HALF:])
        await until(lambda: slot.done)
        assert slot.told == "answered"
        first.answered(memoryview(bytearray(answer_of(first, b"first"))), True)
        assert await here.client.frame() == (1).to_bytes(4, "big") + b"first"
        assert await here.client.frame() == (2).to_bytes(4, "big") + BODY


async def test_a_broker_that_leaves_in_the_middle_takes_the_client_along(stage: Stage) -> None:
    async with world(stage) as here:
        slot, behind = here.ask(1), here.ask(2)
        sent = metrics.client_bytes.labels("out")
        before = sent.total
        here.say(answer_of(slot)[:HALF])
        await until(lambda: sent.total - before == HALF)
        here.leave()
        heard = await here.client.closed()
        assert len(heard) <= HALF, "nothing comes behind half an answer"
        assert slot.told == ""
        assert behind.told.startswith("failed")
        assert not stage.gateway.connections


async def test_a_client_that_leaves_in_the_middle_harms_nobody(stage: Stage) -> None:
    async with world(stage) as here:
        slot, behind = here.ask(1), here.ask(2)
        here.say(answer_of(slot)[:HALF])
        await until(lambda: here.broker.still_missing)
        here.client.abort()
        await until(lambda: not stage.gateway.connections)
        here.say(answer_of(slot)[HALF:] + answer_of(behind))
        await until(lambda: behind.told)
        assert (slot.told, behind.told) == ("passed on", "answered")
        assert here.broker.ended is None


async def test_a_client_that_does_not_read_makes_the_broker_wait_and_nobody_is_late_for_that(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.upstream.deadlines.LOOK_AGAIN_S", 0.05)
    async with world(stage) as here:
        body = bytes(20 << 20)
        slot = here.ask(1)
        here.client.pause()
        here.say(answer_of(slot, body))
        await until(lambda: here.broker._deadlines.held_back_at)
        behind = here.ask(2, timeout_s=0.1)
        assert here.connection.unsent_bytes < 4 << 20
        late = asyncio.Event()
        asyncio.get_running_loop().call_at(behind.deadline + 0.2, late.set)
        await late.wait()
        assert here.broker.ended is None
        here.say(answer_of(behind, b"small"))
        here.client.resume()
        assert await here.client.frame() == (1).to_bytes(4, "big") + body
        assert await here.client.frame() == (2).to_bytes(4, "big") + b"small"
        assert here.broker._deadlines.held_back_at is None


async def test_a_broker_that_does_not_go_on_with_an_answer_is_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.upstream.deadlines.STALLED_S", 0.2)
    async with world(stage) as here:
        slot = here.ask(1, timeout_s=1.0)
        sent = metrics.client_bytes.labels("out")
        before = sent.total
        here.say(answer_of(slot)[:HALF])
        await until(lambda: sent.total - before == HALF)
        await here.client.closed()
        assert here.broker.fault is not None
        assert "in the middle of an answer" in here.broker.fault


async def test_an_answer_that_goes_on_slowly_is_not_given_up(stage: Stage) -> None:
    async with world(stage) as here:
        slot, sent = here.ask(1), metrics.client_bytes.labels("out")
        whole, before, told = answer_of(slot), sent.total, HALF
        here.say(whole[:told])
        for _ in range(3):
            await until(partial(passed, sent, before + told))
            here.broker._deadlines.check()
            here.say(whole[told : told + 1000])
            told += 1000
        assert here.broker.ended is None
        here.say(whole[told:])
        assert await here.client.frame() == (1).to_bytes(4, "big") + BODY


async def test_who_takes_an_answer_late_is_not_taken_for_a_broker_that_does_not_go_on(stage: Stage) -> None:
    async with world(stage) as here:
        body = bytes(20 << 20)
        slot = here.ask(1)
        here.client.pause()
        here.say(answer_of(slot, body))
        await until(lambda: here.broker._deadlines.held_back_at)
        for _ in range(3):
            here.broker._deadlines.check()
        here.client.resume()
        await until(lambda: here.broker._deadlines.held_back_at is None)
        here.broker._deadlines.check()
        assert await here.client.frame() == (1).to_bytes(4, "big") + body
        assert here.broker.ended is None


async def test_a_connection_that_is_left_waits_for_the_end_of_an_answer(stage: Stage) -> None:
    async with world(stage) as here:
        slot = here.ask(1)
        here.say(answer_of(slot)[:HALF])
        await until(lambda: here.broker.still_missing)
        here.broker.retire("the gateway has left the cluster")
        here.say(answer_of(slot)[HALF:])
        assert await here.client.frame() == (1).to_bytes(4, "big") + BODY
        assert here.broker.ended is not None
