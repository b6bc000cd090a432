"""DescribeQuorum (key 55): the controllers of one cluster, and how far each follows (KIP-595, KIP-836, KIP-853)."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    topic_name,
    uint16,
    uuid,
)


@dataclass(slots=True)
class RequestedPartition(Struct):
    partition_index: int = int32()


@dataclass(slots=True)
class RequestedTopic(Struct):
    topic_name: str = topic_name()
    partitions: list[RequestedPartition] = array(RequestedPartition)


@message(api_key=55, kind=Kind.REQUEST, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeQuorumRequest(Struct):
    topics: list[RequestedTopic] = array(RequestedTopic)


@dataclass(slots=True)
class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64(since=1, default=-1, ignorable=True)


@dataclass(slots=True)
class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@dataclass(slots=True)
class TopicData(Struct):
    topic_name: str = topic_name()
    partitions: list[PartitionData] = array(PartitionData)


@dataclass(slots=True)
class Listener(Struct):
    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


@dataclass(slots=True)
class Node(Struct):
    node_id: int = int32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


@message(api_key=55, kind=Kind.RESPONSE, versions=(0, 2), flexible=0)
@dataclass(slots=True)
class DescribeQuorumResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, since=2)
