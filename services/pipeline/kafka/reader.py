"""Reads topics and spans of them by confluent-kafka, without Spark.

The consumers are in no group: each reader knows its own position.

1. Only committed records are read. Without an explicit end, a plan never reaches past the last stable offset. So an
   open transaction holds back only the records behind its start, in its partition.
2. A span ends by position, and never by the number of records: transaction markers and compaction leave offsets without
   records. The end of a partition ends the span only if it is at or behind the end of the span. Before an open
   transaction it is not.
3. When the span of a partition has been read, the partition is unassigned, so that the consumer fetches no more of it.
4. A deleted offset is an error at once. It is also an error if nothing has arrived for too long. If a partition was
   read up to its current end, an open transaction is the cause; otherwise the cluster is away. The time that the caller
   takes between two batches does not count.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from mesh.cluster_nodes import cluster_nodes
from mesh.judging.records import Record
from services.pipeline.kafka.admin import ALL, CLIENT_ID, Questions, is_of_a_gateway, topic_id_of
from services.pipeline.kafka.positions import (
    PartitionLog,
    Place,
    RecordsLostError,
    Span,
    StreamError,
    TopicLog,
    UnreachableError,
)
from services.pipeline.kafka.ranges import PartitionBounds, Range, span_of

CONSUME_RECORDS = 2_000
"""Records of one call and of one Arrow batch: limits the memory of a task beside librdkafka's queue."""
CONSUME_S = 0.1
"""The most seconds that one call waits for more records."""
QUEUE_KBYTES = 32_768
"""The most that librdkafka fetches ahead in one task."""
FETCH_WAIT_MS = 100
LOOKS = 3
"""The most times that topics are described, if rules move them between the requests."""
FULL_PAUSE_MS = 10
"""Milliseconds that librdkafka pauses a fetch when its queue is full.

The default is a second; a task that has read the whole queue meanwhile would wait.
"""


def read_logs(
    properties: Mapping[str, str],
    topics: Collection[str],
    timeout_s: float,
    *,
    skip_absent: bool = False,
    with_last: bool = False,
) -> dict[str, TopicLog]:
    """The current state of the topics. Three requests for any number of partitions.

    `with_last` is for a gateway, and needs three more requests. It also finds the cluster of each topic.
    """
    ask = Questions(properties, timeout_s)
    for _ in range(LOOKS):
        described = ask.topics(topics, skip_absent=skip_absent)
        where = _clusters_of(ask, described) if with_last else {}
        found = _logs(ask, described, where, with_last=with_last)
        if not where or _leaders_of(ask.topics(where.keys(), skip_absent=True)) == where:
            return found
    raise UnreachableError(f"topics {', '.join(sorted(where))}: rules move them faster than they can be described")


def _logs(
    ask: Questions, described: Mapping[str, Any], where: Mapping[str, str], *, with_last: bool
) -> dict[str, TopicLog]:
    places = [(topic, each.id) for topic, about in described.items() for each in about.partitions]
    starts, ends = ask.starts(places), ask.ends(places)
    last = ask.last(places) if with_last else {}
    return {
        topic: TopicLog(
            topic_id=topic_id_of(about),
            partitions={
                each.id: PartitionLog(starts[topic, each.id], ends[topic, each.id]) for each in about.partitions
            },
            last={each.id: last[topic, each.id] for each in about.partitions if (topic, each.id) in last},
            at=where.get(topic, ""),
        )
        for topic, about in described.items()
    }


def _clusters_of(ask: Questions, described: Mapping[str, Any]) -> dict[str, str]:
    """The clusters of topics behind a gateway: it shows each cluster as one node, which leads the cluster's topics.

    Without the topics whose cluster is not shown: a rule may give this client a single node for all clusters, and Kafka
    itself shows brokers.
    """
    led = _leaders_of(described)
    if not led or len(ask.answer(lambda: cluster_nodes(ask.admin, ask.timeout_s), "brokers").brokers) <= 1:
        return {}
    return led


def _leaders_of(described: Mapping[str, Any]) -> dict[str, str]:
    """The node of each topic behind a gateway that one node leads."""
    led = {
        topic: {each.leader.id for each in about.partitions if each.leader is not None}
        for topic, about in described.items()
        if is_of_a_gateway(topic_id_of(about))
    }
    return {topic: str(*nodes) for topic, nodes in led.items() if len(nodes) == 1}


def read_ends(
    properties: Mapping[str, str], logs: Mapping[str, TopicLog], timeout_s: float
) -> dict[str, dict[int, int]]:
    """The ends of the logs, behind the records of open transactions too."""
    ends = Questions(properties, timeout_s).ends(
        [(topic, each) for topic in logs for each in logs[topic].partitions], ALL
    )
    return {topic: {each: ends[topic, each] for each in log.partitions} for topic, log in logs.items()}


def read_since(properties: Mapping[str, str], times: Mapping[Place, int], timeout_s: float) -> dict[Place, int]:
    """The first offset of these times or later, committed or not; -1 if there is none."""
    return Questions(properties, timeout_s).since(times, ALL) if times else {}


def read_bounds(
    properties: Mapping[str, str], ranges: Sequence[Range], timeout_s: float, *, accept_loss: bool = False
) -> list[Span]:
    """The current offsets of ranges of one cluster."""
    ask = Questions(properties, timeout_s)
    described = ask.topics({each.topic for each in ranges})
    there = {topic: {each.id for each in about.partitions} for topic, about in described.items()}
    asked = [(each, partition) for each in ranges for partition in sorted(_partitions(each, there[each.topic]))]
    places = {(each.topic, partition) for each, partition in asked}
    starts, stable, ends = ask.starts(places), ask.ends(places), ask.ends(places, ALL)
    times = {
        at: ask.since(
            {(each.topic, partition): at for each, partition in asked if at in each.times_ms()},
            ALL,  # stable offsets alone would hide records that an open transaction holds back
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


class Batch(NamedTuple):
    """The next records of one partition."""

    topic: str
    partition: int
    records: Sequence[Record]
    """In the order of offsets; may be empty."""
    position: int
    """All records before this offset were in this batch or an earlier one; gaps are skipped."""


def read_spans(
    properties: Mapping[str, str], some: Sequence[Span], stall_timeout_s: float, *, accept_loss: bool = False
) -> Iterator[Batch]:
    """The committed records of spans of different partitions, in the order of offsets within each span."""
    with closing(SpanReader(properties, stall_timeout_s, accept_loss=accept_loss)) as reader:
        try:
            for batch in reader.read(some):
                if batch is not None and batch.records:
                    yield batch
        except RecordsLostError as error:
            raise RecordsLostError(f"{error}; go on without it with --accept-loss") from None


class SpanReader:
    """One consumer, for spans of many partitions of one cluster in parallel. Not safe for several threads."""

    def __init__(self, properties: Mapping[str, str], stall_timeout_s: float, *, accept_loss: bool = False) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._trouble = ""  # the cluster's last error since the last record
        self._consumer = Consumer(
            {
                "queued.max.messages.kbytes": QUEUE_KBYTES,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "fetch.queue.backoff.ms": FULL_PAUSE_MS,
                **properties,
                "client.id": CLIENT_ID,
                "group.id": CLIENT_ID,  # librdkafka requires a group; nothing is ever committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest" if accept_loss else "error",
                "error_cb": self._heed,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        """The committed records, in the order of offsets within each span. None if nothing has arrived for a moment."""
        waiting = {(span.topic, span.partition): span for span in spans if span.start < span.end}
        positions = {place: span.start for place, span in waiting.items()}
        self._consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in waiting.values()])
        ends: dict[Place, int] = {}
        idle = 0.0
        while waiting:
            wanted = sum(span.end - positions[place] for place, span in waiting.items())
            began = time.monotonic()
            come = _sorted_out(self._consumer.consume(min(CONSUME_RECORDS, wanted), CONSUME_S))
            idle += time.monotonic() - began
            ends |= come.ends
            moved = False
            for place, error in come.errors.items():
                if place in waiting:
                    self._trouble = _passing(error, waiting[place], positions[place])
            for place, reached in come.reached.items():
                if place not in waiting or reached <= positions[place]:
                    continue
                span, moved = waiting[place], True
                positions[place] = reached
                yield Batch(*place, _within(come.records.get(place, []), span), min(reached, span.end))
                if reached >= span.end:
                    del waiting[place]
                    self._consumer.incremental_unassign([TopicPartition(*place)])
            if moved:
                idle, self._trouble = 0.0, ""
                continue
            if idle > self._stall_timeout_s:
                for place, span in waiting.items():
                    if ends.get(place) != positions[place]:
                        raise _unanswered(span, positions, idle, self._trouble)
                raise _held_up(next(iter(waiting.values())), positions, idle)
            yield None

    def _heed(self, error: KafkaError) -> None:
        """Keeps an error of no partition: librdkafka recovers by itself, or the stall time-out ends the read."""
        self._trouble = str(error.str())


class _Come(NamedTuple):
    """The result of one call, by partition."""

    records: dict[Place, list[Message]]
    reached: dict[Place, int]
    ends: dict[Place, int]
    """The current ends of the logs, or of their committed records."""
    errors: dict[Place, KafkaError]


def _sorted_out(messages: Sequence[Message]) -> _Come:
    come = _Come({}, {}, {}, {})
    for message in messages:
        place: Place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            come.records.setdefault(place, []).append(message)
            come.reached[place] = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            come.ends[place] = message.offset() or 0
            come.reached[place] = max(come.reached.get(place, 0), come.ends[place])
        else:
            come.errors[place] = error
    return come


def _within(messages: list[Message], span: Span) -> list[Record]:
    records = cast("list[Record]", messages)  # a message from a consumer always has a topic, a partition and an offset
    if not records or (span.start <= records[0].offset() and records[-1].offset() < span.end):
        return records
    return [each for each in records if span.start <= each.offset() < span.end]


def _passing(error: KafkaError, span: Span, position: int) -> str:
    """The text of an error that librdkafka recovers from by itself; raises for other errors."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsLostError(
            f"{span} does not hold offset {position} any more ({error.str()}): retention took it before it was read"
        )
    if error.fatal():
        raise UnreachableError(f"{span} can't be read: {error.str()}")
    return str(error.str())


def _unanswered(span: Span, positions: Mapping[Place, int], idle: float, trouble: str) -> UnreachableError:
    return UnreachableError(f"{_standing(span, positions, idle)}: {trouble or 'its cluster does not answer'}")


def _held_up(span: Span, positions: Mapping[Place, int], idle: float) -> StreamError:
    return StreamError(
        f"{_standing(span, positions, idle)}: a transaction may be open there. End it, or name an end before it; or "
        "raise KAFKA_MESH_PIPELINE_STALL_TIMEOUT_S"
    )


def _standing(span: Span, positions: Mapping[Place, int], idle: float) -> str:
    return f"{span} stands at offset {positions[span.topic, span.partition]} of {span.end} for {idle:.0f} s"
