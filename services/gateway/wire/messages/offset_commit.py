"""OffsetCommit (key 8): where a group stands in its partitions."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    group_name,
    int16,
    int32,
    int64,
    message,
    string,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    commit_timestamp: int = int64(since=1, until=1, default=-1)
    committed_metadata: str | None = string(nullable_since=0)


@dataclass(slots=True)
class OffsetCommitRequestTopic(Struct):
    name: str = topic_name(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(api_key=8, kind=Kind.REQUEST, versions=(0, 10), flexible=8)
@dataclass(slots=True)
class OffsetCommitRequest(Struct):
    group_id: str = group_name()
    generation_id_or_member_epoch: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(since=7, nullable_since=7, default=None)
    retention_time_ms: int = int64(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@dataclass(slots=True)
class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetCommitResponseTopic(Struct):
    name: str = topic_name(until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(api_key=8, kind=Kind.RESPONSE, versions=(0, 10), flexible=8)
@dataclass(slots=True)
class OffsetCommitResponse(Struct):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
