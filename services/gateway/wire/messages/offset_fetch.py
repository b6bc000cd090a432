"""OffsetFetch (key 9): where groups stood at their last commit."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    group_name,
    int16,
    int32,
    int32s,
    int64,
    message,
    string,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class OffsetFetchRequestTopic(Struct):
    name: str = topic_name(until=7)
    partition_indexes: list[int] = int32s(until=7)


@dataclass(slots=True)
class OffsetFetchRequestTopics(Struct):
    name: str = topic_name(since=8, until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = int32s(since=8)


@dataclass(slots=True)
class OffsetFetchRequestGroup(Struct):
    group_id: str = group_name(since=8)
    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, since=8, nullable_since=8)


@message(api_key=9, kind=Kind.REQUEST, versions=(0, 10), flexible=6)
@dataclass(slots=True)
class OffsetFetchRequest(Struct):
    group_id: str = group_name(until=7)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


@dataclass(slots=True)
class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32(until=7)
    committed_offset: int = int64(until=7)
    committed_leader_epoch: int = int32(since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = string(until=7, nullable_since=0)
    error_code: int = int16(until=7)


@dataclass(slots=True)
class OffsetFetchResponseTopic(Struct):
    name: str = topic_name(until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


@dataclass(slots=True)
class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(since=8, default=-1, ignorable=True)
    metadata: str | None = string(since=8, nullable_since=8)
    error_code: int = int16(since=8)


@dataclass(slots=True)
class OffsetFetchResponseTopics(Struct):
    name: str = topic_name(since=8, until=9, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


@dataclass(slots=True)
class OffsetFetchResponseGroup(Struct):
    group_id: str = group_name(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


@message(api_key=9, kind=Kind.RESPONSE, versions=(0, 10), flexible=6)
@dataclass(slots=True)
class OffsetFetchResponse(Struct):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
