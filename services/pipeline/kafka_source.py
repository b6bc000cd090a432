"""Kafka as a source of Spark's Structured Streaming: a Python Data Source on confluent-kafka.

Spark starts one Python process that plans (`KafkaReader`: where does the next batch end?), and for each batch a task
per partition that reads its span (`read_span`). Both make their own client; nothing of it is pickled.

1. Only committed records are read, and a batch never reaches past the last stable offset, so an open transaction holds
   back what lies behind it and nothing else.
2. A span ends by position, never by count: transaction markers and compaction leave offsets without records. The end of
   a partition counts as the end of the span only when it lies at or behind it.
3. An offset that is gone is an error (`positions.py`), and so is a partition that yields nothing for too long.

It is a plain client of the gateway, without a consumer group: the checkpoint holds the position.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

import pyarrow
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from services.pipeline.positions import (
    PartitionLog,
    RecordsLostError,
    Span,
    StreamError,
    TopicLog,
    advance,
    parse,
    render,
    spans,
)

EARLIEST, LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
FORMAT = "mesh-kafka"
CLIENT_ID = "kafka-mesh-pipeline"
SCHEMA = """
    topic string, partition int, offset bigint, timestamp timestamp,
    key binary, value binary, headers array<struct<key: string, value: binary>>
"""
ARROW_SCHEMA = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("offset", pyarrow.int64()),
        ("timestamp", pyarrow.timestamp("us", tz="UTC")),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))),
    ]
)
CONSUME_RECORDS = 1_000  # of one call, and of one Arrow batch: bounds what a task holds beside librdkafka's queue
CONSUME_SECONDS = 0.2  # how long one call waits to be full
QUEUE_KBYTES = 32_768  # what librdkafka fetches ahead in one task
MICROSECONDS_OF_A_MILLISECOND = 1_000
PROPERTY_PREFIX = "kafka."


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """What to read, and how."""

    topics: tuple[str, ...]
    properties: Mapping[str, str]
    """librdkafka's, `bootstrap.servers` among them."""
    max_batch_rows: int
    stall_timeout_s: float
    request_timeout_s: float
    accept_loss: bool = False

    def stream(self, session: SparkSession) -> DataFrame:
        """The records as an unbounded DataFrame."""
        session.dataSource.register(KafkaDataSource)
        return session.readStream.format(FORMAT).options(**self.to_options()).load()

    def to_options(self) -> dict[str, str]:
        """As Spark passes them on; properties one by one, so that Spark's redaction knows the secret ones by name."""
        return {
            "topics": json.dumps(self.topics),
            "max_batch_rows": str(self.max_batch_rows),
            "stall_timeout_s": str(self.stall_timeout_s),
            "request_timeout_s": str(self.request_timeout_s),
            "accept_loss": json.dumps(self.accept_loss),
        } | {PROPERTY_PREFIX + name: value for name, value in self.properties.items()}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> KafkaSource:
        return cls(
            topics=tuple(json.loads(options["topics"])),
            properties={
                name.removeprefix(PROPERTY_PREFIX): value
                for name, value in options.items()
                if name.startswith(PROPERTY_PREFIX)
            },
            max_batch_rows=int(options["max_batch_rows"]),
            stall_timeout_s=float(options["stall_timeout_s"]),
            request_timeout_s=float(options["request_timeout_s"]),
            accept_loss=json.loads(options["accept_loss"]),
        )


class KafkaDataSource(DataSource):
    """What Spark registers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> KafkaReader:  # noqa: N802  # Spark's names, here and below
        return KafkaReader(KafkaSource.from_options(dict(self.options)))


@dataclass(frozen=True, slots=True)
class SpanPartition(InputPartition):
    """What one task reads."""

    span: Span


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, and reads the parts of one."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._logs_at_start: dict[str, TopicLog] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return render({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._source.max_batch_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._logs_at_start = read_logs(self._source)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        logs = self._logs_at_start or read_logs(self._source)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return render(advance(parse(start), logs, max_rows=max_rows, accept_loss=self._source.accept_loss))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [SpanPartition(span) for span in spans(parse(start), parse(end))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        for messages in read_span(self._source, partition.span):
            yield to_arrow(messages)


def read_logs(source: KafkaSource) -> dict[str, TopicLog]:
    """The topics as they are now. Three questions, however many partitions there are."""
    admin = AdminClient({**source.properties, "client.id": CLIENT_ID})
    timeout = {"request_timeout": source.request_timeout_s}
    described = {
        topic: _answer(future, f"topic {topic}", source)
        for topic, future in admin.describe_topics(TopicCollection(list(source.topics)), **timeout).items()
    }
    places = [TopicPartition(topic, each.id) for topic, about in described.items() for each in about.partitions]
    starts, ends = (
        {
            (place.topic, place.partition): _answer(future, f"{place.topic}/{place.partition}", source).offset
            for place, future in admin.list_offsets(
                dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED, **timeout
            ).items()
        }
        for spec in (EARLIEST, LATEST)
    )
    return {
        topic: TopicLog(
            topic_id=_topic_id(about.topic_id),
            partitions={
                each.id: PartitionLog(starts[topic, each.id], ends[topic, each.id]) for each in about.partitions
            },
        )
        for topic, about in described.items()
    }


def _answer(future: Future[Any], place: str, source: KafkaSource) -> Any:
    try:
        return future.result()
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        where = source.properties["bootstrap.servers"]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            text = f"{place} is unknown at {where}: no rule routes it, or its cluster does not have it"
        else:
            text = f"{place}: no answer from {where} in {source.request_timeout_s:g} s: {error.str()}"
        raise StreamError(text) from failure


def _topic_id(given: Any) -> str:
    """Empty for the id of all zeros, by which a broker says that it has none."""
    known = given is not None and (given.get_most_significant_bits() or given.get_least_significant_bits())
    return str(given) if known else ""


def read_span(source: KafkaSource, span: Span) -> Iterator[list[Message]]:
    """The committed records of `span`, in order."""
    consumer = Consumer(
        {
            "queued.max.messages.kbytes": QUEUE_KBYTES,
            **source.properties,
            "client.id": CLIENT_ID,
            "group.id": CLIENT_ID,  # librdkafka asks for one; nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if source.accept_loss else "error",
        }
    )
    try:
        consumer.assign([TopicPartition(span.topic, span.partition, span.start)])
        yield from _until_end(consumer, source, span)
    finally:
        consumer.close()


def _until_end(consumer: Consumer, source: KafkaSource, span: Span) -> Iterator[list[Message]]:
    position = span.start
    deadline = time.monotonic() + source.stall_timeout_s
    last_error = "no error was reported"
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
            deadline = time.monotonic() + source.stall_timeout_s
        elif time.monotonic() > deadline:
            raise StreamError(
                f"{span} stands at offset {position} of {span.end} for {source.stall_timeout_s:g} s ({last_error}); "
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


def to_arrow(messages: list[Message]) -> pyarrow.RecordBatch:
    """The rows that SCHEMA describes."""
    return pyarrow.RecordBatch.from_arrays(
        [
            [message.topic() for message in messages],
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [_microseconds(message) for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            [[{"key": name, "value": value} for name, value in _headers(message)] for message in messages],
        ],
        schema=ARROW_SCHEMA,
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # what a consumer gets is always a list; the type also covers what a producer may give
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _microseconds(message: Message) -> int | None:
    """None for records of message formats that know no time."""
    _kind, milliseconds = message.timestamp()
    return milliseconds * MICROSECONDS_OF_A_MILLISECOND if milliseconds >= 0 else None
