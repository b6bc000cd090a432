"""OffsetDelete (key 47): a group forgets where it stood in some partitions."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, group_name, int16, int32, message, topic_name


@dataclass(slots=True)
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32()


@dataclass(slots=True)
class OffsetDeleteRequestTopic(Struct):
    name: str = topic_name()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(api_key=47, kind=Kind.REQUEST, versions=(0, 0), flexible=None)
@dataclass(slots=True)
class OffsetDeleteRequest(Struct):
    group_id: str = group_name()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@dataclass(slots=True)
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()


@dataclass(slots=True)
class OffsetDeleteResponseTopic(Struct):
    name: str = topic_name()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(api_key=47, kind=Kind.RESPONSE, versions=(0, 0), flexible=None)
@dataclass(slots=True)
class OffsetDeleteResponse(Struct):
    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
