"""Consumer groups of one cluster: reads their members, finds offsets by time, and sets their offsets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # as in connections

from mesh.group_offsets import COORDINATOR_MOVES
from services.control.domain.topics.groups import GroupState, GroupType, SeenGroup
from services.control.upstream.offsets import ON_THE_WAY_POLL, REQUEST_TIMEOUT, listed, listed_groups

NOT_OF_THIS_KIND = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID})
"""Errors for a group that this cluster does not know, or whose offsets it does not keep by partition."""
REFUSALS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.FENCED_INSTANCE_ID,
    }
)  # fmt: skip
"""Errors of a healthy cluster that refuses to set the offsets."""
BY_MEMBERS = frozenset(
    {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.ILLEGAL_GENERATION,
     KafkaError.REBALANCE_IN_PROGRESS}
)  # fmt: skip
"""Refusals of a group that has members."""

STATES = {
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.PREPARING_REBALANCING: GroupState.PREPARING_REBALANCE,
    ConsumerGroupState.COMPLETING_REBALANCING: GroupState.COMPLETING_REBALANCE,
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.DEAD: GroupState.DEAD,
}
TYPES = {ConsumerGroupType.CLASSIC: GroupType.CLASSIC, ConsumerGroupType.CONSUMER: GroupType.CONSUMER}

T = TypeVar("T")


class GroupRefusedError(RuntimeError):
    """The cluster does not set the offsets; the message says why."""

    def __init__(self, message: str, *, by_members: bool = False) -> None:
        """`by_members`: the group has members there, and nothing else is in the way."""
        super().__init__(message)
        self.by_members = by_members


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, as the group's coordinator describes it."""

    client_id: str
    host: str
    instance_id: str
    member_id: str = ""
    partitions: int = 0

    def __str__(self) -> str:
        return f"{self.client_id or 'a client without id'} at {self.host.lstrip('/')}"


def members(client: AdminClient, group: str, bound: float) -> tuple[GroupMember, ...]:
    """The members of a group; none, if the cluster does not know the group. Raises KafkaException."""

    def ask() -> Any:
        asked: Any = client.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT)
        return asked[group].result(REQUEST_TIMEOUT)

    try:
        described = _of_coordinator(ask, bound)
    except KafkaException as error:
        if error.args[0].code() in NOT_OF_THIS_KIND:
            return ()
        raise
    return _members(described)


def _members(described: Any) -> tuple[GroupMember, ...]:
    return tuple(
        GroupMember(
            each.client_id, each.host, each.group_instance_id or "", each.member_id,
            len(each.assignment.topic_partitions) if each.assignment else 0,
        )
        for each in described.members
    )  # fmt: skip


def seen_groups(client: AdminClient, bound: float) -> dict[str, SeenGroup]:
    """The groups that the cluster lists. Raises KafkaException."""
    return {
        each.group_id: SeenGroup(
            STATES.get(each.state, GroupState.UNKNOWN),
            TYPES.get(each.type, GroupType.UNKNOWN),
            is_coordinated=not each.is_simple_consumer_group,
        )
        for each in listed_groups(client, time.monotonic() + bound)
    }


def members_of_all(client: AdminClient, groups: Collection[str]) -> dict[str, tuple[GroupMember, ...]]:
    """The members of each group; a group whose coordinator does not say them now is absent."""
    if not groups:
        return {}
    asked: Any = client.describe_consumer_groups([*groups], request_timeout=REQUEST_TIMEOUT)
    found: dict[str, tuple[GroupMember, ...]] = {}
    for group, future in asked.items():
        with contextlib.suppress(KafkaException):
            found[group] = _members(future.result(REQUEST_TIMEOUT))
    return found


def offsets_since(client: AdminClient, topic: str, times: Mapping[int, datetime], bound: float) -> dict[int, int]:
    """For each partition the offset of the first record not older than its time; -1 where there is none."""
    wanted = {
        TopicPartition(topic, partition): OffsetSpec.for_timestamp(round(since.timestamp() * 1000))
        for partition, since in times.items()
    }
    found = listed(client, wanted, time.monotonic() + bound)
    return {each.partition: offset for each, offset in found.items()}


def set_offsets(client: AdminClient, group: str, wanted: Sequence[TopicPartition], bound: float) -> None:
    """Sets the offsets of an empty group. GroupRefusedError when the cluster refuses; raises KafkaException."""

    def ask() -> Any:
        [answer] = client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [*wanted])], request_timeout=REQUEST_TIMEOUT
        ).values()
        return answer.result(REQUEST_TIMEOUT)

    try:
        answered = _of_coordinator(ask, bound)
    except KafkaException as error:
        if error.args[0].code() in REFUSALS:
            raise GroupRefusedError(str(error.args[0].str()), by_members=error.args[0].code() in BY_MEMBERS) from error
        raise
    refused = [each for each in answered.topic_partitions if each.error is not None]
    if refused:
        each = refused[0]
        by_members = all(each.error.code() in BY_MEMBERS for each in refused)
        raise GroupRefusedError(f"{each.topic}/{each.partition}: {each.error.str()}", by_members=by_members)


def _of_coordinator(ask: Callable[[], T], bound: float) -> T:
    """The answer of a group's coordinator; asks again while the cluster does not know the coordinator yet."""
    deadline = time.monotonic() + bound
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline:
                raise
        time.sleep(ON_THE_WAY_POLL)
