"""Share groups and streams groups of one cluster: their states, members and lags.

confluent-kafka lists neither, so aiokafka's connections ask. A broker lists the groups that it coordinates, so the
same broker describes them, and nobody has to look for a coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion

from mesh.exact_requests import Exactly
from mesh.routing import UpstreamCluster
from services.control.domain.topics.groups import GroupState, GroupType, SeenGroup
from services.control.upstream.broker_connections import BrokerConnections
from services.control.upstream.connections import UnreachableError
from services.control.upstream.groups import GroupMember
from services.control.upstream.newer_group_messages import (
    DescribeShareGroupOffsetsRequest_v1,
    ListGroupsRequest_v5,
    ShareGroupDescribeRequest_v1,
    StreamsGroupDescribeRequest_v0,
)

ASK_S: Final = 8.0
"""Seconds for all questions to one cluster."""
AT_ONCE: Final = 100
"""Groups of one request."""
SHARE, STREAMS = "share", "streams"
"""The types, as a broker spells them: Kafka's message specifications name none."""
TYPES: Final = {SHARE: GroupType.SHARE, STREAMS: GroupType.STREAMS}
STATES: Final = {  # in small letters
    "assigning": GroupState.ASSIGNING,
    "reconciling": GroupState.RECONCILING,
    "stable": GroupState.STABLE,
    "empty": GroupState.EMPTY,
    "notready": GroupState.NOT_READY,
    "dead": GroupState.DEAD,
}
UNKNOWN: Final = -1
"""The lag of a partition that a share group has not begun."""


@dataclass(slots=True)
class NewerGroup:
    """A share group or a streams group; its members are None if its coordinator does not tell them now."""

    seen: SeenGroup
    members: tuple[GroupMember, ...] | None = None
    share_lags: dict[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> records that a share group has not settled. Before Kafka 4.2 no cluster tells them."""


async def newer_groups(cluster: UpstreamCluster) -> dict[str, NewerGroup]:
    """The groups by name; none on a cluster before Kafka 4. UnreachableError."""
    found: dict[str, NewerGroup] = {}
    async with BrokerConnections(cluster, ASK_S) as brokers:
        for broker in brokers.brokers:
            try:
                there = await _listed(brokers, broker, cluster)
            except IncompatibleBrokerVersion:
                return {}
            for names in _pieces([name for name, group in there.items() if group.seen.type is GroupType.SHARE]):
                await _describe_share_groups(brokers, broker, names, there)
            for names in _pieces([name for name, group in there.items() if group.seen.type is GroupType.STREAMS]):
                await _describe_streams_groups(brokers, broker, names, there)
            found |= there
    return found


async def _listed(brokers: BrokerConnections, broker: int, cluster: UpstreamCluster) -> dict[str, NewerGroup]:
    answer = await brokers.ask(broker, Exactly(ListGroupsRequest_v5([], [SHARE, STREAMS], {})))
    if answer.error_code:
        raise UnreachableError(f"broker {broker} of {cluster.name!r} lists no groups: error {answer.error_code}")
    return {
        name: NewerGroup(
            SeenGroup(
                STATES.get(state.lower(), GroupState.UNKNOWN),
                TYPES.get(kind.lower(), GroupType.UNKNOWN),
                is_coordinated=True,
            )
        )
        for name, _, state, kind, _ in answer.groups
    }


async def _describe_share_groups(
    brokers: BrokerConnections, broker: int, names: Sequence[str], there: Mapping[str, NewerGroup]
) -> None:
    answer = await brokers.ask(broker, Exactly(ShareGroupDescribeRequest_v1(names, False, {})))
    for error, _, name, _, _, _, _, members, *_ in answer.groups:
        if not error:
            there[name].members = tuple(_share_member(each) for each in members)
    wanted: list[Any] = [(name, None, {}) for name in names]
    try:
        offsets = await brokers.ask(broker, Exactly(DescribeShareGroupOffsetsRequest_v1(wanted, {})))
    except IncompatibleBrokerVersion:
        return
    for name, topics, *_ in offsets.groups:
        for topic, _, partitions, _ in topics:
            there[name].share_lags |= {
                (topic, partition): lag
                for partition, _, _, lag, error, *_ in partitions
                if not error and lag != UNKNOWN
            }


def _share_member(of: Any) -> GroupMember:
    member_id, _, _, client_id, host, _, (assigned, _), _ = of
    return GroupMember(client_id, host, "", member_id, sum(len(partitions) for _, _, partitions, _ in assigned))


async def _describe_streams_groups(
    brokers: BrokerConnections, broker: int, names: Sequence[str], there: Mapping[str, NewerGroup]
) -> None:
    answer = await brokers.ask(broker, Exactly(StreamsGroupDescribeRequest_v0(names, False, {})))
    for error, _, name, _, _, _, _, members, *_ in answer.groups:
        if not error:
            there[name].members = tuple(_streams_member(each) for each in members)


def _streams_member(of: Any) -> GroupMember:
    member_id, _, instance_id, _, client_id, host, _, _, _, _, _, _, (active, *_), *_ = of
    return GroupMember(client_id, host, instance_id or "", member_id, sum(len(tasks) for _, tasks, _ in active))


def _pieces(names: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while piece := list(islice(remaining, AT_ONCE)):
        yield piece
