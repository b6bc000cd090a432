"""Kafka as a source of Spark, batch and stream: a Python Data Source over `kafka_reading`.

A stream: Spark starts one Python process that plans (`StreamReader`: where does the next batch end?), and for each
batch a task per partition that reads its span. A batch: the driver finds the offsets of its ranges, tasks read pieces
of them. All make their own clients; nothing of them is pickled.

Several clusters are one source: their records come with a column `cluster`, and a position knows topics as `c1/apples`,
so a cluster that joins later is read from the start of its logs, and one that leaves keeps its place in the checkpoint.
A stream that follows its topics goes on without a cluster that does not answer, and reads it when it is back; what was
planned of it is waited for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from services.pipeline.kafka_reading import read_bounds, read_logs, read_since, read_span
from services.pipeline.positions import (
    Position,
    Span,
    TopicLog,
    UnreachableError,
    advance,
    check_same,
    later_times,
    parse,
    render,
    spans,
)
from services.pipeline.ranges import Range, cut

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from services.pipeline.settings import PipelineSettings  # not for each worker: pydantic takes its time

FORMAT = "mesh-kafka"
GATEWAY = ""
"""The cluster without a name: what the gateway shows. Its records come without a column `cluster`."""
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
MICROSECONDS_OF_A_MILLISECOND = 1_000
LAST_TIME_MS = (2**63 - 1) // MICROSECONDS_OF_A_MILLISECOND
PROPERTY_PREFIX = "kafka."
CLUSTERS_AT_ONCE = 8  # that are asked while a batch is planned


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """What to read, and how."""

    topics: tuple[str, ...]
    """Of each cluster. A batch may read others."""
    clusters: Mapping[str, Mapping[str, str]]
    """librdkafka's properties by the cluster's name, `bootstrap.servers` among them; or those of GATEWAY alone."""
    max_batch_rows: int
    stall_timeout_s: float
    request_timeout_s: float
    accept_loss: bool = False
    skip_absent: bool = False
    """Topics that a cluster does not have are read when it has them; otherwise they are an error."""
    accept_replaced: bool = False
    """A topic that was created again is read from its start; otherwise it is an error."""

    @classmethod
    def of_settings(
        cls,
        settings: PipelineSettings,
        topics: tuple[str, ...],
        clusters: Mapping[str, Mapping[str, str]],
        *,
        accept_loss: bool = False,
        skip_absent: bool = False,
    ) -> KafkaSource:
        """With the bounds that the settings say."""
        return cls(
            topics=topics,
            clusters=clusters,
            max_batch_rows=settings.max_batch_rows,
            stall_timeout_s=settings.stall_timeout_s,
            request_timeout_s=settings.request_timeout_s,
            accept_loss=accept_loss,
            skip_absent=skip_absent,
        )

    @property
    def schema(self) -> str:
        return SCHEMA if GATEWAY in self.clusters else f"cluster string, {SCHEMA}"

    def stream(self, session: SparkSession) -> DataFrame:
        """The records as an unbounded DataFrame."""
        session.dataSource.register(KafkaDataSource)
        return session.readStream.format(FORMAT).options(**self.to_options()).load()

    def batch(self, session: SparkSession, ranges: Sequence[Range] = ()) -> DataFrame:
        """The records of `ranges` (without any: all of `topics`) as a DataFrame that is the same however often it is
        read. What can't be read is told now, as far as it is known now.
        """
        session.dataSource.register(KafkaDataSource)
        pieces = cut(self.spans(ranges), session.sparkContext.defaultParallelism)
        listed = json.dumps([[span.topic, span.partition, span.start, span.end] for span in pieces])
        return session.read.format(FORMAT).options(**self.to_options(), spans=listed).load()

    def logs(self) -> dict[str, TopicLog]:
        """The topics as they are now, of all clusters, by the names that positions know."""
        return {name: log for cluster in self.clusters for name, log in self.logs_of(cluster).items()}

    def logs_of(self, cluster: str) -> dict[str, TopicLog]:
        """The topics of one cluster as they are now."""
        found = read_logs(
            self.clusters[cluster],
            self.topics,
            self.request_timeout_s,
            skip_absent=self.skip_absent,
            with_last=cluster == GATEWAY,
        )
        return {_in_cluster(cluster, topic): log for topic, log in found.items()}

    def check_same(self, position: Position) -> None:
        """TopicReplacedError where a gateway, whose ids do not tell, shows another topic than `position` speaks of."""
        if GATEWAY in self.clusters:
            times = later_times(position, self.topics)
            check_same(position, read_since(self.clusters[GATEWAY], times, self.request_timeout_s))

    def spans(self, ranges: Sequence[Range] = ()) -> list[Span]:
        """The offsets that ranges mean now; topics by the names that positions know."""
        asked = ranges or [Range(topic) for topic in self.topics]
        return [
            replace(span, topic=_in_cluster(cluster, span.topic))
            for cluster, properties in self.clusters.items()
            for span in read_bounds(
                properties,
                [each for each in asked if each.cluster in ("", cluster)],
                self.request_timeout_s,
                accept_loss=self.accept_loss,
            )
        ]

    def read(self, span: Span) -> Iterator[pyarrow.RecordBatch]:
        """The committed records of a span, as rows of `schema`."""
        cluster, _, topic = span.topic.rpartition("/")
        for messages in self.messages(span):
            yield to_arrow(messages, replace(span, topic=topic), cluster)

    def messages(self, span: Span) -> Iterator[list[Message]]:
        """The committed records of a span, in order, some at a time."""
        cluster, _, topic = span.topic.rpartition("/")
        there = replace(span, topic=topic)
        yield from read_span(self.clusters[cluster], there, self.stall_timeout_s, accept_loss=self.accept_loss)

    def to_options(self) -> dict[str, str]:
        """As Spark passes them on; properties one by one, so that Spark's redaction knows the secret ones by name."""
        return {
            "topics": json.dumps(self.topics),
            "clusters": json.dumps(list(self.clusters)),
            "max_batch_rows": str(self.max_batch_rows),
            "stall_timeout_s": str(self.stall_timeout_s),
            "request_timeout_s": str(self.request_timeout_s),
            "accept_loss": json.dumps(self.accept_loss),
            "skip_absent": json.dumps(self.skip_absent),
            "accept_replaced": json.dumps(self.accept_replaced),
        } | {
            f"{PROPERTY_PREFIX}{number}.{name}": value
            for number, properties in enumerate(self.clusters.values())
            for name, value in properties.items()
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> KafkaSource:
        clusters: dict[str, dict[str, str]] = {}
        for number, cluster in enumerate(json.loads(options["clusters"])):  # Spark takes case from names, not numbers
            prefix = f"{PROPERTY_PREFIX}{number}."
            clusters[cluster] = {
                name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)
            }
        return cls(
            topics=tuple(json.loads(options["topics"])),
            clusters=clusters,
            max_batch_rows=int(options["max_batch_rows"]),
            stall_timeout_s=float(options["stall_timeout_s"]),
            request_timeout_s=float(options["request_timeout_s"]),
            accept_loss=json.loads(options["accept_loss"]),
            skip_absent=json.loads(options["skip_absent"]),
            accept_replaced=json.loads(options["accept_replaced"]),
        )


def _in_cluster(cluster: str, topic: str) -> str:
    return topic if cluster == GATEWAY else f"{cluster}/{topic}"


class KafkaDataSource(DataSource):
    """What Spark registers."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str | StructType:
        return KafkaSource.from_options(dict(self.options)).schema

    def reader(self, schema: object) -> BatchReader:
        return BatchReader(
            KafkaSource.from_options(dict(self.options)), [Span(*each) for each in json.loads(self.options["spans"])]
        )

    def streamReader(self, schema: object) -> StreamReader:  # noqa: N802  # Spark's names, here and below
        return StreamReader(KafkaSource.from_options(dict(self.options)))


@dataclass(frozen=True, slots=True)
class SpanPartition(InputPartition):
    """What one task reads."""

    span: Span


class BatchReader(DataSourceReader):
    """Reads spans that were found before."""

    def __init__(self, source: KafkaSource, spans: Sequence[Span]) -> None:
        self._source = source
        self._spans = spans

    def partitions(self) -> list[InputPartition]:
        return [SpanPartition(span) for span in self._spans]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Spark reads a frame without any partition as one partition, which is None
        return self._source.read(partition.span) if isinstance(partition, SpanPartition) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, and reads the parts of one."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source
        self._logs_at_start: dict[str, TopicLog] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return render({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.source.max_batch_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._logs_at_start = self.source.logs()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        logs = self._logs_at_start or self._logs_of_reachable()
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        position = parse(start)
        end = advance(
            position,
            logs,
            max_rows=max_rows,
            accept_loss=self.source.accept_loss,
            accept_replaced=self.source.accept_replaced,
        )
        self.source.check_same(position)
        return render(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [SpanPartition(span) for span in spans(parse(start), parse(end))]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self.source.read(cast("SpanPartition", partition).span)

    def _logs_of_reachable(self) -> dict[str, TopicLog]:
        """Of the clusters that answer; at least one must."""
        with ThreadPoolExecutor(CLUSTERS_AT_ONCE) as threads:
            asked = {cluster: threads.submit(self.source.logs_of, cluster) for cluster in self.source.clusters}
        logs: dict[str, TopicLog] = {}
        away: dict[str, UnreachableError] = {}
        for cluster, future in asked.items():
            try:
                logs |= future.result()
            except UnreachableError as error:
                away[cluster] = error
        for cluster, absence in away.items():
            if len(away) == len(asked):
                raise absence
            sys.stderr.write(f"cluster {cluster} is not read now: {absence}\n")  # of the driver: this is a child of it
        return logs


def to_arrow(messages: list[Message], span: Span, cluster: str = GATEWAY) -> pyarrow.RecordBatch:
    """The rows that SCHEMA describes, all of one span, with the name of their cluster where it has one."""
    rows = pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.repeat(span.topic, len(messages)),
            pyarrow.repeat(pyarrow.scalar(span.partition, pyarrow.int32()), len(messages)),
            [message.offset() for message in messages],
            [_microseconds(message) for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            [[{"key": name, "value": value} for name, value in _headers(message)] for message in messages],
        ],
        schema=ARROW_SCHEMA,
    )
    if cluster == GATEWAY:
        return rows
    return rows.add_column(0, "cluster", pyarrow.repeat(cluster, len(messages)))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # what a consumer gets is always a list; the type also covers what a producer may give
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def milliseconds_of(message: Message) -> int | None:
    """Kafka's time of it. None for records of message formats that know no time."""
    _kind, milliseconds = message.timestamp()
    return milliseconds if milliseconds >= 0 else None


def _microseconds(message: Message) -> int | None:
    """None also for a time that columns have no room for: Kafka takes any, and it would end each reader."""
    milliseconds = milliseconds_of(message)
    if milliseconds is None or milliseconds > LAST_TIME_MS:
        return None
    return milliseconds * MICROSECONDS_OF_A_MILLISECOND
