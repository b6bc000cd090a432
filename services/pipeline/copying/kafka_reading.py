"""Reads spans of many partitions of one cluster with one consumer.

1. Only committed records are read. A span ends by position, never by count: marks of transactions and compaction leave
   offsets without records. The end of a partition counts as the end of its span only where it lies at or behind it.
2. A partition whose span is read is given back, so that nothing is fetched of it any more.
3. What stands still is an error, when nothing at all has come for long enough: an open transaction inside a span, or a
   cluster that is away. The time that whoever copies takes for itself does not count.
4. An offset that is gone is an error at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from services.pipeline.copying.errors import SetbackError
from services.pipeline.copying.reading import Batch, Place, Record
from services.pipeline.positions import RecordsLostError, Span, StreamError

CONSUME_RECORDS = 2_000
CONSUME_S = 0.1
"""How long one call waits to be full."""
QUEUE_KBYTES = 32_768
"""What librdkafka fetches ahead."""
CLIENT_ID = "kafka-mesh-pipeline"
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)


@dataclass(frozen=True, slots=True)
class KafkaOrigin:
    """A cluster, as a task is told of it."""

    properties: Mapping[str, str] = field(repr=False)
    stall_timeout_s: float

    def reader(self) -> AbstractContextManager[KafkaReader]:
        return closing(KafkaReader(self.properties, self.stall_timeout_s))


class KafkaReader:
    """One consumer, in no group."""

    def __init__(self, properties: Mapping[str, str], stall_timeout_s: float) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._consumer = Consumer(
            {
                "queued.max.messages.kbytes": QUEUE_KBYTES,
                "fetch.wait.max.ms": 100,
                **properties,
                "client.id": CLIENT_ID,
                "group.id": CLIENT_ID,  # librdkafka asks for one; nothing is ever committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def read(self, spans: Sequence[Span]) -> Iterator[Batch | None]:
        waiting = {(span.topic, span.partition): span for span in spans if span.start < span.end}
        positions = {place: span.start for place, span in waiting.items()}
        self._consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in waiting.values()])
        idle, last_error = 0.0, "no error was reported"
        while waiting:
            wanted = sum(span.end - positions[place] for place, span in waiting.items())
            began = time.monotonic()
            messages = self._consumer.consume(min(CONSUME_RECORDS, wanted), CONSUME_S)
            moved = False
            for place, records, reached, error in _by_partition(messages, positions):
                if place not in waiting:
                    continue
                span = waiting[place]
                last_error = _passing(error, span, positions[place]) if error is not None else last_error
                if reached > positions[place]:
                    positions[place] = reached
                    moved = True
                    yield Batch(*place, _within(records, span), min(reached, span.end))
                if reached >= span.end:
                    del waiting[place]
                    self._consumer.incremental_unassign([TopicPartition(*place)])
            if moved:
                idle = 0.0
                continue
            idle += time.monotonic() - began
            if idle > self._stall_timeout_s:
                raise _stalled(next(iter(waiting.values())), positions, idle, last_error)
            yield None


Part = tuple[Place, list[Message], int, KafkaError | None]
"""Of one call: the records of a partition, where it stands behind them, and what went wrong."""


def _by_partition(messages: Sequence[Message], positions: Mapping[Place, int]) -> Iterator[Part]:
    records: dict[Place, list[Message]] = {}
    reached: dict[Place, int] = {}
    errors: dict[Place, KafkaError] = {}
    for message in messages:
        place: Place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            records.setdefault(place, []).append(message)
            reached[place] = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            reached[place] = max(reached.get(place, 0), message.offset() or 0)
        elif place in positions:
            errors[place] = error
        else:
            _of_the_cluster(error)
    for place in dict.fromkeys((*reached, *errors)):
        yield place, records.get(place, []), reached.get(place, 0), errors.get(place)


def _within(messages: list[Message], span: Span) -> list[Record]:
    records = cast("list[Record]", messages)  # what a consumer gives is never without a place
    if not records or (span.start <= records[0].offset() and records[-1].offset() < span.end):
        return records
    return [each for each in records if span.start <= each.offset() < span.end]


def _of_the_cluster(error: KafkaError) -> None:
    """Raises for what librdkafka does not get over by itself."""
    if error.fatal() or not (error.retriable() or error.code() in PASSING):
        raise SetbackError(f"the source can't be read: {error.str()}")


def _passing(error: KafkaError, span: Span, position: int) -> str:
    """The text of an error that librdkafka gets over by itself; raises for the others."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsLostError(
            f"{span} does not hold offset {position} any more ({error.str()}): retention took it before it was copied; "
            "a replay from the archive, or of what is left, may help"
        )
    if error.fatal():
        raise StreamError(f"{span}: {error.str()}")
    return str(error.str())


def _stalled(span: Span, positions: Mapping[Place, int], idle: float, last_error: str) -> StreamError:
    position = positions[span.topic, span.partition]
    return StreamError(
        f"{span} stands at offset {position} of {span.end} for {idle:.0f} s ({last_error}): a transaction may be open "
        "there. End it, or name an end before it; or raise KAFKA_MESH_PIPELINE_STALL_TIMEOUT_S"
    )
