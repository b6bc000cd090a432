"""Keeps records that are no audit events: unchanged, in a topic of its own, with the reason and the origin in headers.

The topic is on the same cluster as the source topic, and is created when it is needed. A batch is done when the cluster
has acknowledged all its malformed records. A batch that is run again sends these records again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name
from pyspark.sql import DataFrame

from services.pipeline.kafka.positions import StreamError

CLIENT_ID = "kafka-mesh-pipeline-malformed"
LARGEST_BYTES = 33_554_432  # of a record: its extra headers make it larger than the original
DELIVERY_TIMEOUT_S = 60.0
QUEUE_RECORDS = 10_000
COLUMNS = (
    "source_topic", "source_partition", "source_offset", "source_time", "problem", "raw_key", "raw_value", "raw_headers"
)  # fmt: skip


class DeadLetterError(StreamError):
    """Malformed records could not be kept; the message says where and why."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Writes the malformed records of one cluster."""

    cluster: str
    properties: Mapping[str, str] = field(repr=False)
    """Properties of librdkafka."""
    suffix: str
    timeout_s: float

    def write(self, malformed: DataFrame) -> None:
        """Returns when the cluster has acknowledged all records."""
        self._make_topics({row[0] for row in malformed.select("source_topic").distinct().collect()})
        malformed.select(*COLUMNS).mapInArrow(partial(_produce, self), "told bigint").collect()

    def _make_topics(self, topics: set[str]) -> None:
        admin = AdminClient({**self.properties, "client.id": CLIENT_ID})
        new = [
            NewTopic(topic + self.suffix, num_partitions=1, config={"max.message.bytes": str(LARGEST_BYTES)})
            for topic in topics
        ]
        for topic, made in admin.create_topics(new, request_timeout=self.timeout_s).items():
            try:
                made.result()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise DeadLetterError(
                        f"{topic} can't be made on {self.cluster}: {error.str()}; make it, with one partition"
                    ) from failure


def _produce(letters: DeadLetters, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Produces the records; runs in a worker of Spark."""
    failures: list[str] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"{message.topic()} on {letters.cluster}: {error.str()}")

    producer: Producer | None = None
    told = 0
    for batch in batches:
        for row in batch.to_pylist():
            producer = producer or _producer(letters)
            topic = row["source_topic"] + letters.suffix
            while True:
                try:
                    producer.produce(
                        topic, row["raw_value"], row["raw_key"], on_delivery=reported, headers=_headers(letters, row)
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            told += 1
    if producer is not None:
        left = producer.flush(DELIVERY_TIMEOUT_S)
        if failures or left:
            why = failures[0] if failures else f"{left} records were not acknowledged on {letters.cluster}"
            raise DeadLetterError(f"malformed audit events can't be kept: {why}")
    yield pyarrow.RecordBatch.from_pydict({"told": [told]})


def _producer(letters: DeadLetters) -> Producer:
    return Producer(
        {
            **letters.properties,
            "client.id": CLIENT_ID,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": LARGEST_BYTES,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000) - 5_000,
            "queue.buffering.max.messages": QUEUE_RECORDS,
        }
    )


def _headers(letters: DeadLetters, row: Mapping[str, Any]) -> list[tuple[str, str | bytes | None]]:
    """The record's own headers, then its origin and problem, named like the headers of the sidecars' dead letters."""
    time = row["source_time"]
    origin = {
        "dlq.cluster": letters.cluster,
        "dlq.topic": row["source_topic"],
        "dlq.partition": row["source_partition"],
        "dlq.offset": row["source_offset"],
        "dlq.timestamp": int(time.timestamp() * 1000) if time else -1,
        "dlq.reason": "deserialization",
        "dlq.problem": row["problem"],
    }
    own: list[tuple[str, str | bytes | None]] = [(each["key"], each["value"]) for each in row["raw_headers"] or ()]
    return own + [(name, str(value).encode()) for name, value in origin.items()]
