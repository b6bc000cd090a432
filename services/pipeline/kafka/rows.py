"""The rows that records of Kafka become: their columns for Spark and for Arrow, and the limits of their times."""

from __future__ import annotations

from typing import cast

import pyarrow
from confluent_kafka import Message

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
GENERATION = "generation"
"""A column of the archive's records: see positions.py."""
MICROSECONDS_OF_A_MILLISECOND = 1_000
LAST_TIME_MS = (2**63 - 1) // MICROSECONDS_OF_A_MILLISECOND


def to_arrow(
    messages: list[Message], topic: str, partition: int, cluster: str = "", generation: int | None = None
) -> pyarrow.RecordBatch:
    """Rows of SCHEMA, all of one partition; with the columns `cluster` and `generation` if these are given."""
    rows = pyarrow.RecordBatch.from_arrays(
        [
            pyarrow.repeat(topic, len(messages)),
            pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), len(messages)),
            [message.offset() for message in messages],
            [_microseconds(message) for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            [[{"key": name, "value": value} for name, value in _headers(message)] for message in messages],
        ],
        schema=ARROW_SCHEMA,
    )
    if cluster:
        rows = rows.add_column(0, "cluster", pyarrow.repeat(cluster, len(messages)))
    if generation is None:
        return rows
    return rows.append_column(GENERATION, pyarrow.repeat(pyarrow.scalar(generation, pyarrow.int32()), len(messages)))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    # a consumer always returns a list; the type also covers the forms that a producer accepts
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def milliseconds_of(message: Message) -> int | None:
    """Kafka's timestamp of the message. None for message formats without a timestamp."""
    _kind, milliseconds = message.timestamp()
    return milliseconds if milliseconds >= 0 else None


def _microseconds(message: Message) -> int | None:
    """None also for a time outside of the column's range: Kafka accepts any time, and each reader would fail at it."""
    milliseconds = milliseconds_of(message)
    if milliseconds is None or milliseconds > LAST_TIME_MS:
        return None
    return milliseconds * MICROSECONDS_OF_A_MILLISECOND
