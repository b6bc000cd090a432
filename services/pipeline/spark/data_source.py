"""Kafka as a source of Spark, batch and stream: a Python Data Source over `kafka/source.py`.

For a stream, Spark starts one Python process that plans: `StreamReader` chooses the end of the next batch. Each batch
has at most as many tasks as there are slots. Each task has one consumer for its share of the spans. For a batch query,
the driver finds the offsets of its ranges, and tasks read pieces of them. Each process makes its own clients; no client
is pickled.

After its share, a task checks that the topics still have the planned ids. Kafka never reuses a topic id, so all records
that were read before this check came from the right topic. Spark may run a batch again after a crash. The batch then
leaves out topics that were replaced since, and offsets that retention took since: no later attempt could read them.

A stream that follows its topics continues without a cluster that does not answer, and reads the cluster when it is
back. Planned offsets of that cluster are waited for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from services.pipeline.kafka.left_records import Look, advance_left, entry_of, stays_of
from services.pipeline.kafka.position_json import parse, render
from services.pipeline.kafka.positions import (
    Position,
    Span,
    StreamError,
    TopicLog,
    UnreachableError,
    advance,
    as_of,
    spans,
)
from services.pipeline.kafka.ranges import Range, cut, shares
from services.pipeline.kafka.source import CLUSTERS_AT_ONCE, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "mesh-kafka"
WORTH_A_TASK = 50_000
"""Records of a stream's batch for each task: with fewer, another task would only write another small file."""


def open_stream(source: KafkaSource, session: SparkSession) -> DataFrame:
    """The records of a source as an unbounded DataFrame."""
    session.dataSource.register(KafkaDataSource)
    slotted = replace(source, slots=session.sparkContext.defaultParallelism)
    return session.readStream.format(FORMAT).options(**slotted.to_options()).load()


def open_batch(source: KafkaSource, session: SparkSession, ranges: Sequence[Range] = ()) -> DataFrame:
    """The records of `ranges` as a DataFrame; without ranges, all topics of the source.

    The DataFrame has the same records each time that it is read. A range that can't be read is an error now, if this is
    already known.
    """
    session.dataSource.register(KafkaDataSource)
    pieces = cut(source.spans(ranges), session.sparkContext.defaultParallelism)
    listed = json.dumps([[span.topic, span.partition, span.start, span.end] for span in pieces])
    return session.read.format(FORMAT).options(**source.to_options(), spans=listed).load()


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
        self._looks: Mapping[str, Look] | None = None
        """The left records, as of the first batch of this run."""
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
        self._planned = render(self._with_left_records(position, end, max_rows))
        return self._planned

    def _with_left_records(self, position: Position, end: Position, max_rows: int | None) -> Position:
        """The end of a batch that also reads what topics left at their former clusters."""
        if not self.source.former:
            return end
        if self._looks is None or self._logs_at_start is None:
            found = self.source.left_logs(stays_of(position, self.source.topics))
            self._looks = {name: look for name, look in found.items() if not isinstance(look, StreamError)}
        accepted = self.source.topics if self.source.accept_loss else self.source.accept_loss_of
        return advance_left(position, end, self._looks, self.source.former, accept_loss_of=accepted, max_rows=max_rows)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = list(spans(parse(start), parse(end)))
        position = parse(end)
        if end != self._planned:
            planned = self._still_there(planned, position)
        return [
            SpanPartition(share, {span.topic: entry_of(position, span.topic) for span in share})
            for share in self.share(planned)
        ]

    def share(self, planned: Sequence[Span]) -> list[list[Span]]:
        """The spans of a batch by task: few records are one task, and so one file."""
        tasks = 1 + sum(each.end - each.start for each in planned) // WORTH_A_TASK
        return shares(planned, min(self.source.slots, tasks))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        planned = cast("SpanPartition", partition)
        yield from self.source.read(planned.spans, planned.expected)
        self.check_topics(planned)

    def check_topics(self, planned: SpanPartition) -> None:
        """TopicReplacedError if the records may have come from another topic than the planned one."""
        for error in self.source.replaced(planned.expected).values():
            raise error

    def _still_there(self, planned: Sequence[Span], position: Position) -> list[Span]:
        """The spans of a batch, planned by an earlier process, that can still be read."""
        topics = {span.topic for span in planned}
        replaced = self.source.replaced({topic: entry_of(position, topic) for topic in topics})
        starts = {
            (topic, number): each.start
            for topic, log in self.source.logs_at(topics).items()
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
            asked = {cluster: threads.submit(self.source.logs_of, cluster) for cluster in self.source.followed}
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
