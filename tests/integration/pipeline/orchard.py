"""A topic with known contents: what brokers acknowledged is what an archive must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from tests.fixtures.leaders import await_leaders

TIMEOUT_S = 60.0
OPEN_MS = 600_000  # for which a transaction may stay open, however busy the machine is
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
"""Between the two days that records are from."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Content:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Orchard:
    """Creates its topics, writes to them, and remembers what was acknowledged and committed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.records: dict[Place, Content] = {}
        self._properties: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._properties)
        self._topics: set[str] = set()
        self._grown = 0

    def create(self, topic: str | None = None, partitions: int = 3) -> str:
        name = topic or self.topic
        # records are from yesterday too: only what the test deletes shall go
        self._wait(self._admin.create_topics([NewTopic(name, partitions, 1, config={"retention.ms": "-1"})]))
        self._topics.add(name)
        await_leaders(self._admin, name, partitions)
        return name

    def delete(self) -> None:
        self._wait(self._admin.delete_topics([self.topic]))

    def create_again(self, partitions: int = 3) -> dict[Place, Content]:
        """The topic's next life begins, without records; those of the life before."""
        before = {place: each for place, each in self.records.items() if place.topic == self.topic}
        self.delete()
        self.records = {place: each for place, each in self.records.items() if place not in before}
        self.create(partitions=partitions)
        return before

    def add_partitions(self, total: int) -> None:
        self._wait(self._admin.create_partitions([NewPartitions(self.topic, total)]))
        await_leaders(self._admin, self.topic, total)

    def let_retention_take(self, partition: int, before: int) -> None:
        """The log of `partition` begins at `before` from now on."""
        self._wait(self._admin.delete_records([TopicPartition(self.topic, partition, before)]))

    def clear(self) -> None:
        if self._topics:
            self._wait(self._admin.delete_topics(list(self._topics)))

    @staticmethod
    def _wait(futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(TIMEOUT_S)

    def grow(self, count: int, *, topic: str | None = None, partitions: Sequence[int] = (0, 1, 2)) -> None:
        """Adds `count` records, turn by turn to `partitions`."""
        self._produce(Producer(self._properties), count, topic or self.topic, partitions)

    def transaction(self, count: int, *, partition: int = 0) -> Producer:
        """Adds records in a transaction that is left open; they count from `commit` on."""
        producer = Producer({**self._properties, "transactional.id": self.topic, "transaction.timeout.ms": OPEN_MS})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        before = dict(self.records)
        self._produce(producer, count, self.topic, (partition,))
        self._in_transaction = {place: each for place, each in self.records.items() if place not in before}
        self.records = before
        return producer

    def commit(self, producer: Producer) -> None:
        producer.commit_transaction(TIMEOUT_S)
        self.records |= self._in_transaction

    def _produce(self, producer: Producer, count: int, topic: str, partitions: Sequence[int]) -> None:
        failed: list[KafkaError] = []
        for number in range(self._grown, self._grown + count):
            content = _content(number)

            def note(error: KafkaError | None, message: Message, content: Content = content) -> None:
                if error is not None:
                    failed.append(error)
                    return
                self.records[Place(topic, message.partition() or 0, message.offset() or 0)] = content

            producer.produce(
                topic,
                key=content.key,
                value=content.value,
                headers=list(content.headers),
                timestamp=content.timestamp_ms,
                partition=partitions[number % len(partitions)],
                on_delivery=note,
            )
        self._grown += count
        assert producer.flush(TIMEOUT_S) == 0
        assert not failed


def _content(number: int) -> Content:
    """Every kind of record: with and without key, value, headers; from two days."""
    side = -1 if number % 2 else 1
    return Content(
        key=None if number % 5 == 0 else b"key %d \xff" % number,
        value=None if number % 7 == 0 else b"" if number % 7 == 1 else b"value %d" % number,
        headers=() if number % 3 == 0 else (("n", b"%d" % number), ("none", None), ("n", b"")),
        timestamp_ms=int(MIDNIGHT.timestamp() * 1000) + side * (number + 1),
    )
