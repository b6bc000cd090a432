"""Audit topics as a source of Spark with pieces of events as rows.

The worker that reads the records makes the pieces, so the JSON and its parsed members do not go to the JVM first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from services.pipeline.auditing.events import Records, events_of
from services.pipeline.auditing.pieces import PIECES, piece_of
from services.pipeline.kafka.position_json import parse, render
from services.pipeline.kafka.positions import Position, spans
from services.pipeline.kafka.ranges import SMALLEST_PIECE, shares
from services.pipeline.kafka.rows import milliseconds_of
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.spark.data_source import KafkaDataSource, SpanPartition, StreamReader

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from services.pipeline.kafka.positions import Span

FORMAT = "mesh-audit"
CALLS_TOPIC = "audit_calls_topic"
"""Option of the source: the topic of control's calls; empty if there is none."""
AT_LEAST = "audit_spans"
"""Option of the source: the least number of spans of a batch, so that all slots have the same amount of work."""
SPANS_OF_A_SLOT = 2


def stream_events(session: SparkSession, source: KafkaSource, calls_topic: str = "") -> DataFrame:
    """The events of one cluster as an unbounded DataFrame of pieces; the pieces include malformed records."""
    session.dataSource.register(AuditDataSource)
    own = {CALLS_TOPIC: calls_topic, AT_LEAST: str(SPANS_OF_A_SLOT * session.sparkContext.defaultParallelism)}
    return session.readStream.format(FORMAT).options(**source.to_options(), **own).load()


class AuditDataSource(KafkaDataSource):
    """The data source that is registered at Spark."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(PIECES)

    def streamReader(self, schema: object) -> StreamReader:  # noqa: N802  # Spark's name
        options = dict(self.options)
        return EventReader(KafkaSource.from_options(options), options[CALLS_TOPIC], int(options[AT_LEAST]))


class EventReader(StreamReader):
    """Plans batches like any stream; its rows are pieces of events."""

    def __init__(self, source: KafkaSource, calls_topic: str, at_least: int) -> None:
        super().__init__(source)
        self._calls_topic = calls_topic
        self._at_least = at_least

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end with the time, so that a batch that is run again finds the same records malformed."""
        end = super().latestOffset(start, limit)
        self._planned = render(planned_at(parse(start), parse(end), int(time.time() * 1000)))
        return self._planned

    def share(self, planned: Sequence[Span]) -> list[list[Span]]:
        """Shares even a batch of one partition among all slots: parsing the events costs more than fetching them."""
        total = sum(span.end - span.start for span in planned)
        return shares(planned, min(self._at_least, 1 + total // SMALLEST_PIECE))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        planned = cast("SpanPartition", partition)
        for name, batch in self.source.batches(planned.spans):
            messages = cast("list[Message]", batch.records)
            records = Records(
                topic=batch.topic,
                partition=batch.partition,
                offsets=[cast("int", message.offset()) for message in messages],
                times_ms=[milliseconds_of(message) for message in messages],
                values=[message.value() for message in messages],
                messages=messages,
            )
            planned_ms = planned.expected[name].planned_ms
            events = events_of(records, name.rpartition("/")[0], calls_topic=self._calls_topic, planned_ms=planned_ms)
            yield piece_of(events, batch.topic, batch.partition)
        self.check_topics(planned)


def planned_at(start: Position, end: Position, now_ms: int) -> Position:
    """The end of a batch with the time of its planning, for the topics that the batch reads; `start` if it reads none.

    A time that changes without a batch would start one, and a position has the `from` of its last batch.
    """
    if start == end:
        return start
    read = {span.topic for span in spans(start, end)}
    return {topic: replace(entry, planned_ms=now_ms) if topic in read else entry for topic, entry in end.items()}
