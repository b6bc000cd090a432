"""CreateTopics (key 19): new topics."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32s,
    message,
    string,
    topic_name,
    uuid,
)


@dataclass(slots=True)
class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = int32s()


@dataclass(slots=True)
class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable_since=0)


@dataclass(slots=True)
class CreatableTopic(Struct):
    name: str = topic_name()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(api_key=19, kind=Kind.REQUEST, versions=(0, 7), flexible=5)
@dataclass(slots=True)
class CreateTopicsRequest(Struct):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


@dataclass(slots=True)
class CreatableTopicConfigs(Struct):
    name: str = string(since=5)
    value: str | None = string(since=5, nullable_since=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(since=5, default=-1, ignorable=True)
    is_sensitive: bool = boolean(since=5)


@dataclass(slots=True)
class CreatableTopicResult(Struct):
    name: str = topic_name()
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable_since=1, ignorable=True)
    topic_config_error_code: int = int16(since=5, ignorable=True, tag=0)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


@message(api_key=19, kind=Kind.RESPONSE, versions=(0, 7), flexible=5)
@dataclass(slots=True)
class CreateTopicsResponse(Struct):
    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
