"""ElectLeaders (key 43): partitions get their preferred leader, or any that lives."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int8, int16, int32, int32s, message, string, topic_name


@dataclass(slots=True)
class TopicPartitions(Struct):
    topic: str = topic_name()
    partitions: list[int] = int32s()


@message(api_key=43, kind=Kind.REQUEST, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class ElectLeadersRequest(Struct):
    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable_since=0)
    timeout_ms: int = int32(default=60000)


@dataclass(slots=True)
class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


@dataclass(slots=True)
class ReplicaElectionResult(Struct):
    topic: str = topic_name()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(api_key=43, kind=Kind.RESPONSE, versions=(0, 2), flexible=2)
@dataclass(slots=True)
class ElectLeadersResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
