"""The records of mesh.events, from the first on, for commands that read the whole topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from mesh.event_log.pieces import Headers
from services.control.domain.errors import Refusal
from services.control.settings import ControlSettings
from services.control.upstream.references import resolved_all

KAFKA_TIMEOUT = 10.0
"""Seconds without an answer of the home cluster."""
RECORDS_AT_ONCE = 1000


class UnreadError(RuntimeError):
    """The topic could not be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class PublishedRecord:
    """One record: an event, or a piece of one."""

    offset: int
    value: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class PublishedRecords:
    """The topic as it was when it was opened."""

    first: int
    """Offset of the first record; above 0 if the beginning was deleted."""
    cluster_id: str
    records: Iterator[PublishedRecord]


def published_records(settings: ControlSettings, group_id: str) -> PublishedRecords:
    """Opens the topic of the log. UnreadError now, or while the records are read."""
    where, topic = ",".join(settings.home_bootstrap_servers), settings.events_topic
    try:
        properties = resolved_all("home_properties", settings.home_properties)
        own = {"bootstrap.servers": where, "group.id": group_id, "enable.auto.commit": False}
        consumer = Consumer({**properties, **own, "log_level": 0})
    except (Refusal, KafkaException) as error:
        raise UnreadError(f"the home cluster at {where} can't be read: {error}") from None
    try:
        metadata: Any = consumer.list_topics(topic, timeout=KAFKA_TIMEOUT)
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=KAFKA_TIMEOUT)
    except KafkaException as error:
        consumer.close()
        raise UnreadError(f"{topic} on {where} can't be read: {error.args[0].str()}") from None
    return PublishedRecords(first, metadata.cluster_id or "", _read(consumer, topic, where, first, end))


def _read(consumer: Consumer, topic: str, where: str, first: int, end: int) -> Iterator[PublishedRecord]:
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        offset = first
        while offset < end:
            messages = consumer.consume(min(RECORDS_AT_ONCE, end - offset), timeout=KAFKA_TIMEOUT)
            if not messages:
                raise UnreadError(f"the home cluster at {where} does not answer: {topic} was read up to {offset}")
            for message in messages:
                if (fault := message.error()) is not None:
                    raise UnreadError(f"{topic} on {where} can't be read at {offset}: {fault.str()}")
                offset = int(message.offset() or 0) + 1
                headers: Any = message.headers() or ()  # pairs
                yield PublishedRecord(offset - 1, message.value() or b"", headers)
    except KafkaException as error:
        raise UnreadError(f"{topic} on {where} can't be read: {error.args[0].str()}") from None
    finally:
        consumer.close()
