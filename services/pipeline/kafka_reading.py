"""What is asked of Kafka, and how spans are read: confluent-kafka, without Spark. Each call makes its own client.

1. Only committed records are read, and what is planned never reaches past the last stable offset unless somebody tells
   an end, so an open transaction holds back what lies behind it and nothing else.
2. A span ends by position, never by count: transaction markers and compaction leave offsets without records. The end of
   a partition counts as the end of the span only when it lies at or behind it: before an open transaction it does not.
3. An offset that is gone is an error, and so is a partition that yields nothing for too long.

No consumer group: who reads knows its position.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from services.pipeline.positions import PartitionLog, RecordsLostError, Span, StreamError, TopicLog
from services.pipeline.ranges import PartitionBounds, Range, span_of

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
COMMITTED, ALL = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
CLIENT_ID = "kafka-mesh-pipeline"
CONSUME_RECORDS = 1_000  # of one call, and of one Arrow batch: bounds what a task holds beside librdkafka's queue
CONSUME_SECONDS = 0.2  # how long one call waits to be full
QUEUE_KBYTES = 32_768  # what librdkafka fetches ahead in one task

Place = tuple[str, int]
"""A topic and one of its partitions."""


class UnreachableError(StreamError):
    """The cluster does not answer."""


class Questions:
    """What is asked of one cluster, each question for all partitions at once."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float) -> None:
        self._where = properties["bootstrap.servers"]
        self._timeout_s = timeout_s
        self._trouble = ""  # what librdkafka says beside its answers: why a connection is refused
        settings: dict[str, Any] = {**properties, "client.id": CLIENT_ID, "error_cb": self._heed}
        self._admin = AdminClient(settings)

    def topics(self, names: Collection[str], *, skip_absent: bool = False) -> dict[str, Any]:
        """Descriptions of topics; of those that are there, with `skip_absent`."""
        if not names:
            return {}
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
        found = {}
        for topic, future in answers.items():
            try:
                found[topic] = self._answer(future, f"topic {topic}")
            except UnknownTopicError:
                if not skip_absent:
                    raise
        return found

    def offsets(self, places: Collection[Place], spec: Any, isolation: Any = COMMITTED) -> dict[Place, int]:
        """An offset of each partition; -1 for a time that no record has reached."""
        if not places:
            return {}
        answers = self._admin.list_offsets(
            {TopicPartition(*place): spec for place in places},
            isolation_level=isolation,
            request_timeout=self._timeout_s,
        )
        return {
            (place.topic, place.partition): self._answer(future, f"{place.topic}/{place.partition}").offset
            for place, future in answers.items()
        }

    def _heed(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE):
            self._trouble = f" ({error.str()})"

    def _answer(self, future: Future[Any], place: str) -> Any:
        try:
            return future.result()
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopicError(
                    f"{place} is unknown at {self._where}: no rule routes it, or its cluster does not have it"
                ) from failure
            self._admin.poll(0)  # _heed
            raise UnreachableError(
                f"{place}: no answer from {self._where} in {self._timeout_s:g} s: {error.str()}{self._trouble}"
            ) from failure


class UnknownTopicError(StreamError):
    """The cluster does not have the topic."""


def read_logs(
    properties: Mapping[str, str], topics: Collection[str], timeout_s: float, *, skip_absent: bool = False
) -> dict[str, TopicLog]:
    """The topics as they are now. Three questions, however many partitions there are."""
    ask = Questions(properties, timeout_s)
    described = ask.topics(topics, skip_absent=skip_absent)
    places = [(topic, each.id) for topic, about in described.items() for each in about.partitions]
    starts, ends = ask.offsets(places, EARLIEST), ask.offsets(places, LATEST)
    return {
        topic: TopicLog(
            topic_id=_topic_id(about.topic_id),
            partitions={
                each.id: PartitionLog(starts[topic, each.id], ends[topic, each.id]) for each in about.partitions
            },
        )
        for topic, about in described.items()
    }


def read_bounds(
    properties: Mapping[str, str], ranges: Sequence[Range], timeout_s: float, *, accept_loss: bool = False
) -> list[Span]:
    """The offsets that ranges of one cluster mean now."""
    ask = Questions(properties, timeout_s)
    described = ask.topics({each.topic for each in ranges})
    there = {topic: {each.id for each in about.partitions} for topic, about in described.items()}
    asked = [(each, partition) for each in ranges for partition in sorted(_partitions(each, there[each.topic]))]
    places = {(each.topic, partition) for each, partition in asked}
    starts, stable = ask.offsets(places, EARLIEST), ask.offsets(places, LATEST)
    ends = ask.offsets(places, LATEST, ALL)
    times = {
        at: ask.offsets(
            {(each.topic, partition) for each, partition in asked if at in each.times_ms()},
            OffsetSpec.for_timestamp(at),
            ALL,  # stable ones alone would hide what an open transaction holds back
        )
        for at in {at for each in ranges for at in each.times_ms()}
    }

    def bounds(asked: Range, place: Place) -> PartitionBounds:
        found = {at: times[at][place] for at in asked.times_ms()}
        at = {time_ms: ends[place] if offset < 0 else offset for time_ms, offset in found.items()}
        return PartitionBounds(starts[place], stable[place], ends[place], at)

    return [
        span_of(each, each.topic, partition, bounds(each, (each.topic, partition)), accept_loss=accept_loss)
        for each, partition in asked
    ]


def _partitions(asked: Range, there: set[int]) -> Collection[int]:
    if asked.partitions is None:
        return there
    if unknown := asked.partitions - there:
        raise StreamError(f"topic {asked.topic} has {len(there)} partitions, no {sorted(unknown)}")
    return asked.partitions


def _topic_id(given: Any) -> str:
    """Empty for the id of all zeros, by which a broker says that it has none."""
    known = given is not None and (given.get_most_significant_bits() or given.get_least_significant_bits())
    return str(given) if known else ""


def read_span(
    properties: Mapping[str, str], span: Span, stall_timeout_s: float, *, accept_loss: bool = False
) -> Iterator[list[Message]]:
    """The committed records of `span`, in order."""
    consumer = Consumer(
        {
            "queued.max.messages.kbytes": QUEUE_KBYTES,
            **properties,
            "client.id": CLIENT_ID,
            "group.id": CLIENT_ID,  # librdkafka asks for one; nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if accept_loss else "error",
        }
    )
    try:
        consumer.assign([TopicPartition(span.topic, span.partition, span.start)])
        yield from _until_end(consumer, span, stall_timeout_s)
    finally:
        consumer.close()


def _until_end(consumer: Consumer, span: Span, stall_timeout_s: float) -> Iterator[list[Message]]:
    position = span.start
    deadline = time.monotonic() + stall_timeout_s
    last_error = "no error was reported; an open transaction, perhaps"
    while position < span.end:
        records: list[Message] = []
        reached = position
        for message in consumer.consume(min(CONSUME_RECORDS, span.end - position), CONSUME_SECONDS):
            error, offset = message.error(), message.offset() or 0
            if error is None:
                reached = offset + 1
                if span.start <= offset < span.end:
                    records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, offset)
            else:
                last_error = _passing(error, span, position)
        if records:
            yield records
        if reached > position:
            position = reached
            deadline = time.monotonic() + stall_timeout_s
        elif time.monotonic() > deadline:
            raise StreamError(
                f"{span} stands at offset {position} of {span.end} for {stall_timeout_s:g} s ({last_error}); "
                "run it again, or raise KAFKA_MESH_PIPELINE_STALL_TIMEOUT_S"
            )


def _passing(error: KafkaError, span: Span, position: int) -> str:
    """The text of an error that librdkafka gets over by itself; raises for the others."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsLostError(
            f"{span} does not hold offset {position} any more ({error.str()}): retention took it before it was read; "
            "go on without it with --accept-loss"
        )
    if error.fatal():
        raise StreamError(f"{span}: {error.str()}")
    return str(error.str())
