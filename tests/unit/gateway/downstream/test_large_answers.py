"""What a gateway holds of large answers: no more than its bound, and nothing when they have been told."""

import asyncio
from pathlib import Path

import pytest

from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import FetchPartition
from tests.fixtures.garbage import no_collector
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.test_fetch_forwarding import brought, fetch

LARGE = 3 << 20
LIMIT_MIB = 16
CLIENTS = 12


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the room of a gateway has held each time that it took more."""
    held: list[int] = []
    take = AnswerRoom.take

    def taken(self: AnswerRoom, size: int) -> None:
        take(self, size)
        held.append(self.held_bytes)

    monkeypatch.setattr(AnswerRoom, "take", taken)
    return held


def poll(*topics: str, partitions: int = 1) -> FetchRequest:
    message = fetch(*topics)
    for topic in message.topics:
        topic.partitions = [FetchPartition(n, -1, 42, partition_max_bytes=LARGE) for n in range(partitions)]
    return message


@pytest.mark.parametrize("topics", [("apples",), ("apples", "bananas")])
async def test_nothing_is_held_of_what_has_been_told(topics: tuple[str, ...], stage: Stage, most: list[int]) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(bytes(LARGE))
    client, room = await stage.connect(), stage.gateway.mesh.clusters.answer_room
    with no_collector():
        for _ in range(4):  # by their plan, then forwarded
            await client.ask(poll(*topics, partitions=2), 12, FetchResponse)
        client.close()
        await until(lambda: not stage.gateway.connections)
        assert max(most) > LARGE
        assert room.held_bytes == 0


async def test_nothing_is_held_of_what_has_been_told_while_another_broker_has_nothing(
    stage: Stage, most: list[int]
) -> None:
    has_more = asyncio.Event()

    async def later(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        await has_more.wait()
        return brought(bytes(LARGE))(header, message)  # type: ignore[no-any-return]

    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.FETCH] = brought(bytes(LARGE))
    message = poll("apples", "bananas")
    message.max_wait_ms = 30_000
    client, room = await stage.connect(), stage.gateway.mesh.clusters.answer_room
    with no_collector():
        least, message.min_bytes = message.min_bytes, 2 * LARGE  # so that no answer comes too late, and is kept
        for _ in range(2):  # by their plan, then forwarded
            await client.ask(message, 12, FetchResponse)
        message.min_bytes = least
        stage.c2.scripts[ApiKey.FETCH] = later
        for _ in range(2):  # one that asks, and one that continues with its question
            await client.ask(message, 12, FetchResponse)
            await until(lambda: room.held_bytes == 0)
        asked, stage.c1.scripts[ApiKey.FETCH] = len(stage.c1.requests(ApiKey.FETCH)), later
        client.send(message, 12)
        await until(lambda: len(stage.c1.requests(ApiKey.FETCH)) > asked)
        has_more.set()
        await client.answer(FetchResponse)
        client.close()
        await until(lambda: not stage.gateway.connections)
        assert room.held_bytes == 0
    assert max(most) > LARGE


async def test_many_that_begin_at_once_are_all_told_within_the_bound(tmp_path: Path, most: list[int]) -> None:
    async with staged(tmp_path, max_gathered_mib=LIMIT_MIB) as stage:
        stage.c1.scripts[ApiKey.FETCH] = brought(bytes(LARGE))
        clients = [await stage.connect() for _ in range(CLIENTS)]
        for client in clients:
            client.send(poll("apples"), 12)
        answers = await asyncio.gather(*(client.answer(FetchResponse) for client in clients))
        assert {len(answer.responses[0].partitions[0].records or b"") for answer in answers} == {LARGE}
        assert max(most) <= LIMIT_MIB << 20


async def test_what_a_client_does_not_take_counts_until_it_does_or_leaves(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.FETCH] = brought(bytes(20 << 20))
    room = stage.gateway.mesh.clusters.answer_room
    for leaves in (False, True):
        client = await stage.connect()
        client.pause()
        client.send(poll("apples"), 12)
        await until(lambda: 1 << 20 < room.held_bytes < 20 << 20)
        (connection,) = stage.gateway.connections
        assert room.held_bytes == connection.unsent_bytes
        if leaves:
            client.abort()
        else:
            client.resume()
            await client.answer(FetchResponse)
        await until(lambda: not room.held_bytes)
        client.close()
        await until(lambda: not stage.gateway.connections)
