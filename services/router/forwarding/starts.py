"""Start offsets: converts a StartAt to offsets of the source's partitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from mesh.rpc import record_rules
from services.router.forwarding.connections import REQUEST_TIMEOUT, Cluster, answers
from services.router.forwarding.memory import SourcePartition

_SPECS: Any = OffsetSpec  # it ships no types


def beginnings(
    source: Cluster, start: record_rules.StartAt, partitions: Collection[SourcePartition], *, late: bool
) -> dict[SourcePartition, int]:
    """The first offset to read of each partition that no position is known of.

    `late`: the rule has begun before they were there. All that is in them is behind the end that "latest" meant, so
    they are read from their first record on.
    """
    kind = start.WhichOneof("kind")
    if kind == "offsets":
        said = _said(start.offsets, partitions)
        return {**first_offsets(source, set(partitions) - said.keys()), **said}
    if kind == "time":
        return _since(source, start.time.ToMilliseconds(), partitions)
    if kind == "latest" and not late:
        return end_offsets(source, partitions)
    return first_offsets(source, partitions)


def rewound(
    source: Cluster, start: record_rules.StartAt, partitions: Collection[SourcePartition]
) -> dict[SourcePartition, int]:
    """The offsets from which an operator wants these partitions to be read. Partitions that stay at their position are
    left out.
    """
    if start.WhichOneof("kind") == "offsets":
        return _said(start.offsets, partitions)
    return beginnings(source, start, partitions, late=False)


def first_offsets(source: Cluster, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
    """The offsets of the first existing records."""
    return _offsets(source, partitions, _SPECS.earliest())


def end_offsets(cluster: Cluster, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
    """Behind the last records that are there."""
    return _offsets(cluster, partitions, _SPECS.latest())


def _since(source: Cluster, milliseconds: int, partitions: Collection[SourcePartition]) -> dict[SourcePartition, int]:
    """The offsets of the first records of this time or later. The function reads the end offsets first: if there is no
    such record yet, a record that comes meanwhile is not skipped.
    """
    ends = end_offsets(source, partitions)
    found = _offsets(source, partitions, _SPECS.for_timestamp(milliseconds))
    return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}


def _said(
    offsets: record_rules.PartitionOffsets, partitions: Collection[SourcePartition]
) -> dict[SourcePartition, int]:
    return {
        each: offsets.offsets[each.number]
        for each in partitions
        if each.topic == offsets.topic and each.number in offsets.offsets
    }


def _offsets(source: Cluster, partitions: Collection[SourcePartition], spec: Any) -> dict[SourcePartition, int]:
    if not partitions:
        return {}
    wanted = {TopicPartition(each.topic, each.number): spec for each in partitions}
    futures = source.ask(lambda admin: admin.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT))
    found = answers(futures, f"offsets on cluster {source.name!r}")
    return {SourcePartition(about.topic, about.partition): answer.offset for about, answer in found.items()}
