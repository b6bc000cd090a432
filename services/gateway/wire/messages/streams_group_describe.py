"""StreamsGroupDescribe (key 89): topology, members and tasks of streams groups (KIP-1071)."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    boolean,
    group_name,
    group_names,
    int8,
    int16,
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


@message(api_key=89, kind=Kind.REQUEST, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class StreamsGroupDescribeRequest(Struct):
    group_ids: list[str] = group_names()
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean(since=1)


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
class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = topic_names()
    repartition_sink_topics: list[str] = topic_names()
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


@dataclass(slots=True)
class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable_since=0, default=None)


@dataclass(slots=True)
class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = int32s()


@dataclass(slots=True)
class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


@dataclass(slots=True)
class Member(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable_since=0, default=None)
    rack_id: str | None = string(nullable_since=0, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


@dataclass(slots=True)
class TopologyDescriptionNode(Struct):
    name: str = string(since=1)
    node_type: int = int8(since=1)
    source_topics: list[str] = topic_names(since=1)
    sink_topic: str | None = topic_name(since=1, nullable_since=1, default=None)
    stores: list[str] = strings(since=1)
    successors: list[str] = strings(since=1)


@dataclass(slots=True)
class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string(since=1)
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, since=1)


@dataclass(slots=True)
class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, since=1)


@dataclass(slots=True)
class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, since=1)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, since=1)


@dataclass(slots=True)
class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
    group_id: str = group_name()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable_since=0)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-0x8000_0000)
    topology_description: TopologyDescription | None = struct(TopologyDescription, since=1, nullable_since=1)
    topology_description_status: int = int8(since=1)
    """0: not asked for; 1: not stored; 2: the broker could not fetch it; 3: there."""
    assignor_name: str | None = string(since=1, nullable_since=1, default=None, ignorable=True)


@message(api_key=89, kind=Kind.RESPONSE, versions=(0, 1), flexible=0)
@dataclass(slots=True)
class StreamsGroupDescribeResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
