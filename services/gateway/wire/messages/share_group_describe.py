"""ShareGroupDescribe (key 77): state, members and assignments of share groups (KIP-932)."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    group_name,
    group_names,
    int16,
    int32,
    int32s,
    message,
    string,
    struct,
    topic_name,
    topic_names,
    uuid,
)


@message(api_key=77, kind=Kind.REQUEST, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupDescribeRequest(Struct):
    group_ids: list[str] = group_names()
    include_authorized_operations: bool = boolean()


@dataclass(slots=True)
class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@dataclass(slots=True)
class Member(Struct):
    member_id: str = string()
    rack_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = topic_names()
    assignment: Assignment = struct(Assignment)


@dataclass(slots=True)
class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = group_name()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)


@message(api_key=77, kind=Kind.RESPONSE, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupDescribeResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
