"""Large answers that can't go on while they come: what they need is counted, and bounded."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.gateway import metrics
from services.gateway.requests.plan import Call, RawResponse, Sent, Unreachable
from services.gateway.upstream.answer_memory import LEAST_POLL_BYTES, AnswerMemory, AnswerRoom
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.upstream.lookup import Lookup
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import encode_response
from services.gateway.wire.messages import FetchRequest, FetchResponse, MetadataRequest, MetadataResponse
from services.gateway.wire.messages.fetch import FetchableTopicResponse, PartitionData
from services.gateway.wire.messages.metadata import MetadataResponseTopic
from tests.fixtures.waiting import until
from tests.unit.gateway.scripted_broker import ScriptedBroker, broker

SIZE = 500_000
"""More than socket buffers take, so that a half stays a half."""
NAMES = 30_000
PLENTY = 1 << 30


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with broker({}) as running:
        running.scripts[ApiKey.FETCH] = lambda header, message: None
        running.scripts[ApiKey.METADATA] = lambda header, message: None
        yield running


class Reader:
    """Asks one question on a connection of its own, and keeps what comes of it."""

    def __init__(self, scripted: ScriptedBroker, room: AnswerRoom) -> None:
        self.connection = BrokerConnection("c1", scripted.address, 1 << 26, 10, room)
        self.outcome: RawResponse | Unreachable | Sent | None = None
        self._scripted = scripted
        self._writer: Any = None

    async def ask(self, message: FetchRequest | MetadataRequest, key: ApiKey, timeout_s: float = 30) -> None:
        before = set(self._scripted.connections)
        assert await self.connection.open("127.0.0.1", self._scripted.port, 5, Lookup("c1")) is None
        await until(lambda: len(self._scripted.connections) > len(before))
        (self._writer,) = set(self._scripted.connections) - before
        self.connection.submit(Call("c1", message, 4, timeout_s=timeout_s, raw=True), key, "me", self._settle)

    def _settle(self, outcome: RawResponse | Unreachable | Sent, _: bool) -> None:
        self.outcome = outcome

    def hears(self, part: bytes) -> None:
        """Of its broker."""
        self._writer.write(part)

    @property
    def is_held_back(self) -> bool:
        return self.connection._deadlines.held_back_at is not None


def fetched(size: int = SIZE) -> bytes:
    part = PartitionData(0, 0, 1, 1, 0, records=bytes(size))
    return encode_response(FetchResponse(responses=[FetchableTopicResponse("t", partitions=[part])]), 4, 1)


def described() -> bytes:
    return encode_response(
        MetadataResponse(topics=[MetadataResponseTopic(0, f"topic-{n}") for n in range(NAMES)]), 4, 1
    )


async def fetching(scripted: ScriptedBroker, room: AnswerRoom, timeout_s: float = 30) -> Reader:
    reader = Reader(scripted, room)
    await reader.ask(FetchRequest(), ApiKey.FETCH, timeout_s)
    return reader


async def half_heard(scripted: ScriptedBroker, room: AnswerRoom, size: int = SIZE) -> Reader:
    """Who has begun to hear a large answer."""
    reader = await fetching(scripted, room)
    reader.hears(fetched(size)[: size // 2])
    await until(lambda: reader.connection.still_missing)
    return reader


async def test_an_answer_counts_from_its_first_bytes_until_nobody_holds_it(scripted: ScriptedBroker) -> None:
    room = AnswerRoom(PLENTY)
    reader = await half_heard(scripted, room)
    assert room.held_bytes == len(fetched())
    reader.hears(fetched()[SIZE // 2 :])
    await until(lambda: reader.outcome is not None)
    assert isinstance(reader.outcome, RawResponse)
    assert room.held_bytes == len(fetched())
    a_part = reader.outcome.frame[100:200]
    reader.outcome = None
    assert room.held_bytes == len(fetched()), "a part of it keeps all of it"
    a_part.release()
    assert room.held_bytes == 0


async def test_who_finds_no_room_goes_on_when_there_is_some(scripted: ScriptedBroker) -> None:
    room, waited = AnswerRoom(2 * SIZE), metrics.answers_waited._value.get()
    first = await half_heard(scripted, room)
    second, third = await fetching(scripted, room), await fetching(scripted, room)
    for each in (second, third):
        each.hears(fetched(SIZE * 3 // 2))
        await until(lambda each=each: each.is_held_back)  # type: ignore[misc]
    assert room.held_bytes == len(fetched())
    assert metrics.answers_waited._value.get() == waited + 2
    assert room.poll_bytes == LEAST_POLL_BYTES, "who comes now needs no room"
    first.hears(fetched()[SIZE // 2 :])
    await until(lambda: first.outcome is not None)
    first.outcome = None
    await until(lambda: second.outcome is not None)
    assert third.outcome is None, "one after the other"
    second.outcome = None
    await until(lambda: third.outcome is not None)
    for each in (second, third):
        assert not each.is_held_back


async def test_who_waits_for_room_is_not_late(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.deadlines.LOOK_AGAIN_S", 0.05)
    room = AnswerRoom(SIZE)
    first = await half_heard(scripted, room)
    second = await fetching(scripted, room, timeout_s=1.0)
    second.hears(fetched())
    await until(lambda: second.is_held_back)
    late = asyncio.Event()
    asyncio.get_running_loop().call_later(1.2, late.set)
    await late.wait()
    first.connection.shut("the test is over")
    await until(lambda: isinstance(second.outcome, RawResponse))


async def test_who_waits_for_room_too_long_is_told(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound_s in (("LOOK_AGAIN_S", 0.05), ("STALLED_S", 0.2)):
        monkeypatch.setattr(f"services.gateway.upstream.deadlines.{name}", bound_s)
    room = AnswerRoom(SIZE)
    first = await half_heard(scripted, room)
    second = await fetching(scripted, room, timeout_s=1.0)
    second.hears(fetched())
    await until(lambda: second.outcome is not None)
    assert isinstance(second.outcome, Unreachable)
    assert "no memory for a large answer" in second.outcome.reason
    assert room.held_bytes == len(fetched())
    first.connection.shut("the test is over")
    assert room.held_bytes == 0


async def test_what_was_left_behind_makes_room_for_others_the_oldest_first(scripted: ScriptedBroker) -> None:
    room, left = AnswerRoom(3 * SIZE), [LeftBehind(number) for number in range(3)]
    for each in left[1], left[0]:
        reader = await fetching(scripted, room)
        reader.hears(fetched())
        await until(lambda reader=reader: isinstance(reader.outcome, RawResponse))  # type: ignore[misc]
        assert isinstance(reader.outcome, RawResponse)
        each.keep(reader.outcome)
        reader.outcome = None
    third = await fetching(scripted, room)
    third.hears(fetched())
    await until(lambda: isinstance(third.outcome, RawResponse))
    assert [each.outcome is not None for each in left] == [True, False, False]
    assert (left[0].key, left[1].key) == (0, None)


async def test_who_waits_gets_what_others_leave_behind(scripted: ScriptedBroker) -> None:
    room, left = AnswerRoom(SIZE), LeftBehind("key")
    first = await half_heard(scripted, room)
    second = await fetching(scripted, room)
    second.hears(fetched())
    await until(lambda: second.is_held_back)
    first.hears(fetched()[SIZE // 2 :])
    await until(lambda: isinstance(first.outcome, RawResponse))
    assert isinstance(first.outcome, RawResponse)
    outcome, first.outcome = first.outcome, None
    left.keep(outcome)
    del outcome
    await until(lambda: isinstance(second.outcome, RawResponse))
    assert (left.key, left.outcome) == (None, None)


async def test_what_never_has_room_comes_alone(scripted: ScriptedBroker) -> None:
    room = AnswerRoom(SIZE)
    reader = await fetching(scripted, room)
    reader.hears(fetched(20 * SIZE))
    await until(lambda: reader.outcome is not None)
    assert room.held_bytes == len(fetched(20 * SIZE))


async def test_only_fetches_wait(scripted: ScriptedBroker) -> None:
    """Others may need what is said here, to go on."""
    room = AnswerRoom(SIZE)
    await half_heard(scripted, room)
    reader = Reader(scripted, room)
    await reader.ask(MetadataRequest([]), ApiKey.METADATA)
    reader.hears(described())
    await until(lambda: isinstance(reader.outcome, RawResponse))
    assert room.held_bytes == len(fetched()) + len(described())


@pytest.mark.parametrize("by", ["broker", "client"])
async def test_who_leaves_while_it_waits_is_forgotten(by: str, scripted: ScriptedBroker) -> None:
    room = AnswerRoom(SIZE)
    first = await half_heard(scripted, room)
    second = await fetching(scripted, room)
    second.hears(fetched())
    await until(lambda: second.is_held_back)
    if by == "client":
        second.connection.shut("the client is gone")
    else:
        second.connection.abort("reset")
    assert isinstance(second.outcome, Unreachable)
    first.connection.shut("the test is over")
    assert (room.held_bytes, room._waiting) == (0, {})


async def test_room_that_is_given_back_in_another_thread_is_found_at_once(scripted: ScriptedBroker) -> None:
    """Python may collect garbage in any thread, as in the thread of the metrics, while the event loop sleeps."""
    room, found = AnswerRoom(SIZE), asyncio.Event()
    room.take(SIZE)

    class Waiting:
        """The source of an answer that finds no room."""

        def hold_back(self, held_back: bool) -> None:
            if not held_back:
                found.set()

    AnswerMemory(Waiting(), room).of(SIZE, 1, may_wait=True)
    giver = threading.Timer(0.1, room.give_back, (SIZE,))
    giver.start()
    async with asyncio.timeout(20):
        await found.wait()
    giver.join()
