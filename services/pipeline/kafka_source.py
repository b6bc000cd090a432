"""Kafka as a source of Spark, batch and stream: a Python Data Source over `kafka_reading`.

For a stream, Spark starts one Python process that plans: `StreamReader` chooses the end of the next batch. Each batch
has at most as many tasks as there are slots. Each task has one consumer for its share of the spans. For a batch query,
the driver finds the offsets of its ranges, and tasks read pieces of them. Each process makes its own clients; no client
is pickled.

After its share, a task checks that the topics still have the planned ids. Kafka never reuses a topic id, so all records
that were read before this check came from the right topic. Spark may run a batch again after a crash. The batch then
leaves out topics that were replaced since, and offsets that retention took since: no later attempt could read them.

Several clusters are one source. Their records have a column `cluster`, and a position names topics like `c1/apples`. So
a new cluster is read from the start of its logs, and a removed cluster keeps its place in the checkpoint. A stream that
follows its topics continues without a cluster that does not answer, and reads the cluster when it is back. Planned
offsets of that cluster are waited for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from services.pipeline.kafka_asking import UnknownTopicError
from services.pipeline.kafka_reading import Batch, read_bounds, read_logs, read_since, read_spans
from services.pipeline.kafka_rows import SCHEMA, to_arrow
from services.pipeline.latest_times import later_times, replaced_by_times
from services.pipeline.positions import (
    Position,
    Span,
    StreamError,
    TopicLog,
    TopicReplacedError,
    UnreachableError,
    advance,
    as_of,
    parse,
    problems,
    render,
    replaced_topics,
    spans,
)
from services.pipeline.ranges import Range, cut, shares

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from services.pipeline.settings import PipelineSettings  # not imported by workers: pydantic takes time to import

FORMAT = "mesh-kafka"
GATEWAY = ""
"""The cluster without a name: the gateway. Its records have no column `cluster`."""
PROPERTY_PREFIX = "kafka."
CLUSTERS_AT_ONCE = 8  # clusters that are asked in parallel while a batch is planned
WORTH_A_TASK = 50_000
"""Records of a stream's batch for each task: with fewer, another task would only write another small file."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The topics to read, and the limits of reading."""

    topics: tuple[str, ...]
    """Topics of each cluster. The ranges of a batch may name others."""
    clusters: Mapping[str, Mapping[str, str]]
    """librdkafka's properties by cluster name, including `bootstrap.servers`; or only those of GATEWAY."""
    max_batch_rows: int
    stall_timeout_s: float
    request_timeout_s: float
    accept_loss: bool = False
    skip_absent: bool = False
    """A missing topic is read when it exists; otherwise it is an error."""
    accept_replaced: bool = False
    """A topic that was created again is read from its start, as its next generation; otherwise it is an error."""
    sets_apart: bool = False
    """A topic with a problem is left out while the others are read; otherwise its problem ends the stream."""
    accept_loss_of: tuple[str, ...] = ()
    """Topics (as positions name them) whose loss is accepted, if `accept_loss` is false."""
    slots: int = 1
    """The number of tasks that Spark runs at once: a batch of a stream has at most as many shares."""

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
        """Makes a source with the limits of the settings."""
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
        slotted = replace(self, slots=session.sparkContext.defaultParallelism)
        return session.readStream.format(FORMAT).options(**slotted.to_options()).load()

    def batch(self, session: SparkSession, ranges: Sequence[Range] = ()) -> DataFrame:
        """The records of `ranges` as a DataFrame; without ranges, all of `topics`.

        The DataFrame has the same records each time that it is read. A range that can't be read is an error now, if
        this is already known.
        """
        session.dataSource.register(KafkaDataSource)
        pieces = cut(self.spans(ranges), session.sparkContext.defaultParallelism)
        listed = json.dumps([[span.topic, span.partition, span.start, span.end] for span in pieces])
        return session.read.format(FORMAT).options(**self.to_options(), spans=listed).load()

    def logs(self) -> dict[str, TopicLog]:
        """The current topics of all clusters, by the names in positions."""
        return {name: log for cluster in self.clusters for name, log in self.logs_of(cluster).items()}

    def logs_of(self, cluster: str) -> dict[str, TopicLog]:
        """The current topics of one cluster."""
        found = read_logs(
            self.clusters[cluster],
            self.topics,
            self.request_timeout_s,
            skip_absent=self.skip_absent,
            with_last=cluster == GATEWAY,
        )
        return {_in_cluster(cluster, topic): log for topic, log in found.items()}

    def problems(self, position: Position, logs: Mapping[str, TopicLog]) -> dict[str, StreamError]:
        """The topics that a stream sets apart at `position`, with the reason."""
        accepted = logs.keys() if self.accept_loss else self.accept_loss_of
        absent = {
            name: UnknownTopicError(f"topic {topic} is unknown: no rule routes it, or its cluster does not have it")
            for cluster in self.clusters
            for topic in self.topics
            if (name := _in_cluster(cluster, topic)) not in logs
        }
        return absent | problems(position, logs, accept_loss=accepted, accept_replaced=self.accept_replaced)

    def replaced(self, position: Position) -> dict[str, TopicReplacedError]:
        """The topics in `position` whose names other topics have now; only of the clusters that this source reads."""
        found: dict[str, TopicReplacedError] = {}
        for cluster in self.clusters:
            there = {topic: each for topic, each in position.items() if topic.rpartition("/")[0] == cluster}
            if not there:
                continue
            plain = tuple(topic.rpartition("/")[2] for topic in there)
            logs = replace(self, topics=plain, skip_absent=True).logs_of(cluster)
            found |= replaced_topics(there, logs)
            if cluster == GATEWAY:
                found |= self.replaced_by_times({topic: there[topic] for topic in logs})
        return found

    def replaced_by_times(self, position: Position) -> dict[str, TopicReplacedError]:
        """The replaced topics of a gateway, whose topic ids don't show a replacement."""
        if GATEWAY not in self.clusters:
            return {}
        times = later_times(position, position)
        return replaced_by_times(position, read_since(self.clusters[GATEWAY], times, self.request_timeout_s))

    def spans(self, ranges: Sequence[Range] = ()) -> list[Span]:
        """The current offsets of ranges; topics have the names in positions."""
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

    def read(self, some: Sequence[Span]) -> Iterator[pyarrow.RecordBatch]:
        """The committed records of spans, as rows of `schema`."""
        for cluster, batch in self.batches(some):
            yield to_arrow(cast("list[Message]", batch.records), batch.topic, batch.partition, cluster)

    def batches(self, some: Sequence[Span]) -> Iterator[tuple[str, Batch]]:
        """The committed records of spans with their cluster, each span in order; one consumer for each cluster."""
        by_cluster: dict[str, list[Span]] = {}
        for span in some:
            cluster, _, topic = span.topic.rpartition("/")
            by_cluster.setdefault(cluster, []).append(replace(span, topic=topic))
        for cluster, there in by_cluster.items():
            for batch in read_spans(self.clusters[cluster], there, self.stall_timeout_s, accept_loss=self.accept_loss):
                yield cluster, batch

    def to_options(self) -> dict[str, str]:
        """Options for Spark; each property is one option, so that Spark redacts secrets by their names."""
        plain = {name: json.dumps(getattr(self, name)) for name in _plain_fields()}
        return {**plain, "clusters": json.dumps(list(self.clusters))} | {
            f"{PROPERTY_PREFIX}{number}.{name}": value
            for number, properties in enumerate(self.clusters.values())
            for name, value in properties.items()
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> KafkaSource:
        clusters: dict[str, dict[str, str]] = {}
        for number, cluster in enumerate(json.loads(options["clusters"])):  # Spark lowercases the names of options
            prefix = f"{PROPERTY_PREFIX}{number}."
            of_it = [name for name in options if name.startswith(prefix)]
            clusters[cluster] = {name.removeprefix(prefix): options[name] for name in of_it}
        found = {name: json.loads(options[name]) for name in _plain_fields()}
        plain: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in found.items()}
        return cls(clusters=clusters, **plain)


def _plain_fields() -> list[str]:
    """The fields of a source that are one option each."""
    return [each.name for each in fields(KafkaSource) if each.name != "clusters"]


def _in_cluster(cluster: str, topic: str) -> str:
    return topic if cluster == GATEWAY else f"{cluster}/{topic}"


class KafkaDataSource(DataSource):
    """The data source that is registered at Spark."""

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
    """The spans of one task."""

    spans: Sequence[Span]
    expected: Position = field(default_factory=dict)
    """The planned topics, for the check at the end; empty if there is no check."""


class BatchReader(DataSourceReader):
    """Reads spans that were determined before."""

    def __init__(self, source: KafkaSource, spans: Sequence[Span]) -> None:
        self._source = source
        self._spans = spans

    def partitions(self) -> list[InputPartition]:
        return [SpanPartition([span]) for span in self._spans]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Spark reads a DataFrame without partitions as one partition, which is None
        return self._source.read(partition.spans) if isinstance(partition, SpanPartition) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches, and reads the spans of one."""

    def __init__(self, source: KafkaSource) -> None:
        self.source = source
        self._logs_at_start: dict[str, TopicLog] | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the last planned batch."""
        self._told: set[str] = set()

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
        known = {topic: each for topic, each in as_of(position, logs).items() if topic in logs}
        is_asked = self._logs_at_start is not None and self._planned is not None  # once in a run that ends
        replaced = {} if is_asked else self.source.replaced_by_times(known)
        if replaced and not self.source.accept_replaced:
            raise next(iter(replaced.values()))
        accept_loss = self.source.accept_loss
        if self.source.sets_apart:
            apart = {
                topic: each for topic, each in self.source.problems(position, logs).items() if topic not in replaced
            }
            self._tell(f"topic {topic} is set apart: {each}" for topic, each in apart.items() if topic in known)
            logs = {topic: log for topic, log in logs.items() if topic not in apart}
            accept_loss = True  # for the remaining topics: loss is accepted for them, or they have none
        end = advance(
            position,
            logs,
            max_rows=max_rows,
            accept_loss=accept_loss,
            accept_loss_of=self.source.accept_loss_of,
            accept_replaced=self.source.accept_replaced,
            replaced=replaced,
        )
        self._planned = render(end)
        return self._planned

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = list(spans(parse(start), parse(end)))
        position = parse(end)
        if end != self._planned:
            planned = self._still_there(planned, position)
        return [
            SpanPartition(share, {span.topic: position[span.topic] for span in share}) for share in self.share(planned)
        ]

    def share(self, planned: Sequence[Span]) -> list[list[Span]]:
        """The spans of a batch by task: few records are one task, and so one file."""
        tasks = 1 + sum(each.end - each.start for each in planned) // WORTH_A_TASK
        return shares(planned, min(self.source.slots, tasks))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        planned = cast("SpanPartition", partition)
        yield from self.source.read(planned.spans)
        self.check_topics(planned)

    def check_topics(self, planned: SpanPartition) -> None:
        """TopicReplacedError if the records may have come from another topic than the planned one."""
        for error in self.source.replaced(planned.expected).values():
            raise error

    def _still_there(self, planned: Sequence[Span], position: Position) -> list[Span]:
        """The spans of a batch, planned by an earlier process, that can still be read."""
        topics = {span.topic for span in planned}
        replaced = self.source.replaced({topic: each for topic, each in position.items() if topic in topics})
        logs = [self.source.logs_of(cluster) for cluster in {topic.rpartition("/")[0] for topic in topics}]
        starts = {
            (topic, number): each.start
            for of_cluster in logs
            for topic, log in of_cluster.items()
            for number, each in log.partitions.items()
        }
        found = []
        for span in planned:
            if (problem := replaced.get(span.topic)) is not None:
                self._tell([f"{span}: offsets {span.start} to {span.end} are left out: {problem}"])
                continue
            begin = starts.get((span.topic, span.partition), span.start)
            if begin > span.start and self.source.sets_apart:
                self._tell([f"{span}: retention took offsets {span.start} to {begin} after they were planned"])
                span = replace(span, start=begin)  # noqa: PLW2901
            if span.start < span.end:
                found.append(span)
        return found

    def _tell(self, lines: Iterable[str]) -> None:
        """Writes each line once to stderr, which is the driver's log: this process is a child of the driver."""
        for line in lines:
            if line not in self._told:
                self._told.add(line)
                sys.stderr.write(line + "\n")

    def _logs_of_reachable(self) -> dict[str, TopicLog]:
        """The topics of the clusters that answer; at least one must."""
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
            sys.stderr.write(f"cluster {cluster} is not read now: {absence}\n")  # stderr is the driver's log
        return logs
