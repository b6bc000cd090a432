"""Offsets of share groups in stitched logs: one answer out of those of the clusters of all parts.

Theory of operation
1. Each cluster of a part keeps the group's start of its log. For clients the group's start is that in the first part
   which has records that the group has not settled. The lag is the sum of those of the clusters.
2. A new start is given to all clusters. It is the end of a part in front of it, and the beginning of a part behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from services.gateway.requests.groups.share_parts import old_clusters, parts_of
from services.gateway.requests.groups.share_sessions import Slot
from services.gateway.requests.plan import MeshView
from services.gateway.requests.records.stitched import Stretches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic
from services.gateway.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_STATE: Final = -1
"""The start offset, or the lag, of a partition of which a group has no state."""
NOT_THERE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of a cluster that has nothing of the group to delete."""


class Topic(Protocol):
    topic_name: str


T = TypeVar("T", bound=Topic)


def further_clusters(topic: str, mesh: MeshView) -> list[str]:
    """The clusters apart from its owner that keep offsets of a topic: those of its earlier parts."""
    return old_clusters(parts_of(Slot(topic, 0), mesh), mesh)


def at(cluster: str, topic: T, mesh: MeshView) -> T:
    """The topic of a request with the offsets of a cluster."""
    if not isinstance(topic, AlterShareGroupOffsetsRequestTopic) or not mesh.memory.stitches.logs:
        return topic
    partitions = [
        replace(each, start_offset=_there(each.start_offset, cluster, _parts(topic, each.partition_index, mesh)))
        for each in topic.partitions
    ]
    return replace(topic, partitions=partitions)


def _parts(topic: Topic, partition: int, mesh: MeshView) -> Stretches:
    return parts_of(Slot(topic.topic_name, partition), mesh)


def _there(offset: int, cluster: str, parts: Stretches) -> int:
    here = [part for part in parts if part.cluster == cluster]
    for part in here:
        if part.end is None or offset < part.end:
            return part.there(max(offset, part.start))
    return here[-1].there(here[-1].end or 0) if here else offset


Told = Sequence[tuple[str, DescribeShareGroupOffsetsResponseTopic]]
"""Answers with their clusters."""


def described(told: Told, mesh: MeshView) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """One answer for each topic."""
    by_name: dict[str, list[tuple[str, DescribeShareGroupOffsetsResponseTopic]]] = {}
    for cluster, topic in told:
        by_name.setdefault(topic.topic_name, []).append((cluster, topic))
    logs = mesh.memory.stitches.logs
    found: list[DescribeShareGroupOffsetsResponseTopic] = []
    for name, of_topic in by_name.items():
        found += [_over_parts(of_topic, mesh)] if name in logs else [topic for _, topic in of_topic]
    return found


def _over_parts(told: Told, mesh: MeshView) -> DescribeShareGroupOffsetsResponseTopic:
    by_partition: dict[int, dict[str, DescribeShareGroupOffsetsResponsePartition]] = {}
    for cluster, topic in told:
        for partition in topic.partitions:
            by_partition.setdefault(partition.partition_index, {})[cluster] = partition
    whole = told[0][1]
    partitions = [_over(of, _parts(whole, number, mesh)) for number, of in sorted(by_partition.items())]
    return replace(whole, partitions=partitions)


def _over(
    told: dict[str, DescribeShareGroupOffsetsResponsePartition], parts: Stretches
) -> DescribeShareGroupOffsetsResponsePartition:
    fault = next((each for each in told.values() if each.error_code), None)
    if fault is not None or not parts:
        return fault or next(iter(told.values()))
    lags = [each.lag for each in told.values() if each.lag != NO_STATE]
    lag = sum(lags) if lags else NO_STATE
    for part in parts:
        there = told.get(part.cluster)
        if there is None or there.start_offset == NO_STATE:
            continue
        # a cluster stores the start late, so one without lag has its records settled
        is_settled = part.end is not None and (part.shown(there.start_offset) >= part.end or there.lag == 0)
        if not is_settled:
            return replace(there, start_offset=max(part.start, part.shown(there.start_offset)), lag=lag)
    first = next(iter(told.values()))
    is_begun = any(each.start_offset != NO_STATE for each in told.values())
    return replace(first, start_offset=parts[-1].start if is_begun else NO_STATE, lag=lag)


def merged(results: Iterable[Any]) -> list[Any]:
    """One result for each topic of a change: the failure of a cluster counts for all."""
    found: dict[str, Any] = {}
    for result in results:
        earlier = found.setdefault(result.topic_name, result)
        if earlier is result:
            continue
        if hasattr(result, "partitions"):
            ours = {each.partition_index: each for each in earlier.partitions}
            for each in result.partitions:
                if each.error_code or each.partition_index not in ours:
                    ours[each.partition_index] = each
            earlier.partitions = [*ours.values()]
        elif earlier.error_code in NOT_THERE or (result.error_code and result.error_code not in NOT_THERE):
            found[result.topic_name] = result
    return [*found.values()]
