"""OffsetForLeaderEpoch (key 23): where the log of a leader epoch ends."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int16, int32, int64, message, topic_name


@dataclass(slots=True)
class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    leader_epoch: int = int32()


@dataclass(slots=True)
class OffsetForLeaderTopic(Struct):
    topic: str = topic_name()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(api_key=23, kind=Kind.REQUEST, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Struct):
    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@dataclass(slots=True)
class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(since=1, default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult(Struct):
    topic: str = topic_name()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@message(api_key=23, kind=Kind.RESPONSE, versions=(0, 4), flexible=4)
@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Struct):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
