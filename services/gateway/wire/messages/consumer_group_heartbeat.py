"""ConsumerGroupHeartbeat (key 68): a member of a consumer group (KIP-848) is there, and gets its partitions."""

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


@dataclass(slots=True)
class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = int32s()


@message(api_key=68, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest(Struct):
    group_id: str = group_name()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = topic_names(nullable_since=0, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable_since=1, default=None)
    server_assignor: str | None = string(nullable_since=0, default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0, default=None)


@dataclass(slots=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(api_key=68, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class ConsumerGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
