"""Consumer groups of one cluster: reads their members, finds offsets by time, and sets their offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # as in connections

from mesh.group_offsets import COORDINATOR_MOVES
from services.control.upstream.offsets import ON_THE_WAY_POLL, REQUEST_TIMEOUT, listed

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
    return tuple(GroupMember(each.client_id, each.host, each.group_instance_id or "") for each in described.members)


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
