"""Kafka as the pipeline reads it: topics of one or several clusters, their logs, the records of spans. No Spark.

Several clusters are one source. Their records have a column `cluster`, and a position names topics like `c1/apples`. So
a new cluster is read from the start of its logs, and a removed cluster keeps its place in the checkpoint.

Behind a gateway, a source also reads what topics left at former clusters (left_records.py). It reads these records from
the clusters themselves: a gateway shows a topic only where the topic is now.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow
from confluent_kafka import Message

from services.pipeline.kafka.admin import UnknownTopicError
from services.pipeline.kafka.left_records import LeftLog, Look
from services.pipeline.kafka.positions import (
    Position,
    Span,
    Stay,
    StreamError,
    TopicLog,
    TopicPosition,
    TopicReplacedError,
    UnreachableError,
    later_times,
    problems,
    replaced_by_times,
    replaced_topics,
)
from services.pipeline.kafka.ranges import Range
from services.pipeline.kafka.reader import Batch, read_bounds, read_ends, read_logs, read_since, read_spans
from services.pipeline.kafka.rows import GENERATION, SCHEMA, to_arrow

if TYPE_CHECKING:
    from services.pipeline.settings import PipelineSettings  # not imported by workers: pydantic takes time to import

GATEWAY = ""
"""The cluster without a name: the gateway. Its records have no column `cluster`."""
PROPERTY_PREFIX = "kafka."
CLUSTERS_AT_ONCE = 8  # clusters that are asked in parallel


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
    former: Mapping[str, str] = field(default_factory=dict)
    """The stays of topics behind a gateway whose left records are read: their names, with the places of the topics.

    A place is {cluster}/{topic's name there}, or empty if the cluster was removed.
    """
    numbers_generations: bool = False
    """Whether the rows of a stream have the column `generation`."""
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
        named = SCHEMA if GATEWAY in self.clusters else f"cluster string, {SCHEMA}"
        return f"{named}, {GENERATION} int" if self.numbers_generations else named

    @property
    def followed(self) -> list[str]:
        """The clusters whose topics are read; the others have only left records."""
        return [GATEWAY] if GATEWAY in self.clusters else list(self.clusters)

    def place_of(self, name: str) -> tuple[str, str]:
        """The cluster of a topic of spans, and the topic's name there."""
        cluster, _, topic = (self.former.get(name) or name).rpartition("/")
        return cluster, topic

    def logs(self) -> dict[str, TopicLog]:
        """The current topics of all clusters, by the names in positions."""
        return {name: log for cluster in self.followed for name, log in self.logs_of(cluster).items()}

    def logs_of(self, cluster: str) -> dict[str, TopicLog]:
        """The current topics of one cluster."""
        found = read_logs(
            self.clusters[cluster],
            self.topics,
            self.request_timeout_s,
            skip_absent=self.skip_absent,
            with_last=cluster == GATEWAY,
        )
        return {in_cluster(cluster, topic): log for topic, log in found.items()}

    def problems(self, position: Position, logs: Mapping[str, TopicLog]) -> dict[str, StreamError]:
        """The topics that a stream sets apart at `position`, with the reason."""
        accepted = logs.keys() if self.accept_loss else self.accept_loss_of
        absent = {
            name: UnknownTopicError(f"topic {topic} is unknown: no rule routes it, or its cluster does not have it")
            for cluster in self.followed
            for topic in self.topics
            if (name := in_cluster(cluster, topic)) not in logs
        }
        return absent | problems(position, logs, accept_loss=accepted, accept_replaced=self.accept_replaced)

    def logs_at(self, names: Collection[str]) -> dict[str, TopicLog]:
        """The current logs of topics of spans; a missing topic, or one of an unknown cluster, is left out."""
        found: dict[str, TopicLog] = {}
        for cluster, there in self._by_cluster(names).items():
            logs = read_logs(
                self.clusters[cluster],
                set(there.values()),
                self.request_timeout_s,
                skip_absent=True,
                with_last=cluster == GATEWAY,
            )
            found |= {name: logs[topic] for name, topic in there.items() if topic in logs}
        return found

    def _by_cluster(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """The names of the topics there, by name, for each cluster of this source."""
        places = {name: self.place_of(name) for name in names}
        there = {
            cluster: {name: topic for name, (at, topic) in places.items() if at == cluster} for cluster in self.clusters
        }
        return {cluster: each for cluster, each in there.items() if each}

    def left_logs(self, stays: Mapping[str, Stay]) -> dict[str, Look | StreamError]:
        """The topics of these stays as their clusters describe them now, or why a cluster does not describe them.

        Stays without an entry in `former` are left out.
        """
        known = {name: stay for name, stay in stays.items() if name in self.former}
        found: dict[str, Look | StreamError] = {name: None for name in known if not self.former[name]}
        by_cluster = self._by_cluster([name for name in known if self.former[name]])
        with ThreadPoolExecutor(CLUSTERS_AT_ONCE) as threads:
            asked = {
                cluster: threads.submit(
                    self._left_at, cluster, {name: (topic, known[name]) for name, topic in there.items()}
                )
                for cluster, there in by_cluster.items()
            }
        for cluster, answer in asked.items():
            try:
                found |= answer.result()
            except StreamError as error:
                found |= dict.fromkeys(by_cluster[cluster], error)
        return found

    def _left_at(self, cluster: str, stays: Mapping[str, tuple[str, Stay]]) -> dict[str, Look]:
        names = {topic for topic, _ in stays.values()}
        properties, timeout_s = self.clusters[cluster], self.request_timeout_s
        logs = read_logs(properties, names, timeout_s, skip_absent=True)
        ends = read_ends(properties, logs, timeout_s)
        found: dict[str, Look] = dict.fromkeys(stays)
        for name, (topic, stay) in stays.items():
            if topic not in logs:
                continue
            entry = {topic: TopicPosition(last={each: at for each, at in stay.last.items() if each in ends[topic]})}
            since = read_since(properties, later_times(entry, entry), timeout_s)
            found[name] = LeftLog(logs[topic], ends[topic], topic in replaced_by_times(entry, since))
        return found

    def replaced(self, position: Position) -> dict[str, TopicReplacedError]:
        """The topics in `position` whose names other topics have now; only of the clusters that this source reads."""
        there = {name: position[name] for each in self._by_cluster(position).values() for name in each}
        logs = self.logs_at(there)
        at_gateway = {name: there[name] for name in logs if self.place_of(name)[0] == GATEWAY}
        return replaced_topics(there, logs) | self.replaced_by_times(at_gateway)

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
            replace(span, topic=in_cluster(cluster, span.topic))
            for cluster, properties in self.clusters.items()
            for span in read_bounds(
                properties,
                [each for each in asked if each.cluster in ("", cluster)],
                self.request_timeout_s,
                accept_loss=self.accept_loss,
            )
        ]

    def read(self, some: Sequence[Span], expected: Position | None = None) -> Iterator[pyarrow.RecordBatch]:
        """The committed records of spans, as rows of `schema`. `expected`: the topics' entries, for generations."""
        for name, batch in self.batches(some):
            cluster, _, topic = name.rpartition("/")
            generation = expected[name].generation if self.numbers_generations and expected is not None else None
            records = cast("list[Message]", batch.records)
            yield to_arrow(records, topic, batch.partition, "" if name in self.former else cluster, generation)

    def batches(self, some: Sequence[Span]) -> Iterator[tuple[str, Batch]]:
        """The committed records of spans with the topic's name in spans, each span in order.

        One consumer for each cluster, and one for each topic with left records.
        """
        groups: dict[tuple[str, str], list[Span]] = {}
        for span in some:
            cluster, topic = self.place_of(span.topic)
            if cluster not in self.clusters:
                raise UnreachableError(f"{span} is planned, and cluster {cluster} is not known now")
            group = cluster, span.topic if span.topic in self.former else ""
            groups.setdefault(group, []).append(replace(span, topic=topic))
        for (cluster, left), there in groups.items():
            for batch in read_spans(self.clusters[cluster], there, self.stall_timeout_s, accept_loss=self.accept_loss):
                yield left or in_cluster(cluster, batch.topic), batch

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


def in_cluster(cluster: str, topic: str) -> str:
    """The topic's name in positions and spans."""
    return topic if cluster == GATEWAY else f"{cluster}/{topic}"
