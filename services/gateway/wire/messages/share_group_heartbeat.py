"""ShareGroupHeartbeat (key 76): a member of a share group (KIP-932) is there, and gets its partitions."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    group_name,
    int16,
    int32,
    int32s,
    message,
    string,
    struct,
    topic_names,
    uuid,
)


@message(api_key=76, kind=Kind.REQUEST, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupHeartbeatRequest(Struct):
    group_id: str = group_name()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable_since=0, default=None)
    subscribed_topic_names: list[str] | None = topic_names(nullable_since=0, default=None)


@dataclass(slots=True)
class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(api_key=76, kind=Kind.RESPONSE, versions=(1, 1), flexible=0)
@dataclass(slots=True)
class ShareGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
