"""Produce (key 0): records of many partitions in, one answer for each partition back."""

from dataclasses import dataclass

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    data,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    topic_name,
    transaction_name,
    uuid,
)


@dataclass(slots=True)
class PartitionProduceData(Struct):
    index: int = int32()
    records: Buffer | None = data(nullable_since=0)


@dataclass(slots=True)
class TopicProduceData(Struct):
    name: str = topic_name(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(api_key=0, kind=Kind.REQUEST, versions=(0, 13), flexible=9)
@dataclass(slots=True)
class ProduceRequest(Struct):
    transactional_id: str | None = transaction_name(since=3, nullable_since=3, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@dataclass(slots=True)
class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(since=8, nullable_since=8, default=None)


@dataclass(slots=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(since=10, default=-1)
    leader_epoch: int = int32(since=10, default=-1)


@dataclass(slots=True)
class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(since=2, default=-1, ignorable=True)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


@dataclass(slots=True)
class TopicProduceResponse(Struct):
    name: str = topic_name(until=12, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@dataclass(slots=True)
class NodeEndpoint(Struct):
    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(since=10, nullable_since=10, default=None)


@message(api_key=0, kind=Kind.RESPONSE, versions=(0, 13), flexible=9)
@dataclass(slots=True)
class ProduceResponse(Struct):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
