"""StreamsGroupHeartbeat (KIP-1071): to the coordinator on the group's home cluster, which gives out the tasks.

The coordinator creates the topology's internal topics (changelogs, repartitions) on its own cluster, and the
application reads and writes them by the rules of the mesh. So the rules must route these topics there, and the topics
that it reads too: a topic of another cluster is refused by name.
"""

from collections.abc import Generator, Iterable
from typing import Any

from services.gateway.requests.groups.group_heartbeat import beat, homeless, refused
from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.groups.group_subscription import foreign_topics, matching_topics
from services.gateway.requests.plan import (
    Call,
    Command,
    Coordinator,
    Forget,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
)
from services.gateway.requests.traffic.calls import named_group
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
)
from services.gateway.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

LONG_LAG_SINCE = 1
"""First version with a long for the acceptable recovery lag; an older home fills the earlier field."""
WAY_OUT = (
    "a streams group (group.protocol=streams) reads topics of one cluster; over several, use group.protocol=classic"
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(StreamsGroupHeartbeatRequest)
    group_id = message.group_id
    named_group(mesh, group_id)
    subtopologies = message.topology.subtopologies if message.topology is not None else []
    internal = list(_internal_topics(subtopologies))
    topics = (yield from _source_topics(subtopologies, mesh)) + internal
    home = yield from find_home(group_id, mesh, topics, near_topics=True)
    if home is None:
        return homeless(message, StreamsGroupHeartbeatResponse)
    refusal = foreign_topics(group_id, topics, home, WAY_OUT, mesh) or _unruled(group_id, internal, home, mesh)
    if refusal is not None:
        return refused(message, StreamsGroupHeartbeatResponse, ErrorCode.STREAMS_INVALID_TOPOLOGY, refusal)
    answer = yield from beat(message, home, request.version, StreamsGroupHeartbeatResponse, mesh)
    if request.version >= LONG_LAG_SINCE and answer.acceptable_recovery_lag_legacy:
        answer.acceptable_recovery_lag = answer.acceptable_recovery_lag_legacy
        answer.acceptable_recovery_lag_legacy = 0
    return answer


def handle_description(request: Request, mesh: MeshView) -> Plan:
    """StreamsGroupTopologyDescriptionUpdate (KIP-1331): goes to the group's home, with the topics' names there."""
    message = request.decode(StreamsGroupTopologyDescriptionUpdateRequest)
    home = yield from find_home(message.group_id, mesh)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if home is None:
        return _undescribed(code, "no cluster knows yet where the group lives")
    coordinator = Coordinator(message.group_id)
    call = Call(home, message, request.version, coordinator, Lane.CLIENT)
    [outcome] = yield from ask_fitting(mesh, [call], StreamsGroupTopologyDescriptionUpdateResponse)
    if isinstance(outcome, Unreachable):
        yield Forget(home, coordinator)
        return _undescribed(ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else code, outcome.reason)
    if outcome.error_code in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
    return outcome


def _undescribed(code: ErrorCode, text: str) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=worded(code, text))


def _source_topics(subtopologies: Iterable[Subtopology], mesh: MeshView) -> Generator[Command, Any, list[str]]:
    """Topics that the application reads but has not made; a mesh of one cluster needs no call."""
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
    """The sentence of the refusal for internal topics that no rule matches: the application would never see them."""
    unruled = sorted(topic for topic in internal if mesh.table.cluster_of(topic) is None)
    if not unruled:
        return None
    named = ", ".join(unruled)
    return f"group {group_id} lives on cluster {home}, but no rule leads there from its internal topics: {named}"
