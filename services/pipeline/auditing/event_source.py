"""Audit topics as a source of Spark whose rows are pieces of events. They are made of records where those are read: the
JSON, and what is read in it, does not go to the JVM first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from services.pipeline.auditing.events import Records, events_of
from services.pipeline.auditing.pieces import PIECES, piece_of
from services.pipeline.kafka_source import KafkaDataSource, KafkaSource, SpanPartition, StreamReader, milliseconds_of
from services.pipeline.positions import parse, spans
from services.pipeline.ranges import cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

FORMAT = "mesh-audit"
CALLS_TOPIC = "audit_calls_topic"
"""Its option: the topic of control's calls; empty where there is none."""
AT_LEAST = "audit_spans"
"""Its option: into how many spans a batch is cut at least, so that all slots have as much to do."""
SPANS_OF_A_SLOT = 2


def stream_events(session: SparkSession, source: KafkaSource, calls_topic: str = "") -> DataFrame:
    """The events of one cluster as an unbounded DataFrame of pieces; what is no event is among them."""
    session.dataSource.register(AuditDataSource)
    own = {CALLS_TOPIC: calls_topic, AT_LEAST: str(SPANS_OF_A_SLOT * session.sparkContext.defaultParallelism)}
    return session.readStream.format(FORMAT).options(**source.to_options(), **own).load()


class AuditDataSource(KafkaDataSource):
    """What Spark registers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(PIECES)

    def streamReader(self, schema: object) -> StreamReader:  # noqa: N802  # Spark's name
        options = dict(self.options)
        return EventReader(KafkaSource.from_options(options), options[CALLS_TOPIC], int(options[AT_LEAST]))


class EventReader(StreamReader):
    """Plans as any stream does; its rows are pieces of events."""

    def __init__(self, source: KafkaSource, calls_topic: str, at_least: int) -> None:
        super().__init__(source)
        self._calls_topic = calls_topic
        self._at_least = at_least

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [SpanPartition(span) for span in cut(spans(parse(start), parse(end)), self._at_least)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        span = cast("SpanPartition", partition).span
        cluster, _, topic = span.topic.rpartition("/")
        for messages in self.source.messages(span):
            records = Records(
                topic=topic,
                partition=span.partition,
                offsets=[cast("int", message.offset()) for message in messages],
                times_ms=[milliseconds_of(message) for message in messages],
                values=[message.value() for message in messages],
                messages=messages,
            )
            events = events_of(records, cluster, calls_topic=self._calls_topic)
            yield piece_of(events, topic, span.partition)
