"""Offset ranges of topics, and committed offsets of groups: of one cluster, by its own names, within a bound."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # as in connections

from mesh.group_offsets import COORDINATOR_MOVES, committed_offsets
from services.control.domain.log_ranges import LogRange

REQUEST_TIMEOUT = 4.0
"""Seconds for one request, as in `connections`."""
AT_ONCE = 100
"""Groups asked at the same time: librdkafka keeps a request for each."""
LEADERS_ON_THE_WAY = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""Answers about a partition that was made just now, or whose leader changes."""
ON_THE_WAY_POLL = 0.1
"""Seconds between two attempts to ask a coordinator or a leader."""


@dataclass(frozen=True, slots=True)
class Position:
    """A group's committed offset of a partition, and the text that the application keeps with the offset."""

    offset: int
    metadata: str = ""


Positions = Mapping[str, Mapping[int, Position]]
"""Group -> partition -> position."""


@dataclass(slots=True)
class StablePositions:
    """The positions of a topic's groups."""

    by_group: dict[str, dict[int, Position]] = field(default_factory=dict)
    unstable: set[str] = field(default_factory=set)
    """Groups of which an open transaction has an offset of the topic: the group's position may change by its end."""
    with_text: set[str] = field(default_factory=set)
    """Groups that keep a text with an offset; `kept_texts` knows the texts."""


def log_ranges(
    client: AdminClient, topics: Mapping[str, int], bound: float, *, known_only: bool = False
) -> dict[str, dict[int, LogRange]]:
    """First and next offsets of every partition; `topics`: topic -> partitions. Raises KafkaException.

    `known_only`: a partition that the cluster does not tell is left out.
    """
    deadline = time.monotonic() + bound
    wanted = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    first, following = (
        listed(client, dict.fromkeys(wanted, spec), deadline, known_only=known_only)
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    )
    ranges: dict[str, dict[int, LogRange]] = {topic: {} for topic in topics}
    for each in wanted:
        if each in first and each in following:
            ranges[each.topic][each.partition] = LogRange(first[each], following[each])
    return ranges


def log_ends(client: AdminClient, topic: str, partitions: int, bound: float) -> dict[int, int]:
    """The next offset of every partition. Raises KafkaException."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    found = listed(client, dict.fromkeys(wanted, latest), time.monotonic() + bound)
    return {each.partition: end for each, end in found.items()}


def listed(
    client: AdminClient, specs: Mapping[TopicPartition, OffsetSpec], deadline: float, *, known_only: bool = False
) -> dict[TopicPartition, int]:
    """An offset of each partition. A partition whose leader is not known yet is asked again until `deadline` (monotonic
    seconds). Raises KafkaException; with `known_only` a partition is left out instead, if others have answers."""
    found: dict[TopicPartition, int] = {}
    failed: KafkaException | None = None
    remaining = dict(specs)
    while remaining:
        asked = client.list_offsets(remaining, request_timeout=REQUEST_TIMEOUT)
        remaining = {}
        for each, future in asked.items():
            try:
                found[each] = int(future.result(REQUEST_TIMEOUT).offset)
            except KafkaException as error:
                if _worth_asking_again(error, LEADERS_ON_THE_WAY, deadline):
                    remaining[each] = specs[each]
                elif known_only:
                    failed = error
                else:
                    raise
        if remaining:
            time.sleep(ON_THE_WAY_POLL)
    if failed is not None and not found:
        raise failed
    return found


def positions(
    client: AdminClient, topics: Collection[str], groups: Iterable[str] | None, bound: float
) -> dict[str, dict[str, dict[int, int]]]:
    """Topic -> group -> partition -> committed offset, of all groups or the named ones. Raises KafkaException."""
    found: dict[str, dict[str, dict[int, int]]] = {topic: {} for topic in topics}
    for group, committed in _all_committed(client, groups, bound):
        if committed.topic in found:
            found[committed.topic].setdefault(group, {})[committed.partition] = committed.offset
    return found


def stable_positions(client: AdminClient, topic: str, groups: Iterable[str] | None, bound: float) -> StablePositions:
    """The positions in one topic, of all groups or the named ones. Raises KafkaException."""
    found = StablePositions()
    for group, committed in _all_committed(client, groups, bound, stable=True):
        if committed.topic != topic:
            continue
        if committed.error is not None:
            found.unstable.add(group)
        else:
            known = found.by_group.setdefault(group, {})
            known[committed.partition] = Position(committed.offset)
            if _keeps_text(committed):
                found.with_text.add(group)
    return found


def _keeps_text(committed: TopicPartition) -> bool:
    try:
        return bool(committed.metadata)
    except UnicodeDecodeError:  # confluent-kafka has read on behind the text
        return True


def readers(client: AdminClient, bound: float) -> dict[str, set[str]]:
    """Group -> topics that it has committed offsets of. Raises KafkaException."""
    found: dict[str, set[str]] = {}
    for group, committed in _all_committed(client, None, bound):
        found.setdefault(group, set()).add(committed.topic)
    return found


def committed(
    client: AdminClient, groups: Collection[str] | None, bound: float
) -> dict[str, dict[tuple[str, int], int]]:
    """Group -> topic and partition -> committed offset, of all groups or the named ones. Raises KafkaException."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    for group, each in _all_committed(client, groups, bound):
        found.setdefault(group, {})[each.topic, each.partition] = each.offset
    return found


def _all_committed(
    client: AdminClient, groups: Iterable[str] | None, bound: float, *, stable: bool = False
) -> Iterator[tuple[str, TopicPartition]]:
    deadline = time.monotonic() + bound
    remaining = iter([each.group_id for each in listed_groups(client, deadline)] if groups is None else groups)
    while at_once := list(islice(remaining, AT_ONCE)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"its groups did not all tell their offsets within {bound:g} s")
        for group, committed in _committed(client, at_once, deadline, stable=stable):
            if committed.offset >= 0 or (stable and committed.error is not None):
                yield group, committed


def listed_groups(client: AdminClient, deadline: float) -> list[Any]:
    """The groups of the cluster as it lists them. Raises KafkaException."""
    while True:
        listed: Any = client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT).result(REQUEST_TIMEOUT)
        errors = [each if isinstance(each, KafkaException) else KafkaException(each) for each in listed.errors]
        final = next((error for error in errors if not _worth_asking_again(error, COORDINATOR_MOVES, deadline)), None)
        if final is not None:
            raise final
        if not errors:
            return list(listed.valid)
        time.sleep(ON_THE_WAY_POLL)


def _committed(
    client: AdminClient, groups: Sequence[str], deadline: float, *, stable: bool
) -> Iterator[tuple[str, TopicPartition]]:
    remaining = list(groups)
    while remaining:
        asked = committed_offsets(
            client, [*map(ConsumerGroupTopicPartitions, remaining)], REQUEST_TIMEOUT, stable=stable
        )
        remaining = []
        for group, future in asked.items():
            try:
                answer: Any = future.result(REQUEST_TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    continue  # it was deleted just now
                if not _worth_asking_again(error, COORDINATOR_MOVES, deadline):
                    raise
                remaining.append(group)
                continue
            for each in answer.topic_partitions:
                yield group, each
        if remaining:
            time.sleep(ON_THE_WAY_POLL)


def _worth_asking_again(error: KafkaException, on_the_way: Collection[int], deadline: float) -> bool:
    return error.args[0].code() in on_the_way and time.monotonic() < deadline
