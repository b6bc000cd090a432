"""OffsetCommit: each topic's offsets go to the cluster that owns the topic, under the group's own name.

If a rule gives the group shadow topics, its home keeps the offsets of all topics instead: the whole commit is one part,
at home.

Theory of operation
1. Offsets are on the same cluster as their records, so lag tools on each cluster are right and the mesh stores nothing.
2. The group's home checks a member's commit first: the gateway commits the part that belongs there, or sends a
   heartbeat if the whole commit is foreign. A member of a newer kind of group is looked up in the group's description
   instead. Its heartbeats carry the assignment, which must not get lost on the way to the member. An error that fences
   the member there (unknown member, old generation) fails the whole commit.
3. Foreign parts follow as simple commits (generation -1, no member), which a broker accepts while its copy of the group
   has no members. Versions 2 to 4 carry a retention of their own. The group never has members on a foreign cluster, so
   its offsets would otherwise expire there although the group is alive at home.
4. A topic whose move is undecided (`MeshView.undecided`) is answered with an error that every client retries.
5. A commit without a member (manual assignment, tools) goes to the owners as it is.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from services.gateway.requests.groups.group_home import find_home, keeps_all_offsets, offsets_place
from services.gateway.requests.groups.group_kinds import (
    CONSUMER,
    COORDINATOR_MOVED,
    STREAMS,
    GroupKind,
    Question,
    describe,
)
from services.gateway.requests.groups.group_topic_ids import name_topics
from services.gateway.requests.groups.partition_errors import PartitionErrors
from services.gateway.requests.groups.shadow_topics import shadowed
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
    ask,
)
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.traffic.calls import named_group
from services.gateway.requests.versions import ask_fitting, highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

RETENTION_MS = 90 * 24 * 3600 * 1000
"""How long a foreign cluster keeps an offset after its last commit: longer than any consumer pauses."""
FOREIGN_VERSION = 4
"""The last version with a retention of its own; brokers from 0.11 to 4.3 support it."""
HEARTBEAT_VERSION = 3
IDS_SINCE = 10
"""First version that has ids in the place of the topics' names."""
WITH_EPOCHS: Sequence[GroupKind[Any]] = (CONSUMER, STREAMS)
GROUP_ERRORS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""Errors about the member or its group, not about a partition."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Commit:
    """One commit in progress: its parts by cluster, and the error code of each partition as it becomes known."""

    message: OffsetCommitRequest
    version: int
    parts: dict[str, list[OffsetCommitRequestTopic]] = field(default_factory=dict)
    errors: PartitionErrors = field(default_factory=PartitionErrors)

    def answer(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=p.partition_index,
                            error_code=self.errors.of(topic.name, p.partition_index),
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in self.message.topics
            ]
        )


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(OffsetCommitRequest)
    named_group(mesh, message.group_id)
    if request.version < IDS_SINCE:
        return (yield from _committed(message, request.version, mesh))
    known = yield from name_topics(message.topics, mesh)
    strange = [topic for topic in message.topics if not topic.name]
    response = yield from _committed(replace(message, topics=known), IDS_SINCE - 1, mesh)
    for topic in response.topics:
        topic.topic_id = mesh_topic_id(mesh.mesh_id, topic.name)
    unknown = _Commit(replace(message, topics=strange), request.version)
    unknown.errors.settle(strange, ErrorCode.UNKNOWN_TOPIC_ID)
    response.topics += unknown.answer().topics
    return response


def _committed(
    message: OffsetCommitRequest, version: int, mesh: MeshView
) -> Generator[Command, Any, OffsetCommitResponse]:
    """The answer in a version that names topics."""
    commit = _Commit(message, version)
    for topic in message.topics:
        place = offsets_place(message.group_id, topic.name, mesh)
        if mesh.undecided is not None and mesh.undecided(topic.name):
            commit.errors.settle([topic], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif place is None:
            commit.errors.settle([topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            commit.parts.setdefault(place, []).append(topic)
    yield from _see_to_shadows(commit, mesh)
    if message.generation_id_or_member_epoch < 0 and not message.member_id:
        yield from _send(commit, {name: _own(commit, part) for name, part in commit.parts.items()}, mesh)
        return commit.answer()

    home = yield from find_home(message.group_id, mesh)
    if home is None:
        commit.errors.settle(message.topics, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return commit.answer()
    fenced = yield from _at_home(commit, home, mesh)
    foreign = {name: part for name, part in commit.parts.items() if name != home}
    if fenced is not None:
        for part in foreign.values():
            commit.errors.settle(part, fenced)
    elif foreign:
        yield from _send(commit, {name: _simple(commit, part) for name, part in foreign.items()}, mesh)
        _explain(commit, foreign)
    return commit.answer()


def _see_to_shadows(commit: _Commit, mesh: MeshView) -> Generator[Command, Any, None]:
    """Has a home that keeps all offsets create missing shadow topics; no call if it is known to have all topics."""
    home = keeps_all_offsets(commit.message.group_id, mesh)
    if home is None:
        return
    count = mesh.clusters[home].partition_count
    missing = [
        topic.name
        for topic in commit.parts.get(home, ())
        if max((p.partition_index for p in topic.partitions), default=-1) >= (count(topic.name) or 0)
    ]
    if missing:
        fault = yield from shadowed(missing, home, mesh)
        if fault is not None:
            log.warning(
                "shadow topics could not be made", group=commit.message.group_id, cluster=home, reason=fault.reason
            )


def _at_home(commit: _Commit, home: str, mesh: MeshView) -> Generator[Command, Any, int | None]:
    """Commits the part of the group's home; returns the error that bars all other parts too, if any."""
    part = commit.parts.get(home)
    if part is None:
        return (yield from member_fault(commit.message, home, mesh))
    yield from _send(commit, {home: _own(commit, part)}, mesh, unreachable=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    codes = {commit.errors[topic.name, p.partition_index] for topic in part for p in topic.partitions}
    return next((code for code in codes if code in GROUP_ERRORS), None)


def member_fault(message: OffsetCommitRequest, home: str, mesh: MeshView) -> Generator[Command, Any, int | None]:
    """Checks the member and its generation with the coordinator; returns the error that bars the commit, if any."""
    coordinator = Coordinator(message.group_id)
    heartbeat = HeartbeatRequest(
        group_id=message.group_id,
        generation_id=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
    )
    version = highest_version(mesh, home, ApiKey.HEARTBEAT, HEARTBEAT_VERSION)
    outcome = yield from ask(Call(home, heartbeat, version, coordinator, Lane.CLIENT), HeartbeatResponse)
    if isinstance(outcome, Unreachable):
        yield Forget(home, coordinator)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if outcome.error_code in COORDINATOR_MOVED:
        yield Forget(home, coordinator)
    # a rebalance is under way and the member belongs to it: brokers accept its commits until the next generation
    if outcome.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        return None
    if outcome.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        return (yield from _standing(message, home, mesh))
    return outcome.error_code


def _standing(message: OffsetCommitRequest, home: str, mesh: MeshView) -> Generator[Command, Any, int | None]:
    """The same check for a member that sends no classic heartbeats."""
    asked = [Question(kind, home, message.group_id) for kind in WITH_EPOCHS]
    for group in (yield from describe(asked, mesh)).values():
        for member in () if isinstance(group, Unreachable) else group.members:
            if member.member_id == message.member_id:
                current = member.member_epoch == message.generation_id_or_member_epoch
                return None if current else ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.UNKNOWN_MEMBER_ID


def _send(
    commit: _Commit,
    messages: dict[str, tuple[OffsetCommitRequest, int]],
    mesh: MeshView,
    unreachable: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
) -> Generator[Command, Any, None]:
    """Sends a message to each cluster; one that can't be reached fails its part with `unreachable`, to be retried."""
    coordinator = Coordinator(commit.message.group_id)
    calls = [Call(name, part, version, coordinator, Lane.CLIENT) for name, (part, version) in messages.items()]
    outcomes = yield from ask_fitting(mesh, calls, OffsetCommitResponse)
    for (name, (part, _)), outcome in zip(messages.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            commit.errors.settle(part.topics, ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else unreachable)
            yield Forget(name, coordinator)
            continue
        commit.errors.take(outcome.topics)
        if any(p.error_code in COORDINATOR_MOVED for topic in outcome.topics for p in topic.partitions):
            yield Forget(name, coordinator)


def _own(commit: _Commit, part: list[OffsetCommitRequestTopic]) -> tuple[OffsetCommitRequest, int]:
    return replace(commit.message, topics=part), commit.version


def _simple(commit: _Commit, part: list[OffsetCommitRequestTopic]) -> tuple[OffsetCommitRequest, int]:
    topics = [
        OffsetCommitRequestTopic(
            name=topic.name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=p.partition_index,
                    committed_offset=p.committed_offset,
                    committed_metadata=p.committed_metadata,
                )
                for p in topic.partitions
            ],
        )
        for topic in part
    ]
    group_id = commit.message.group_id
    return OffsetCommitRequest(group_id=group_id, retention_time_ms=RETENTION_MS, topics=topics), FOREIGN_VERSION


def _explain(commit: _Commit, foreign: dict[str, list[OffsetCommitRequestTopic]]) -> None:
    """Replaces UNKNOWN_MEMBER_ID of a foreign cluster, which refuses simple commits while the group has members there.

    In that case somebody uses the group on that cluster directly.

    The home has accepted the member, so the member must not see UNKNOWN_MEMBER_ID and join again for ever.
    """
    for name, part in foreign.items():
        places = [(topic.name, p.partition_index) for topic in part for p in topic.partitions]
        refused = [place for place in places if commit.errors.get(place) == ErrorCode.UNKNOWN_MEMBER_ID]
        for place in refused:
            commit.errors[place] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if refused:
            log.warning("group has live members directly on a cluster", group=commit.message.group_id, cluster=name)
