"""The job `profile`: describes the records of a topic in numbers and names, and never their content.

Spark's own functions find sizes, times and keys; for keys, they use hashes. Python reads the values once and counts
their properties, task by task (profiling/tallies.py); Spark adds up the counts. So records are read twice, and the
memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow
from google.protobuf.timestamp_pb2 import Timestamp
from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]  # where it is installed
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from mesh.rpc import profiles
from services.pipeline.kafka.positions import Span, StreamError
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.profiling.order import Asked, RefusedOrderError, read_of
from services.pipeline.profiling.registry import RegistryAccess
from services.pipeline.profiling.tallies import Kind, Tallies
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.data_source import open_batch
from services.pipeline.spark.session import our_sentence

MOST_FIELDS = 200
MOST_HEADERS = 100
QUANTILES = (0.5, 0.99)
TRACKED_KEYS = 10_000
"""Number of keys that the search for the most frequent key tracks; with more keys its share is slightly too high."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999, which is the limit of a Timestamp; a record may have a later time."""
PARTS = ("keys", "values", "headers")
TALLY_SCHEMA = "kind string, name string, type string, count bigint"
TALLY_ARROW_SCHEMA = pyarrow.schema(
    [("kind", pyarrow.string()), ("name", pyarrow.string()), ("type", pyarrow.string()), ("count", pyarrow.int64())]
)
JOB_GROUP = "kafka-mesh-profile"


def summary(records: DataFrame) -> DataFrame:
    """One row: number of records, first and last time, sizes, distribution of keys."""
    header_bytes = f.aggregate(
        "headers",
        f.lit(0),
        lambda total, each: total + f.octet_length(each["key"]) + f.coalesce(f.octet_length(each["value"]), f.lit(0)),
    )
    sized = records.select(
        "timestamp",
        "key",
        f.octet_length("key").alias("keys"),
        f.octet_length("value").alias("values"),
        header_bytes.alias("headers"),
        f.when(f.col("key").isNotNull(), f.xxhash64("key")).alias("key_hash"),
    )
    return sized.agg(
        f.count(f.lit(1)).alias("records"),
        f.unix_millis(f.min("timestamp")).alias("first_time"),
        f.unix_millis(f.max("timestamp")).alias("last_time"),
        f.count_if(f.col("keys").isNull()).alias("null_keys"),
        f.count_if(f.col("values").isNull()).alias("null_values"),
        f.approx_count_distinct("key_hash").alias("distinct_keys"),
        f.expr(f"approx_top_k(key_hash, 2, {TRACKED_KEYS})").alias("top_keys"),
        *(_sizes(part).alias(part) for part in PARTS),
    )


def _sizes(part: str) -> Column:
    quantiles = f.percentile_approx(part, list(QUANTILES))
    return f.struct(
        f.sum(part).alias("total"),
        f.min(part).alias("smallest"),
        quantiles[0].alias("median"),
        quantiles[1].alias("p99"),
        f.max(part).alias("largest"),
    )


def tallies(records: DataFrame, registry: RegistryAccess) -> DataFrame:
    """Counts of formats, fields, headers, partitions: see tallies.py."""

    def count(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        counted = Tallies(registry.schemas())
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("partition", "value", "names")]
            for partition, value, names in zip(*columns, strict=True):
                counted.add(partition, value, names or ())
        rows = [(*tally, times) for tally, times in counted.counts.items()]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in TALLY_ARROW_SCHEMA]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=TALLY_ARROW_SCHEMA)

    looked_at = records.select("partition", "value", f.col("headers.key").alias("names"))
    return looked_at.mapInArrow(count, TALLY_SCHEMA).groupBy("kind", "name", "type").agg(f.sum("count").alias("count"))


def run(records: DataFrame, registry: RegistryAccess) -> profiles.TopicProfile:
    """The profile of records of one topic; the caller adds the topic's name."""
    found = profiles.TopicProfile(time=_now())
    _put_summary(found, summary(records).collect()[0])
    _put_tallies(found, [tuple(row) for row in tallies(records, registry).collect()])
    return found


def _put_summary(found: profiles.TopicProfile, row: Any) -> None:
    found.records = row["records"]
    found.null_keys, found.null_values = row["null_keys"], row["null_values"]
    found.distinct_keys = row["distinct_keys"]
    keys = [each["count"] for each in row["top_keys"] or () if each["item"] is not None]  # top_keys counts null too
    if keys:
        found.top_key_share = min(1.0, keys[0] / row["records"])
    for name in ("first_time", "last_time"):
        if row[name] is not None:
            getattr(found, name).FromMilliseconds(min(row[name], LAST_MS))
    for part in PARTS:
        sizes = {name: size for name, size in row[part].asDict().items() if size is not None}
        getattr(found, part).CopyFrom(profiles.ByteSizes(**sizes))


def _put_tallies(found: profiles.TopicProfile, rows: list[tuple[str, str, str, int]]) -> None:
    by_kind: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind}
    types: dict[str, dict[str, int]] = {}
    for kind, name, type_, count in rows:
        if Kind(kind) is Kind.TYPE:
            types.setdefault(name, {})[type_] = count
        else:
            by_kind[Kind(kind)][name] = count
    found.formats.update(by_kind[Kind.FORMAT])
    found.partition_records.update({int(name): count for name, count in by_kind[Kind.PARTITION].items()})
    found.header_names.update(_most_frequent(by_kind[Kind.HEADER], MOST_HEADERS))
    documents = by_kind[Kind.DOCUMENT].get("", 0)
    frequent = _most_frequent({path: sum(counts.values()) for path, counts in types.items()}, MOST_FIELDS)
    for path in sorted(frequent):
        present = by_kind[Kind.PRESENT].get(path, 0)
        found.fields.add(path=path, types=types[path], null_rate=1 - present / documents)


def _most_frequent(counts: dict[str, int], most: int) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most])


def _now() -> Timestamp:
    now = Timestamp()
    now.GetCurrentTime()
    return now


class SparkLooking:
    """`order.Looking`. Spark starts only if there are records to read."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        clusters: Mapping[str, Mapping[str, str]],
        settings: PipelineSettings,
        registry: RegistryAccess,
    ) -> None:
        self._session, self._clusters, self._settings, self._registry = session, clusters, settings, registry
        self._running: SparkSession | None = None
        self._is_cancelled = False

    def spans(self, asked: Asked) -> Sequence[Span]:
        found = self._source(asked).spans(asked.ranges)
        return [replace(each, topic=asked.topic) for each in found]

    def profile(self, asked: Asked, spans: Sequence[Span]) -> profiles.TopicProfile:
        if not (ranges := read_of(spans, asked)):
            return profiles.TopicProfile()
        session = self._session()
        session.sparkContext.setJobGroup(JOB_GROUP, f"profile of {asked.topic}", interruptOnCancel=True)
        self._running = session
        if self._is_cancelled:
            raise StreamError("cancelled before Spark had started")
        try:
            return run(open_batch(self._source(asked), session, ranges), self._registry)
        except (Py4JError, PySparkException) as error:
            if sentence := our_sentence(error):
                raise StreamError(sentence) from error
            raise

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._running is not None:
            self._running.sparkContext.cancelJobGroup(JOB_GROUP)

    def _source(self, asked: Asked) -> KafkaSource:
        if asked.cluster not in self._clusters:
            known = ", ".join(self._clusters) or "none"
            raise RefusedOrderError(f"cluster {asked.cluster!r} is not registered (known: {known})")
        return KafkaSource.of_settings(
            self._settings,
            topics=(asked.upstream_topic,),
            clusters={asked.cluster: self._clusters[asked.cluster]},
            accept_loss=True,  # records that retention takes meanwhile are left out
        )
