"""Requests of a copy to its clusters beside the common ones: topic settings, notes, and the topic of slots.

Notes are requested partition by partition, and only stable offsets count. A request for all offsets of a group would
leave out the offsets of pending transactions. Then it would look as if nothing had been copied yet.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from mesh.group_offsets import COORDINATOR_MOVES, committed_offsets
from services.pipeline.copying.errors import RefusedError, SetbackError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.routes import SLOTS
from services.pipeline.kafka.admin import ALL, COMMITTED, Questions, UnauthorizedError, UnknownTopicError, topic_id_of
from services.pipeline.kafka.positions import Place, UnreachableError

MOST_REPLICAS = 3
SLOTS_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""The topic holds no records."""
POLL_S = 0.05
"""Seconds between two checks for an expected state."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its cluster describes it."""

    topic_id: str
    """Empty if the cluster has no topic ids."""
    partitions: int


class AskedCluster:
    """One cluster, as a driver or a task uses it.

    RefusedError if the cluster lacks or denies something; SetbackError.
    """

    def __init__(self, name: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self.name = name
        self._timeout_s = timeout_s
        self._ask = Questions(properties, timeout_s, name)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        with self._judged():
            described = self._ask.topics(names)
        return {topic: Topic(topic_id_of(about), len(about.partitions)) for topic, about in described.items()}

    def settings(self, topic: str) -> dict[str, str]:
        """The effective configuration of the topic, including defaults."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        futures = self._ask.admin.describe_configs([resource], request_timeout=self._timeout_s)
        [entries] = self._answers(futures, "settings of").values()
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        with self._judged():
            return self._ask.starts(places)

    def ends(self, places: Iterable[Place], *, committed: bool = True) -> dict[Place, int]:
        """The last stable offset of each partition, or the high watermark if `committed` is false."""
        with self._judged():
            return self._ask.ends(places, COMMITTED if committed else ALL)

    def since(self, times: Mapping[Place, int], *, committed: bool = True) -> dict[Place, int]:
        """Offset of the first record that is not older than the time (ms since 1970); -1 if there is none."""
        with self._judged():
            return self._ask.since(times, COMMITTED if committed else ALL)

    def notes(self, group: str, partitions: Collection[int], *, stable: bool = True) -> dict[int, Note]:
        """The notes of the group, by partition. `stable`: waits until no transaction has a pending note."""
        found: dict[int, Note] = {}
        left = set(partitions)
        deadline = time.monotonic() + self._timeout_s
        while left:
            for each in self._committed(group, left, stable):
                if each.error is not None and each.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                    continue
                if each.error is not None:
                    raise SetbackError(f"group {group} on cluster {self.name!r}: {each.error.str()}")
                left.discard(each.partition)
                if each.offset >= 0:
                    found[each.partition] = Note.of(each.offset, each.metadata or "")
            if left and time.monotonic() > deadline:
                raise SetbackError(f"group {group} on cluster {self.name!r} does not tell what it keeps")
            if left:
                time.sleep(POLL_S)
        return found

    def _committed(self, group: str, partitions: Collection[int], stable: bool) -> list[TopicPartition]:
        """Empty while the group's coordinator moves or loads."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(SLOTS, each) for each in sorted(partitions)])
        futures = committed_offsets(self._ask.admin, [asked], self._timeout_s, stable=stable)
        answers = self._answers(futures, "group", accepted=COORDINATOR_MOVES).values()
        return [each for answer in answers for each in answer.topic_partitions]

    def ensure_slots(self, partitions: int) -> None:
        """Ensures that the topic SLOTS exists with at least this many partitions."""
        metadata = self._metadata()
        there = metadata.topics.get(SLOTS)
        count = len(there.partitions) if there is not None and there.error is None else 0
        futures: dict[Any, Future[Any]] = {}
        if count == 0:
            replicas = max(1, min(MOST_REPLICAS, len(metadata.brokers)))
            topic = NewTopic(SLOTS, partitions, replicas, config=SLOTS_SETTINGS)
            futures = self._ask.admin.create_topics([topic], request_timeout=self._timeout_s)
        elif count < partitions:
            more = NewPartitions(SLOTS, partitions)
            futures = self._ask.admin.create_partitions([more], request_timeout=self._timeout_s)
        # the driver of another replay may create them at the same time
        self._answers(futures, "topic", accepted=(KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS))
        self._await_slots(partitions)

    def _await_slots(self, partitions: int) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            metadata = self._metadata(SLOTS)
            count = sum(1 for each in metadata.topics[SLOTS].partitions.values() if each.leader >= 0)
            if count >= partitions:
                return
            if time.monotonic() > deadline:
                raise SetbackError(f"topic {SLOTS} on cluster {self.name!r} has {count} of {partitions} partitions")
            time.sleep(POLL_S)

    def _metadata(self, topic: str | None = None) -> Any:
        with self._judged():
            return self._ask.answer(
                lambda: self._ask.admin.list_topics(topic, timeout=self._timeout_s), f"topic {topic or 'names'}"
            )

    def _answers(self, futures: Mapping[Any, Future[Any]], what: str, accepted: Collection[int] = ()) -> dict[Any, Any]:
        with self._judged():
            return self._ask.answers(futures, what, accepted)

    @contextmanager
    def _judged(self) -> Iterator[None]:
        try:
            yield
        except UnknownTopicError as error:
            raise RefusedError(
                f"{error.what} is not on cluster {self.name!r}; create it, or name another one"
            ) from error
        except UnauthorizedError as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            raise SetbackError(str(error)) from error
