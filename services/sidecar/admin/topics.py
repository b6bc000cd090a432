"""Topics as this sidecar sees them: names, partitions, leaders, first and next offsets; and new topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewTopic

from services.sidecar.faults import Fault, FaultKind

T = TypeVar("T")
LIST_SECONDS = 10.0
"""Bound of each question."""
CLUSTERS_DEFAULT = -1
"""The protocol's number of partitions, or of replicas, for the default of the cluster."""
_AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT)
_SPECS: Any = OffsetSpec  # it ships no types


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic to be made; None is the default of the cluster."""

    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in a list."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """One partition. Offsets are -1 if its leader did not answer."""

    partition: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """One topic, partition by partition."""

    topic: str
    partitions: list[PartitionDetail]


class Topics:
    """Asks Kafka, with a client that is made at the first request. Each question raises Fault if Kafka does not answer.

    It has its own thread: while Kafka is away its requests wait, and no other work may wait for them.
    """

    def __init__(self, properties: dict[str, Any]) -> None:
        self._properties = {**properties, "allow.auto.create.topics": False}  # a question makes no topic
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topics")

    async def all(self) -> list[TopicSummary]:
        found = await self._asked(lambda: self._admin.list_topics(timeout=LIST_SECONDS).topics)
        return [TopicSummary(name, len(topic.partitions)) for name, topic in sorted(found.items())]

    async def create(self, wanted: WantedTopic) -> TopicSummary:
        """Returns when the topic is made. Fault if there is one, or if Kafka refuses it."""
        new = NewTopic(
            wanted.topic,
            wanted.partitions or CLUSTERS_DEFAULT,
            wanted.replication_factor or CLUSTERS_DEFAULT,
            config=dict(wanted.settings),
        )
        made = await self._asked(lambda: self._admin.create_topics([new], request_timeout=LIST_SECONDS)[wanted.topic])
        try:
            await asyncio.wrap_future(made)
        except KafkaException as failure:
            raise _not_made(wanted.topic, failure.args[0]) from None
        if wanted.partitions is not None:
            return TopicSummary(wanted.topic, wanted.partitions)
        found = await self._asked(lambda: self._admin.list_topics(wanted.topic, LIST_SECONDS).topics[wanted.topic])
        return TopicSummary(wanted.topic, len(found.partitions))

    async def one(self, name: str) -> TopicDetail | None:
        """None when there is none of this name."""
        found: dict[str, TopicMetadata] = await self._asked(lambda: self._admin.list_topics(name, LIST_SECONDS).topics)
        topic = found.get(name)
        if topic is None or (topic.error is not None and topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART):
            return None
        if topic.error is not None:
            raise _unavailable(topic.error.str())
        partitions = sorted(topic.partitions)
        first = await self._offsets(name, partitions, _SPECS.earliest())
        last = await self._offsets(name, partitions, _SPECS.latest())
        return TopicDetail(
            name,
            [
                PartitionDetail(one, part.leader, part.replicas, part.isrs, first.get(one, -1), last.get(one, -1))
                for one in partitions
                for part in (topic.partitions[one],)
            ],
        )

    async def settings(self, name: str) -> dict[str, str]:
        """The settings of a topic, as Kafka has them."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        asked = await self._asked(
            lambda: self._admin.describe_configs([resource], request_timeout=LIST_SECONDS)[resource]
        )
        try:
            found = await asyncio.wrap_future(asked)
        except KafkaException as failure:
            raise _unavailable(f"Kafka does not answer: {failure.args[0].str()}") from None
        return {setting: entry.value or "" for setting, entry in found.items()}

    def close(self) -> None:
        """Ends the thread without waiting for open requests."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._properties)

    async def _offsets(self, topic: str, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(topic, one): spec for one in partitions}
        futures = await self._asked(lambda: self._admin.list_offsets(asked, request_timeout=LIST_SECONDS))
        results = await asyncio.gather(*map(asyncio.wrap_future, futures.values()), return_exceptions=True)
        return {
            place.partition: result.offset
            for place, result in zip(futures, results, strict=True)
            if not isinstance(result, BaseException)
        }

    async def _asked(self, question: Callable[[], T]) -> T:
        """The client blocks until it is answered."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except KafkaException as error:
            raise _unavailable(f"Kafka does not answer: {error.args[0].str()}") from None


def _not_made(topic: str, error: KafkaError) -> Fault:
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return Fault(FaultKind.TOPIC_EXISTS, f"There is a topic {topic!r} already; its settings have not changed")
    if error.code() in _AWAY:
        return _unavailable(f"Kafka does not answer, and may still make topic {topic!r}: {error.str()}")
    return Fault(FaultKind.TOPIC_REFUSED, f"Kafka does not make topic {topic!r}: {error.str()}")


def _unavailable(reason: str) -> Fault:
    return Fault(FaultKind.KAFKA_UNAVAILABLE, reason)
