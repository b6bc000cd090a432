"""AlterShareGroupOffsets (key 91): moves the start of an empty share group."""

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
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32()
    start_offset: int = int64()


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = topic_name()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@message(api_key=91, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterShareGroupOffsetsRequest(Struct):
    group_id: str = group_name()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = topic_name()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@message(api_key=91, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class AlterShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
