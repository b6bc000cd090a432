"""StreamsGroupHeartbeat (KIP-1071): to the coordinator on the group's home cluster, which gives out the tasks.

The coordinator creates the topology's internal topics (changelogs, repartitions) on its own cluster, and the
application reads and writes them by the rules of the mesh. So the rules must lead there, as for the topics that it
reads: what lives elsewhere is refused by name.
"""

from collections.abc import Generator, Iterable
from typing import Any

from services.gateway.requests.groups.group_heartbeat import beat, homeless, refused
from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.group_subscription import foreign_topics, matching_topics
from services.gateway.requests.plan import Command, MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
)

WAY_OUT = (
    "a streams group (group.protocol=streams) reads topics of one cluster; over several, use group.protocol=classic"
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(StreamsGroupHeartbeatRequest)
    group_id = message.group_id
    mesh.session.uses.groups.note(group_id)
    subtopologies = message.topology.subtopologies if message.topology is not None else []
    internal = list(_internal_topics(subtopologies))
    topics = (yield from _source_topics(subtopologies, mesh)) + internal
    home = yield from find_home(group_id, mesh, topics, near_topics=True)
    if home is None:
        return homeless(message, StreamsGroupHeartbeatResponse)
    refusal = foreign_topics(group_id, topics, home, WAY_OUT, mesh) or _unruled(group_id, internal, home, mesh)
    if refusal is not None:
        return refused(message, StreamsGroupHeartbeatResponse, ErrorCode.STREAMS_INVALID_TOPOLOGY, refusal)
    return (yield from beat(message, home, request.version, StreamsGroupHeartbeatResponse, mesh))


def _source_topics(subtopologies: Iterable[Subtopology], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """What the application reads that it has not made; nothing is asked in a mesh of one cluster."""
    topics: dict[str, None] = {}
    for subtopology in subtopologies:
        topics.update(dict.fromkeys(subtopology.source_topics))
        for regex in subtopology.source_topic_regex if len(mesh.table.clusters) > 1 else ():
            topics.update(dict.fromkeys((yield from matching_topics(regex, mesh))))
    return list(topics)


def _internal_topics(subtopologies: Iterable[Subtopology]) -> Iterable[str]:
    for subtopology in subtopologies:
        for topic in (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics):
            yield topic.name


def _unruled(group_id: str, internal: Iterable[str], home: str, mesh: MeshView) -> str | None:
    """The sentence for internal topics that no rule matches: the application would never see them."""
    unruled = sorted(topic for topic in internal if mesh.table.cluster_of(topic) is None)
    if not unruled:
        return None
    named = ", ".join(unruled)
    return f"group {group_id} lives on cluster {home}, but no rule leads there from its internal topics: {named}"
