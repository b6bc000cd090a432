"""ListOffsets (key 2): the offset that belongs to a time, or to the ends of a log."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, int64, int64s, message, topic_name


@dataclass(slots=True)
class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32(until=0, default=1)


@dataclass(slots=True)
class ListOffsetsTopic(Struct):
    name: str = topic_name()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(api_key=2, kind=Kind.REQUEST, versions=(0, 11), flexible=6)
@dataclass(slots=True)
class ListOffsetsRequest(Struct):
    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


@dataclass(slots=True)
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = int64s(until=0)
    timestamp: int = int64(since=1, default=-1)
    offset: int = int64(since=1, default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@dataclass(slots=True)
class ListOffsetsTopicResponse(Struct):
    name: str = topic_name()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(api_key=2, kind=Kind.RESPONSE, versions=(0, 11), flexible=6)
@dataclass(slots=True)
class ListOffsetsResponse(Struct):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
