"""ListPartitionReassignments (key 46): which partitions are on their way to other brokers."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, int16, int32, int32s, message, string, topic_name


@dataclass(slots=True)
class ListPartitionReassignmentsTopics(Struct):
    name: str = topic_name()
    partition_indexes: list[int] = int32s()


@message(api_key=46, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class ListPartitionReassignmentsRequest(Struct):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable_since=0, default=None
    )


@dataclass(slots=True)
class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = int32s()
    adding_replicas: list[int] = int32s()
    removing_replicas: list[int] = int32s()


@dataclass(slots=True)
class OngoingTopicReassignment(Struct):
    name: str = topic_name()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(api_key=46, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class ListPartitionReassignmentsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
