"""CreatePartitions (key 37): more partitions for a topic."""

from dataclasses import dataclass

from services.gateway.wire.schema import Kind, Struct, array, boolean, int16, int32, int32s, message, string, topic_name


@dataclass(slots=True)
class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = int32s()


@dataclass(slots=True)
class CreatePartitionsTopic(Struct):
    name: str = topic_name()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable_since=0)


@message(api_key=37, kind=Kind.REQUEST, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreatePartitionsRequest(Struct):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@dataclass(slots=True)
class CreatePartitionsTopicResult(Struct):
    name: str = topic_name()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)


@message(api_key=37, kind=Kind.RESPONSE, versions=(0, 3), flexible=2)
@dataclass(slots=True)
class CreatePartitionsResponse(Struct):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
