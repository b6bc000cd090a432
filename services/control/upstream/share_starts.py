"""The offsets at which share groups go on in one topic of one cluster: asks for them, and sets them (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion

from mesh.exact_requests import Exactly
from mesh.routing import UpstreamCluster
from services.control.domain.topics.groups import GroupType
from services.control.upstream.broker_connections import (
    GROUP,
    ON_THE_WAY,
    PAUSE_S,
    BrokerConnections,
)
from services.control.upstream.connections import UnreachableError
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.newer_group_messages import (
    AlterShareGroupOffsetsRequest_v0,
    DescribeShareGroupOffsetsRequest_v1,
)
from services.control.upstream.newer_groups import ASK_S, AT_ONCE, newer_groups

GROUP_ID_NOT_FOUND: Final = 69
NON_EMPTY_GROUP: Final = 68
NO_START: Final = -1
"""The start of a partition that the group has not begun."""

Starts = dict[int, int]
"""Partition -> the first offset that the group has not settled."""


async def share_groups(cluster: UpstreamCluster) -> list[str]:
    """The share groups that the cluster knows. UnreachableError."""
    found = await newer_groups(cluster)
    return sorted(name for name, group in found.items() if group.seen.type is GroupType.SHARE)


async def keeps_share_starts(cluster: UpstreamCluster) -> bool:
    """Whether the cluster can be given starts: Kafka has them since version 4.1. UnreachableError."""
    async with BrokerConnections(cluster, ASK_S) as brokers:
        try:
            await brokers.ask(next(iter(brokers.brokers)), Exactly(DescribeShareGroupOffsetsRequest_v1([], {})))
        except IncompatibleBrokerVersion:
            return False
    return True


async def share_starts(cluster: UpstreamCluster, topic: str, groups: Collection[str]) -> dict[str, Starts]:
    """For each group that reads the topic its starts. UnreachableError."""
    begun = {
        group: {number: start for number, start in starts.items() if start != NO_START}
        for group, starts in (await share_states(cluster, topic, groups)).items()
    }
    return {group: starts for group, starts in begun.items() if starts}


async def share_states(cluster: UpstreamCluster, topic: str, groups: Collection[str]) -> dict[str, Starts]:
    """As `share_starts`, for each group that has or had a member for the topic: its start may be `NO_START`."""
    found: dict[str, Starts] = {}
    async with BrokerConnections(cluster, ASK_S) as brokers:
        pieces = [[*groups][first : first + AT_ONCE] for first in range(0, len(groups), AT_ONCE)]
        for piece in pieces:
            found |= dict(await asyncio.gather(*(_starts(brokers, topic, group) for group in piece)))
    return {group: starts for group, starts in found.items() if starts}


async def _starts(brokers: BrokerConnections, topic: str, group: str) -> tuple[str, Starts]:
    request = Exactly(DescribeShareGroupOffsetsRequest_v1([(group, None, {})], {}))
    while True:
        try:
            answer = await brokers.ask(await brokers.coordinator(group, GROUP), request)
        except IncompatibleBrokerVersion:
            return group, {}
        _, topics, error, *_ = answer.groups[0]
        if error == GROUP_ID_NOT_FOUND:
            return group, {}
        if not error:
            break
        if error not in ON_THE_WAY:
            raise UnreachableError(f"{brokers.name!r} tells no offsets of share group {group!r}: error {error}")
        await asyncio.sleep(PAUSE_S)
    found: Starts = {}
    for name, _, partitions, _ in topics:
        for partition, start, _, _, error, *_ in partitions if name == topic else ():
            if error:
                where = f"{topic}-{partition} on {brokers.name!r}"
                raise UnreachableError(f"share group {group!r} has no known offset of {where}: error {error}")
            found[partition] = start
    return group, found


async def set_share_starts(cluster: UpstreamCluster, topic: str, group: str, starts: Mapping[int, int]) -> None:
    """GroupRefusedError when the cluster refuses, for example because the group has members. UnreachableError."""
    wanted: list[Any] = [(topic, [(number, start, {}) for number, start in sorted(starts.items())], {})]
    request = Exactly(AlterShareGroupOffsetsRequest_v0(group, wanted, {}))
    async with BrokerConnections(cluster, ASK_S) as brokers:
        try:
            answer = await brokers.ask_coordinator(group, request, GROUP)
        except IncompatibleBrokerVersion:
            raise GroupRefusedError("it has no offsets of share groups: Kafka has them since version 4.1") from None
    _check(answer)


def _check(answer: Any) -> None:
    if answer.error_code:
        text = answer.error_message or f"error {answer.error_code}"
        raise GroupRefusedError(text, by_members=answer.error_code == NON_EMPTY_GROUP)
    for topic, _, partitions, _ in answer.responses:
        for number, error, message, _ in partitions:
            if error:
                raise GroupRefusedError(f"{topic}-{number}: {message or f'error {error}'}")
