"""Fetch (key 1): records of many partitions, with a long poll."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    data,
    int8,
    int16,
    int32,
    int32s,
    int64,
    message,
    string,
    struct,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class ReplicaState(Struct):
    replica_id: int = int32(since=15, default=-1)
    replica_epoch: int = int64(since=15, default=-1)


@dataclass(slots=True)
class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, ignorable=True, tag=0)
    high_watermark: int = int64(since=18, default=0x7FFF_FFFF_FFFF_FFFF, ignorable=True, tag=1)


@dataclass(slots=True)
class FetchTopic(Struct):
    topic: str = topic_name(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


@dataclass(slots=True)
class ForgottenTopic(Struct):
    topic: str = topic_name(since=7, until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[int] = int32s(since=7)


@message(api_key=1, kind=Kind.REQUEST, versions=(0, 18), flexible=12)
@dataclass(slots=True)
class FetchRequest(Struct):
    cluster_id: str | None = string(since=12, nullable_since=12, default=None, ignorable=True, tag=0)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(since=3, default=0x7FFF_FFFF, ignorable=True)
    isolation_level: int = int8(since=4, ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


@dataclass(slots=True)
class EpochEndOffset(Struct):
    epoch: int = int32(since=12, default=-1)
    end_offset: int = int64(since=12, default=-1)


@dataclass(slots=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(since=12, default=-1)
    leader_epoch: int = int32(since=12, default=-1)


@dataclass(slots=True)
class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@dataclass(slots=True)
class AbortedTransaction(Struct):
    producer_id: int = int64(since=4)
    first_offset: int = int64(since=4)


@dataclass(slots=True)
class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(since=4, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Buffer | None = data(nullable_since=0)


@dataclass(slots=True)
class FetchableTopicResponse(Struct):
    topic: str = topic_name(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class NodeEndpoint(Struct):
    node_id: int = int32(since=16)
    host: str = string(since=16)
    port: int = int32(since=16)
    rack: str | None = string(since=16, nullable_since=16, default=None)


@message(api_key=1, kind=Kind.RESPONSE, versions=(0, 18), flexible=12)
@dataclass(slots=True)
class FetchResponse(Struct):
    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
