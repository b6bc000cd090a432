"""DescribeShareGroupOffsets (key 90): from where share groups read on."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
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
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = group_name()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable_since=0
    )


@message(api_key=90, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest(Struct):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = topic_name()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = group_name()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@message(api_key=90, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
