"""StreamsGroupHeartbeat (key 88): a member of a streams group (KIP-1071) says what it runs, and gets its tasks."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    group_name,
    int8,
    int16,
    int16s,
    int32,
    int32s,
    int64,
    message,
    string,
    strings,
    struct,
    topic_name,
    topic_names,
    uint16,
)


@dataclass(slots=True)
class KeyValue(Struct):
    key: str = string()
    value: str = string()


@dataclass(slots=True)
class TopicInfo(Struct):
    name: str = topic_name()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


@dataclass(slots=True)
class CopartitionGroup(Struct):
    source_topics: list[int] = int16s()
    source_topic_regex: list[int] = int16s()
    repartition_source_topics: list[int] = int16s()


@dataclass(slots=True)
class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = topic_names()
    source_topic_regex: list[str] = strings()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = topic_names()
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


@dataclass(slots=True)
class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


@dataclass(slots=True)
class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@message(api_key=88, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class StreamsGroupHeartbeatRequest(Struct):
    group_id: str = group_name()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable_since=0)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    process_id: str | None = string(nullable_since=0, default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable_since=0, default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable_since=0, default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable_since=0, default=None)
    shutdown_application: bool = boolean()


@dataclass(slots=True)
class Status(Struct):
    status_code: int = int8()
    status_detail: str = string()


@dataclass(slots=True)
class TopicPartition(Struct):
    topic: str = topic_name()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


@message(api_key=88, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class StreamsGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag_legacy: int = int32(until=0)
    task_offset_interval_ms: int = int32()
    acceptable_recovery_lag: int = int64(since=1, default=-1, ignorable=True)
    status: list[Status] | None = array(Status, nullable_since=0)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable_since=0, default=None)
    topology_description_required: bool = boolean(since=1)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable_since=0, default=None
    )
