"""Metadata (key 3): brokers, topics, and who leads which partition."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32s,
    message,
    string,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class MetadataRequestTopic(Struct):
    topic_id: bytes = uuid(since=10, ignorable=True)
    name: str | None = topic_name(nullable_since=10)


@message(api_key=3, kind=Kind.REQUEST, versions=(0, 13), flexible=9)
@dataclass(slots=True)
class MetadataRequest(Struct):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


@dataclass(slots=True)
class MetadataResponseBroker(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable_since=1, default=None, ignorable=True)


@dataclass(slots=True)
class MetadataResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = int32s()
    isr_nodes: list[int] = int32s()
    offline_replicas: list[int] = int32s(since=5, ignorable=True)


@dataclass(slots=True)
class MetadataResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = topic_name(nullable_since=12)
    topic_id: bytes = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-0x8000_0000)


@message(api_key=3, kind=Kind.RESPONSE, versions=(0, 13), flexible=9)
@dataclass(slots=True)
class MetadataResponse(Struct):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable_since=2, default=None, ignorable=True)
    controller_id: int = int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-0x8000_0000)
    error_code: int = int16(since=13, ignorable=True)
