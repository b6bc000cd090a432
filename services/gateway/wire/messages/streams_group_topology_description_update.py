"""StreamsGroupTopologyDescriptionUpdate (key 93): a member describes its topology, for people to see (KIP-1331)."""

from dataclasses import dataclass

from services.gateway.wire.schema import (
    Kind,
    Struct,
    array,
    group_name,
    int8,
    int16,
    int32,
    message,
    string,
    strings,
    struct,
    topic_name,
    topic_names,
)


@dataclass(slots=True)
class TopologyDescriptionNode(Struct):
    name: str = string()
    node_type: int = int8()
    source_topics: list[str] = topic_names()
    sink_topic: str | None = topic_name(nullable_since=0, default=None)
    stores: list[str] = strings()
    successors: list[str] = strings()


@dataclass(slots=True)
class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string()
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode)


@dataclass(slots=True)
class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode)


@dataclass(slots=True)
class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore)


@message(api_key=93, kind=Kind.REQUEST, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class StreamsGroupTopologyDescriptionUpdateRequest(Struct):
    group_id: str = group_name()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = struct(TopologyDescription)


@message(api_key=93, kind=Kind.RESPONSE, versions=(0, 0), flexible=0)
@dataclass(slots=True)
class StreamsGroupTopologyDescriptionUpdateResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0, default=None)
