"""What topics hold, and how spans of them are read: confluent-kafka, without Spark. Nobody here is in a consumer group:
who reads knows its position.

1. Only committed records are read, and what is planned never reaches past the last stable offset unless somebody tells
   an end, so an open transaction holds back what lies behind it and nothing else.
2. A span ends by position, never by count: transaction markers and compaction leave offsets without records. The end of
   a partition counts as the end of the span only when it lies at or behind it: before an open transaction it does not.
3. A partition whose span is read is given back, so that nothing is fetched of it any more.
4. An offset that is gone is an error at once. So is it when nothing at all has come for too long: if a partition was
   read to where it ends now, a transaction is open there; otherwise the cluster is away. The time that whoever reads
   takes for itself does not count.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from mesh.judging.records import Record
from services.pipeline.kafka_asking import ALL, CLIENT_ID, Questions, topic_id_of
from services.pipeline.positions import (
    PartitionLog,
    Place,
    RecordsLostError,
    Span,
    StreamError,
    TopicLog,
    UnreachableError,
)
from services.pipeline.ranges import PartitionBounds, Range, span_of

CONSUME_RECORDS = 2_000
"""Of one call, and of one Arrow batch: bounds what a task holds beside librdkafka's queue."""
CONSUME_S = 0.1
"""How long one call waits to be full."""
QUEUE_KBYTES = 32_768
"""What librdkafka fetches ahead in one task."""
FETCH_WAIT_MS = 100
FULL_PAUSE_MS = 10
"""How long librdkafka fetches nothing when it has fetched enough ahead. By itself it takes a second for that, and a
task that has read all of it meanwhile stands still."""


def read_logs(
    properties: Mapping[str, str],
    topics: Collection[str],
    timeout_s: float,
    *,
    skip_absent: bool = False,
    with_last: bool = False,
) -> dict[str, TopicLog]:
    """The topics as they are now. Three questions, however many partitions there are; a fourth one for `last`."""
    ask = Questions(properties, timeout_s)
    described = ask.topics(topics, skip_absent=skip_absent)
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
        )
        for topic, about in described.items()
    }


def read_since(properties: Mapping[str, str], times: Mapping[Place, int], timeout_s: float) -> dict[Place, int]:
    """The first offset of these times or later, committed or not; -1 where there is none."""
    return Questions(properties, timeout_s).since(times, ALL) if times else {}


def read_bounds(
    properties: Mapping[str, str], ranges: Sequence[Range], timeout_s: float, *, accept_loss: bool = False
) -> list[Span]:
    """The offsets that ranges of one cluster mean now."""
    ask = Questions(properties, timeout_s)
    described = ask.topics({each.topic for each in ranges})
    there = {topic: {each.id for each in about.partitions} for topic, about in described.items()}
    asked = [(each, partition) for each in ranges for partition in sorted(_partitions(each, there[each.topic]))]
    places = {(each.topic, partition) for each, partition in asked}
    starts, stable, ends = ask.starts(places), ask.ends(places), ask.ends(places, ALL)
    times = {
        at: ask.since(
            {(each.topic, partition): at for each, partition in asked if at in each.times_ms()},
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


class Batch(NamedTuple):
    """What was read next of one partition."""

    topic: str
    partition: int
    records: Sequence[Record]
    """In the order of their offsets; may be empty."""
    position: int
    """All records before this offset were in this batch or an earlier one: gaps are passed over."""


def read_spans(
    properties: Mapping[str, str], some: Sequence[Span], stall_timeout_s: float, *, accept_loss: bool = False
) -> Iterator[Batch]:
    """The committed records of spans of different partitions, in order within each."""
    with closing(SpanReader(properties, stall_timeout_s, accept_loss=accept_loss)) as reader:
        try:
            for batch in reader.read(some):
                if batch is not None and batch.records:
                    yield batch
        except RecordsLostError as error:
            raise RecordsLostError(f"{error}; go on without it with --accept-loss") from None


class SpanReader:
    """One consumer, for spans of many partitions of one cluster side by side. Not to be used by several threads."""

    def __init__(self, properties: Mapping[str, str], stall_timeout_s: float, *, accept_loss: bool = False) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._trouble = ""  # what the cluster has said since something came
        self._consumer = Consumer(
            {
                "queued.max.messages.kbytes": QUEUE_KBYTES,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "fetch.queue.backoff.ms": FULL_PAUSE_MS,
                **properties,
                "client.id": CLIENT_ID,
                "group.id": CLIENT_ID,  # librdkafka asks for one; nothing is ever committed
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
        """The committed records, in order within each span. None when nothing has come for a moment."""
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
        """What is of no partition: librdkafka gets over it by itself, or nothing comes for too long."""
        self._trouble = str(error.str())


class _Come(NamedTuple):
    """What one call has brought, by partition."""

    records: dict[Place, list[Message]]
    reached: dict[Place, int]
    ends: dict[Place, int]
    """Where logs end now, or their committed records."""
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
    records = cast("list[Record]", messages)  # what a consumer gives is never without a place
    if not records or (span.start <= records[0].offset() and records[-1].offset() < span.end):
        return records
    return [each for each in records if span.start <= each.offset() < span.end]


def _passing(error: KafkaError, span: Span, position: int) -> str:
    """The text of an error that librdkafka gets over by itself; raises for the others."""
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
