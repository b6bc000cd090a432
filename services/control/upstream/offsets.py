"""What lies in topics and how far groups have read them: asked of one cluster, by its own names, within a bound."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # as in connections

from services.control.domain.effects import LogRange

REQUEST_TIMEOUT = 4.0
"""Seconds for one request, as in `connections`."""
AT_ONCE = 100
"""Groups asked at the same time: librdkafka keeps a request for each."""


def log_ranges(client: AdminClient, topics: Mapping[str, int]) -> dict[str, dict[int, LogRange]]:
    """First and next offsets of every partition; `topics`: topic -> partitions. Raises KafkaException."""
    wanted = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    if not wanted:
        return {}
    first, following = (
        client.list_offsets(dict.fromkeys(wanted, spec), request_timeout=REQUEST_TIMEOUT)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    )
    ranges: dict[str, dict[int, LogRange]] = {topic: {} for topic in topics}
    for each in wanted:
        start, end = (asked[each].result(REQUEST_TIMEOUT).offset for asked in (first, following))
        ranges[each.topic][each.partition] = LogRange(start, end)
    return ranges


def positions(
    client: AdminClient, topics: Collection[str], groups: Iterable[str] | None, bound: float
) -> dict[str, dict[str, dict[int, int]]]:
    """Topic -> group -> partition -> committed offset, of all groups or the named ones. Raises KafkaException."""
    deadline = time.monotonic() + bound
    found: dict[str, dict[str, dict[int, int]]] = {topic: {} for topic in topics}
    remaining = iter(_groups(client) if groups is None else groups)
    while at_once := list(islice(remaining, AT_ONCE)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"its groups did not all tell their offsets within {bound:g} s")
        for group, committed in _committed(client, at_once):
            if committed.topic in found and committed.offset >= 0:
                found[committed.topic].setdefault(group, {})[committed.partition] = committed.offset
    return found


def _groups(client: AdminClient) -> list[str]:
    listed: Any = client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT).result(REQUEST_TIMEOUT)
    for error in listed.errors:
        raise error if isinstance(error, KafkaException) else KafkaException(error)
    return [group.group_id for group in listed.valid]


def _committed(client: AdminClient, groups: Sequence[str]) -> Iterator[tuple[str, TopicPartition]]:
    asked = [
        (group, future)
        for group in groups
        for future in client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT
        ).values()
    ]
    for group, future in asked:
        try:
            answer: Any = future.result(REQUEST_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                continue  # it was deleted just now
            raise
        for each in answer.topic_partitions:
            yield group, each
