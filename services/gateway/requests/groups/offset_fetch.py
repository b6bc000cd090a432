"""OffsetFetch: each topic's offsets come from the cluster that owns the topic.

If a rule gives the group shadow topics, its home has the offsets of all topics. A cluster that does not answer fails
its group's answer as a whole with COORDINATOR_LOAD_IN_PROGRESS, which every client retries. An offset that is merely
unknown for now must never look like an offset that was never committed. A cluster without a coordinator for the group
fails the answer in the same way. Clients find this gateway for every group, so they can't look for a better
coordinator. A client that asks for all topics (a tool) gets the other clusters' offsets. For each partition of the
topics that the silent cluster has shown before, the client gets that error.

A member of a newer kind of group names itself, and its coordinator checks the member's epoch. Only the group's home
knows the member: the other clusters get the question without a member. A cluster on which the group was before would
answer UNKNOWN_MEMBER_ID.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.gateway.requests.groups.group_home import find_home, keeps_all_offsets, offsets_place
from services.gateway.requests.groups.group_kinds import COORDINATOR_MOVED
from services.gateway.requests.groups.group_topic_ids import name_topics
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
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.versions import ask_fitting, highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_SINCE = 2
"""First version with an error of the group as a whole, and with a way to ask for all topics."""
STABLE_SINCE = 7
GROUPS_SINCE = 8
"""First version that can ask for several groups."""
IDS_SINCE = 10
"""First version that has ids in the place of the topics' names."""
NO_OFFSET = -1
NO_EPOCH = -1
"""The member epoch of a question without a member."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(OffsetFetchRequest)
    if request.version >= IDS_SINCE:
        return (yield from _by_id(message, mesh))
    if request.version >= GROUPS_SINCE:
        groups = yield from _fetch(message.groups, request.version, message.require_stable, mesh)
        return OffsetFetchResponse(groups=groups)
    wanted = None
    if message.topics is not None:
        wanted = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in message.topics]
    single = OffsetFetchRequestGroup(group_id=message.group_id, topics=wanted)
    [group] = yield from _fetch([single], request.version, message.require_stable, mesh)
    return _as_single(group, wanted, request.version)


def _by_id(message: OffsetFetchRequest, mesh: MeshView) -> Generator[Command, Any, OffsetFetchResponse]:
    """Fetches by name the topics that the client names by id; ids that no cluster knows get UNKNOWN_TOPIC_ID.

    While a cluster is unreachable, unknown ids may be its own. Then the client has to ask again for the group, because
    consumers end upon an unknown id.
    """
    away = any(not mesh.clusters[cluster].available for cluster in mesh.table.clusters)
    strange: list[list[OffsetFetchRequestTopics]] = []
    for group in message.groups:
        asked = group.topics
        if asked is not None:
            group.topics = yield from name_topics(asked, mesh)
        strange.append([topic for topic in asked or () if not topic.name])
    groups = yield from _fetch(message.groups, IDS_SINCE - 1, message.require_stable, mesh)
    for answer, unknown in zip(groups, strange, strict=True):
        if unknown and away:
            answer.error_code, answer.topics = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        for topic in answer.topics:
            topic.topic_id = mesh_topic_id(mesh.mesh_id, topic.name)
        if not answer.error_code:
            answer.topics += [_nothing_committed(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in unknown]
    return OffsetFetchResponse(groups=groups)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one group that one cluster is asked for."""

    group: OffsetFetchRequestGroup
    cluster: str
    topics: Sequence[OffsetFetchRequestTopics] | None
    version: int
    require_stable: bool
    knows_members: bool
    """Whether the cluster is the group's home."""

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(self.group.group_id)

    def call(self) -> Call:
        group = self.group if self.knows_members else replace(self.group, member_id=None, member_epoch=NO_EPOCH)
        question = _question(group, self.topics, self.version, self.require_stable)
        return Call(self.cluster, question, self.version, self.coordinator, Lane.CLIENT)


def _fetch(
    groups: Sequence[OffsetFetchRequestGroup], version: int, require_stable: bool, mesh: MeshView
) -> Generator[Command, Any, list[OffsetFetchResponseGroup]]:
    """Each group's offsets, from every cluster that keeps some of them; all clusters are asked at the same time."""
    parts: list[_Part] = []
    answers: list[OffsetFetchResponseGroup] = []
    for group in groups:
        places, answered = _split(group, mesh)
        home = (yield from find_home(group.group_id, mesh)) if group.member_id else None
        answers.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=answered))
        for cluster, topics in places.items():
            spoken = highest_version(mesh, cluster, ApiKey.OFFSET_FETCH, version)
            parts.append(_Part(group, cluster, topics, spoken, require_stable, knows_members=cluster == home))
    found = yield from _ask(parts, mesh)
    moved = [index for index, answer in enumerate(found) if _has_moved(answer)]
    again = yield from _ask([parts[index] for index in moved], mesh)
    for index, answer in zip(moved, again, strict=True):
        found[index] = answer
    by_group = {id(group): answer for group, answer in zip(groups, answers, strict=True)}
    for part, told in zip(parts, found, strict=True):
        _add(by_group[id(part.group)], part, told, mesh)
    for answer in answers:
        if answer.error_code:
            answer.topics = []
    return answers


def _add(answer: OffsetFetchResponseGroup, part: _Part, told: OffsetFetchResponseGroup, mesh: MeshView) -> None:
    if _has_moved(told):
        told.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if told.error_code and part.topics is None and not mesh.clusters[part.cluster].available:
        shown = list(_shown_last(part, mesh))
        if shown:
            answer.topics += shown
            return
    answer.error_code = answer.error_code or told.error_code
    # the offsets that a cluster kept from an earlier time, when the topic was on it, are not the group's offsets now
    group_id = answer.group_id
    answer.topics += [topic for topic in told.topics if offsets_place(group_id, topic.name, mesh) == part.cluster]


def _shown_last(part: _Part, mesh: MeshView) -> Iterable[OffsetFetchResponseTopics]:
    """The topics of a cluster that does not answer, without offsets."""
    for name, known in mesh.clusters[part.cluster].topics.items():
        if not is_internal(name) and offsets_place(part.group.group_id, name, mesh) == part.cluster:
            topic = OffsetFetchRequestTopics(name=name, partition_indexes=list(range(len(known.leaders))))
            yield _nothing_committed(topic, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _has_moved(part: OffsetFetchResponseGroup) -> bool:
    return part.error_code in COORDINATOR_MOVED


def _ask(parts: Sequence[_Part], mesh: MeshView) -> Generator[Command, Any, list[OffsetFetchResponseGroup]]:
    """Each part's answer. A coordinator that has moved or is gone is looked up again at the next call."""
    outcomes = yield from ask_fitting(mesh, [part.call() for part in parts], OffsetFetchResponse)
    answers: list[OffsetFetchResponseGroup] = []
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            answers.append(OffsetFetchResponseGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            answers.append(_as_group(outcome, part.version))
        if isinstance(outcome, Unreachable) or _has_moved(answers[-1]):
            yield Forget(part.cluster, part.coordinator)
    return answers


def _split(
    group: OffsetFetchRequestGroup, mesh: MeshView
) -> tuple[dict[str, Sequence[OffsetFetchRequestTopics] | None], list[OffsetFetchResponseTopics]]:
    if group.topics is None:
        home = keeps_all_offsets(group.group_id, mesh)
        return dict.fromkeys([home] if home is not None else mesh.table.clusters, None), []
    parts: dict[str, list[OffsetFetchRequestTopics]] = {}
    unrouted = []
    for topic in group.topics:
        place = offsets_place(group.group_id, topic.name, mesh)
        if place is None:
            unrouted.append(_nothing_committed(topic))
        else:
            parts.setdefault(place, []).append(topic)
    return dict(parts), unrouted


def _nothing_committed(topic: OffsetFetchRequestTopics, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponseTopics:
    """The answer of a broker for a topic that it does not have."""
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )


def _question(
    group: OffsetFetchRequestGroup,
    topics: Sequence[OffsetFetchRequestTopics] | None,
    version: int,
    require_stable: bool,
) -> OffsetFetchRequest:
    stable = require_stable and version >= STABLE_SINCE
    if version >= GROUPS_SINCE:
        part = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=None if topics is None else list(topics),
        )
        return OffsetFetchRequest(groups=[part], require_stable=stable)
    single = None
    if topics is not None:
        single = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetchRequest(group_id=group.group_id, topics=single, require_stable=stable)


def _as_group(response: OffsetFetchResponse, version: int) -> OffsetFetchResponseGroup:
    if version >= GROUPS_SINCE:
        return response.groups[0]
    return OffsetFetchResponseGroup(
        error_code=response.error_code or _first_group_error(response),
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in response.topics
        ],
    )


def _first_group_error(response: OffsetFetchResponse) -> int:
    """Before version 2 an answer holds the error of the group in each partition."""
    codes = (p.error_code for topic in response.topics for p in topic.partitions)
    return next((code for code in codes if code in COORDINATOR_MOVED), ErrorCode.NONE)


def _as_single(
    group: OffsetFetchResponseGroup, wanted: Sequence[OffsetFetchRequestTopics] | None, version: int
) -> OffsetFetchResponse:
    topics = group.topics
    if group.error_code and version < GROUP_ERROR_SINCE:
        topics = [_nothing_committed(topic, ErrorCode(group.error_code)) for topic in wanted or ()]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
