"""OffsetFetch: each topic's offsets come from the cluster that owns the topic.

A cluster that does not answer fails its group's answer as a whole with COORDINATOR_LOAD_IN_PROGRESS, which every client
retries: an offset that is merely unknown for now must never look like one that was never committed. So does one whose
coordinator is nobody yet: clients find this gateway for every group, and can't look for a better one.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, cast

from services.gateway.requests.group_kinds import COORDINATOR_MOVED
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
    ask_all,
)
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

GROUPS_SINCE = 8
"""First version that asks for several groups at once."""
GROUP_ERROR_SINCE = 2
"""First version with an error of the group as a whole."""
NO_OFFSET = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(OffsetFetchRequest)
    if request.version >= GROUPS_SINCE:
        response = OffsetFetchResponse()
        for group in message.groups:
            response.groups += [(yield from _fetch(group, request.version, message.require_stable, mesh))]
        return response
    wanted = None
    if message.topics is not None:
        wanted = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in message.topics]
    group = OffsetFetchRequestGroup(group_id=message.group_id, topics=wanted)
    return _as_single(
        (yield from _fetch(group, request.version, message.require_stable, mesh)), wanted, request.version
    )


def _fetch(
    group: OffsetFetchRequestGroup, version: int, require_stable: bool, mesh: MeshView
) -> Generator[Command, Any, OffsetFetchResponseGroup]:
    """One group's offsets, from every cluster that owns one of the topics."""
    parts, answered = _split(group, mesh)
    coordinator = Coordinator(group.group_id)
    calls = {
        name: Call(name, _question(group, topics, version, require_stable), version, coordinator, Lane.CLIENT)
        for name, topics in parts.items()
    }
    found = yield from _ask(calls, version)
    found |= yield from _ask({name: calls[name] for name, part in found.items() if _has_moved(part)}, version)
    answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=answered)
    for name, part in found.items():
        if _has_moved(part):
            part.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        answer.error_code = answer.error_code or part.error_code
        # what a cluster kept from the time when a topic lived there is not where the group stands now
        answer.topics.extend(topic for topic in part.topics if mesh.table.cluster_of(topic.name) == name)
    if answer.error_code:
        answer.topics = []
    return answer


def _has_moved(part: OffsetFetchResponseGroup) -> bool:
    return part.error_code in COORDINATOR_MOVED


def _ask(calls: Mapping[str, Call], version: int) -> Generator[Command, Any, dict[str, OffsetFetchResponseGroup]]:
    """Each cluster's part of the group. A coordinator that has moved or is gone is looked for at the next call."""
    outcomes = yield from ask_all(list(calls.values()), OffsetFetchResponse)
    parts: dict[str, OffsetFetchResponseGroup] = {}
    for (name, call), outcome in zip(calls.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            parts[name] = OffsetFetchResponseGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            parts[name] = _as_group(outcome, version)
        if isinstance(outcome, Unreachable) or _has_moved(parts[name]):
            yield Forget(name, cast(Coordinator, call.target))
    return parts


def _split(
    group: OffsetFetchRequestGroup, mesh: MeshView
) -> tuple[dict[str, list[OffsetFetchRequestTopics] | None], list[OffsetFetchResponseTopics]]:
    if group.topics is None:
        return dict.fromkeys(mesh.table.clusters, None), []
    parts: dict[str, list[OffsetFetchRequestTopics]] = {}
    unrouted = []
    for topic in group.topics:
        owner = mesh.table.cluster_of(topic.name)
        if owner is None:
            unrouted.append(_nothing_committed(topic))
        else:
            parts.setdefault(owner, []).append(topic)
    return dict(parts), unrouted


def _nothing_committed(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    """What a broker answers for a topic that it does not have."""
    return OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="")
            for index in topic.partition_indexes
        ],
    )


def _question(
    group: OffsetFetchRequestGroup,
    topics: Sequence[OffsetFetchRequestTopics] | None,
    version: int,
    require_stable: bool,
) -> OffsetFetchRequest:
    if version >= GROUPS_SINCE:
        part = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=None if topics is None else list(topics),
        )
        return OffsetFetchRequest(groups=[part], require_stable=require_stable)
    single = None
    if topics is not None:
        single = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in topics]
    return OffsetFetchRequest(group_id=group.group_id, topics=single, require_stable=require_stable)


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
    """Before version 2 an error of the group stands in each partition."""
    codes = (p.error_code for topic in response.topics for p in topic.partitions)
    return next((code for code in codes if code in COORDINATOR_MOVED), ErrorCode.NONE)


def _as_single(
    group: OffsetFetchResponseGroup, wanted: Sequence[OffsetFetchRequestTopics] | None, version: int
) -> OffsetFetchResponse:
    topics = group.topics
    if group.error_code and version < GROUP_ERROR_SINCE:
        topics = [_nothing_committed(topic) for topic in wanted or ()]
        for topic in topics:
            for partition in topic.partitions:
                partition.error_code = group.error_code
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
