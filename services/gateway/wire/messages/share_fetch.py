"""ShareFetch (key 78): a member of a share group acquires records, and acknowledges earlier ones."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    data,
    group_name,
    int8,
    int8s,
    int16,
    int32,
    int32s,
    int64,
    message,
    string,
    struct,
    uuid,
)


@dataclass(slots=True)
class AcknowledgementBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = int8s()


@dataclass(slots=True)
class FetchPartition(Struct):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


@dataclass(slots=True)
class FetchTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


@dataclass(slots=True)
class ForgottenTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = int32s()


@message(api_key=78, kind=Kind.REQUEST, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareFetchRequest(Struct):
    group_id: str | None = group_name(nullable_since=0, default=None)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFF_FFFF)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2, ignorable=True)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


@dataclass(slots=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


@dataclass(slots=True)
class AcquiredRecords(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@dataclass(slots=True)
class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable_since=0, default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Buffer = data()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


@dataclass(slots=True)
class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable_since=0, default=None)


@message(api_key=78, kind=Kind.RESPONSE, versions=(1, 2), flexible=0)
@dataclass(slots=True)
class ShareFetchResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
