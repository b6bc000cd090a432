"""AlterPartitionReassignments (key 45): partitions move to other brokers of their cluster."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int16, int32, int32s, message, string, topic_name


@dataclass(slots=True)
class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = int32s(nullable_since=0, default=None)


@dataclass(slots=True)
class ReassignableTopic(Struct):
    name: str = topic_name()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(api_key=45, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AlterPartitionReassignmentsRequest(Struct):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True)
class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@dataclass(slots=True)
class ReassignableTopicResponse(Struct):
    name: str = topic_name()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(api_key=45, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class AlterPartitionReassignmentsResponse(Struct):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
