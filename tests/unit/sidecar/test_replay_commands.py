"""Where a sidecar begins to listen for commands: no partition is left to the client, which might wait for ever."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from services.sidecar.jobs.commands import _pinned


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
