"""One topic as its cluster describes it now: the leader and the offsets of each partition, and the settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as in connections
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)

from services.control.domain.topics.topics import Setting

MOST_PARTITIONS = 1000
"""Most partitions of one topic that are asked for."""
REQUEST_TIMEOUT = 3.0
"""Seconds for one request: a little less than elsewhere, so that two of them leave time for an answer."""
NOBODY = -1
"""Leader, or offset, where there is none."""


@dataclass(frozen=True, slots=True)
class LivePartition:
    """One partition; offsets are -1 where nobody leads it."""

    number: int
    leader: int
    start: int
    end: int


def live_partitions(client: AdminClient, topic: str) -> list[LivePartition]:
    """The first MOST_PARTITIONS partitions. Raises KafkaException; a partition without a leader is no error."""
    asked: Any = client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT)
    described = asked[topic].result(REQUEST_TIMEOUT)
    leaders = {
        each.id: NOBODY if each.leader is None else int(each.leader.id)
        for each in sorted(described.partitions, key=lambda each: int(each.id))[:MOST_PARTITIONS]
    }
    led = [TopicPartition(topic, number) for number, leader in leaders.items() if leader != NOBODY]
    starts, ends = (
        client.list_offsets(dict.fromkeys(led, spec), request_timeout=REQUEST_TIMEOUT) if led else {}
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    )
    offsets = {each.partition: (_offset(starts[each]), _offset(ends[each])) for each in led}
    return [LivePartition(number, leader, *offsets.get(number, (NOBODY, NOBODY))) for number, leader in leaders.items()]


def _offset(answer: Any) -> int:
    """The offset; NOBODY for a partition whose leader has just gone."""
    try:
        return int(answer.result(REQUEST_TIMEOUT).offset)
    except (KafkaException, TimeoutError):
        return NOBODY


def all_settings(client: AdminClient, topic: str) -> list[Setting]:
    """By name; a secret has no value. Raises KafkaException."""
    [asked] = client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, topic)], request_timeout=REQUEST_TIMEOUT
    ).values()
    return [
        Setting(
            name,
            "" if entry.is_sensitive or entry.value is None else entry.value,
            ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG,
        )
        for name, entry in sorted(asked.result(REQUEST_TIMEOUT).items())
    ]


def topic_ids(client: AdminClient, topics: Collection[str]) -> dict[str, bytes]:
    """The cluster's ids of those topics that it has; an empty one if it is older than ids."""
    found: dict[str, bytes] = {}
    asked: Any = client.describe_topics(TopicCollection([*topics]), request_timeout=REQUEST_TIMEOUT) if topics else {}
    for topic, future in asked.items():
        try:
            told = future.result(REQUEST_TIMEOUT).topic_id
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            continue
        halves = told.get_most_significant_bits(), told.get_least_significant_bits()
        found[topic] = b"".join(half.to_bytes(8, "big", signed=True) for half in halves) if any(halves) else b""
    return found
