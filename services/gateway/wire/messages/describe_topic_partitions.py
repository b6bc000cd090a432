"""DescribeTopicPartitions (key 75): topics and their partitions, page by page."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32s,
    message,
    struct,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class TopicRequest(Struct):
    name: str = topic_name()


@dataclass(slots=True)
class Cursor(Struct):
    topic_name: str = topic_name()
    partition_index: int = int32()


@message(api_key=75, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTopicPartitionsRequest(Struct):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable_since=0)


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = int32s()
    isr_nodes: list[int] = int32s()
    eligible_leader_replicas: list[int] | None = int32s(nullable_since=0, default=None)
    last_known_elr: list[int] | None = int32s(nullable_since=0, default=None)
    offline_replicas: list[int] = int32s(ignorable=True)


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = topic_name(nullable_since=0)
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-0x8000_0000)


@message(api_key=75, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class DescribeTopicPartitionsResponse(Struct):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
