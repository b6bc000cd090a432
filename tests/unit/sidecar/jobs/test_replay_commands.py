"""Where a sidecar begins to listen for commands: no partition is left to the client, which might wait for ever."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from services.sidecar.auditing.events import AuditRecord
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming import membership
from services.sidecar.jobs import replay_commands
from services.sidecar.jobs.job import Job, JobSpec
from services.sidecar.jobs.replay_commands import Commands, _pinned
from tests.unit.sidecar.consuming.scripted_coordinator import (
    COMMITTED,
    COORDINATOR_LOAD_IN_PROGRESS,
    TOPIC,
    Coordinator,
    scripted_broker,
)

WITHIN_SECONDS = 60


class Book:
    """A consumer whose group has committed these offsets, in partitions that end at `end`."""

    def __init__(self, committed: list[int], *, end: int | None = 70, error: int = 0) -> None:
        self._committed = committed
        self._end = end
        self._error = error
        self.commits: list[tuple[int, int]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[Any]:
        error = KafkaError(self._error) if self._error else None
        return [Answer(one.partition, at, error) for one, at in zip(partitions, self._committed, strict=True)]

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int] | None:
        return None if self._end is None else (0, self._end)

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        self.commits += [(one.partition, one.offset) for one in offsets]


class Answer:
    """As the client tells of a partition: its own class takes no error."""

    topic = "commands"

    def __init__(self, partition: int, offset: int, error: KafkaError | None) -> None:
        self.partition, self.offset, self.error = partition, offset, error


def pinned(book: Book) -> list[int]:
    partitions = [TopicPartition("commands", number) for number, _ in enumerate(book._committed)]
    return [one.offset for one in _pinned(cast("Consumer", book), partitions)]


def test_it_begins_where_its_group_was_or_at_the_end_of_now() -> None:
    book = Book([5, OFFSET_INVALID])
    assert pinned(book) == [5, 70]
    assert book.commits == [(1, 70)]


@pytest.mark.parametrize(
    "book",
    [Book([OFFSET_INVALID], error=KafkaError.COORDINATOR_LOAD_IN_PROGRESS), Book([OFFSET_INVALID], end=None)],
    ids=["the coordinator loads", "nobody tells the end"],
)
def test_it_begins_again_while_kafka_does_not_say_where(book: Book) -> None:
    with pytest.raises(KafkaException):
        pinned(book)
    assert book.commits == []


class Heard(AuditTrail):
    """Remembers which records were heard as commands."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[tuple[int | None, int | None]] = []
        self.all_heard = asyncio.Event()

    def record(self, records: Sequence[AuditRecord]) -> bool:
        self.places += [(one.partition, one.offset) for one in records]
        if len(self.places) == len(COMMITTED):
            self.all_heard.set()
        return True


async def _start(spec: JobSpec, id_: str) -> Job:
    raise AssertionError("neither record is a command")


async def test_commands_are_heard_though_the_coordinator_loads_when_the_listener_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_commands, "RETRY_SECONDS", 0.1)
    heard = Heard()
    async with scripted_broker() as broker:
        coordinator = Coordinator(broker, [COORDINATOR_LOAD_IN_PROGRESS] * 3)
        broker.scripts = coordinator.scripts()
        listener = Commands({"bootstrap.servers": broker.address}, TOPIC, "group", "-replay", _start, heard)
        listening = asyncio.create_task(listener.run())
        try:
            await asyncio.wait_for(heard.all_heard.wait(), WITHIN_SECONDS)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
    assert sorted(heard.places) == sorted(COMMITTED.items())
    assert coordinator.errors == []


class Scripted:
    """A Kafka consumer. `again` is called when a second one of its class is made."""

    made = 0
    again: Callable[[], object]

    def __init__(self, properties: object) -> None:
        type(self).made += 1
        if self.made > 1:
            self.again()

    def subscribe(self, topics: list[str], **callbacks: object) -> None: ...

    def unsubscribe(self) -> None: ...

    def close(self) -> None: ...


class Fatal:
    """What the client says last."""

    @staticmethod
    def error() -> KafkaError:
        return KafkaError(KafkaError._FATAL, "fenced", fatal=True)

    @staticmethod
    def topic() -> None:
        """The error belongs to no topic."""


async def test_a_listener_whose_client_has_ended_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_commands, "RETRY_SECONDS", 0)
    begun_again = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Client(Scripted):
        again = staticmethod(partial(loop.call_soon_threadsafe, begun_again.set))

        def poll(self, timeout: float) -> Fatal:
            return Fatal()

    monkeypatch.setattr(membership, "Consumer", Client)
    listening = asyncio.create_task(Commands({}, TOPIC, "group", "-replay", _start, Heard()).run())
    try:
        await asyncio.wait_for(begun_again.wait(), WITHIN_SECONDS)
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


class Given:
    """A record that is no command."""

    @staticmethod
    def error() -> None: ...

    @staticmethod
    def topic() -> str:
        return TOPIC

    @staticmethod
    def partition() -> int:
        return 0

    @staticmethod
    def offset() -> int:
        return 7

    @staticmethod
    def timestamp() -> tuple[int, int]:
        return 0, 0

    @staticmethod
    def headers() -> None: ...

    @staticmethod
    def key() -> None: ...

    @staticmethod
    def value() -> bytes:
        return b"no command"


async def test_a_commit_without_an_answer_holds_up_neither_the_listener_nor_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_commands, "RETRY_SECONDS", 0)
    monkeypatch.setattr(replay_commands, "CALL_SECONDS", 0.2)
    begun_again, answer = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Client(Scripted):
        again = staticmethod(partial(loop.call_soon_threadsafe, begun_again.set))

        def poll(self, timeout: float) -> Given:
            return Given()

        def commit(self, **_: object) -> list[TopicPartition]:
            answer.wait(WITHIN_SECONDS)
            return []

    monkeypatch.setattr(membership, "Consumer", Client)
    listening = asyncio.create_task(Commands({}, TOPIC, "group", "-replay", _start, Heard()).run())
    try:
        await asyncio.wait_for(begun_again.wait(), WITHIN_SECONDS)
        waiting = [each for each in threading.enumerate() if each.name.startswith("replay-commands")]
        assert waiting
        assert all(each.daemon for each in waiting), "the interpreter waits for other threads when it ends"
    finally:
        answer.set()
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
