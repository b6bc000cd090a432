"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets.

They handle the offsets from which share groups read on.

The owner of a topic keeps a group's offsets of it, or the group's home keeps those of all topics, if a rule keeps the
group to one cluster. The clusters of a stitched log keep offsets each (`share_part_offsets`). Offsets are changed only
while the group has no members on any cluster. Requests name topics; the ids beside the names are the mesh's.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from services.gateway.requests.groups.group_home import ALIVE, claim_of, describe_patiently, find_home, may_have_shadows
from services.gateway.requests.groups.group_kinds import (
    COORDINATOR_MOVED,
    NOT_YET_KNOWN,
    SHARE,
    by_cluster,
    questions,
)
from services.gateway.requests.groups.group_topic_ids import show_topic_ids
from services.gateway.requests.groups.share_part_offsets import (
    NO_STATE,
    Topic,
    at,
    described,
    further_clusters,
    merged,
)
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
from services.gateway.requests.verdicts import Verdict, refusal
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from services.gateway.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from services.gateway.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from services.gateway.wire.schema import Struct

NOWHERE = Unreachable("", "no cluster knows yet where the group lives", never_sent=True)
NO_OWNER = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no rule leads from this topic to a cluster")


T = TypeVar("T", bound=Topic)
M = TypeVar("M", bound=Struct)


def _silent(outcome: Unreachable) -> Verdict:
    code = ErrorCode.UNSUPPORTED_VERSION if outcome.unsupported else ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refusal(code, f"cluster {outcome.cluster}: {outcome.reason}" if outcome.cluster else outcome.reason)


def _places(
    group_id: str, topics: Sequence[T], mesh: MeshView
) -> Generator[Command, Any, tuple[dict[str, list[T]], list[T]] | Unreachable]:
    """The topics by the cluster that keeps the group's offsets of them, and topics without an owner."""
    if len(mesh.table.clusters) <= 1 or not may_have_shadows(group_id, mesh):
        home = yield from find_home(group_id, mesh)
        return NOWHERE if home is None else ({home: [at(home, topic, mesh) for topic in topics]}, [])
    parts: dict[str, list[T]] = {}
    for topic in topics:
        for cluster in (mesh.table.cluster_of(topic.topic_name) or "", *further_clusters(topic.topic_name, mesh)):
            parts.setdefault(cluster, []).append(at(cluster, topic, mesh))
    homeless = parts.pop("", [])
    return parts, homeless


def _call(cluster: str, message: Struct, group_id: str, version: int) -> Call:
    return Call(cluster, message, version, Coordinator(group_id), Lane.CLIENT)


# --- DescribeShareGroupOffsets -------------------------------------------------------------------------------------


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeShareGroupOffsetsRequest)
    groups = []
    for group in message.groups:
        groups += [(yield from _described(group, request.version, mesh))]
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _described(
    group: DescribeShareGroupOffsetsRequestGroup, version: int, mesh: MeshView
) -> Generator[Command, Any, DescribeShareGroupOffsetsResponseGroup]:
    places = yield from _places(group.group_id, group.topics or [], mesh)
    if isinstance(places, Unreachable):
        return _undescribed(group, _silent(places))
    parts, homeless = places
    asked = {cluster: replace(group, topics=topics) for cluster, topics in parts.items()}
    if group.topics is None:
        asked = dict.fromkeys(parts or _with_share_groups(mesh), group)
    calls = [
        _call(cluster, DescribeShareGroupOffsetsRequest([part]), group.group_id, version)
        for cluster, part in asked.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, DescribeShareGroupOffsetsResponse)
    whole = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
    unknown: list[DescribeShareGroupOffsetsResponseGroup] = []
    told: list[tuple[str, DescribeShareGroupOffsetsResponseTopic]] = []
    for (cluster, part), outcome in zip(asked.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable) or not outcome.groups:
            yield Forget(cluster, Coordinator(group.group_id))
            return _undescribed(group, _silent(outcome if isinstance(outcome, Unreachable) else NOWHERE))
        [found] = outcome.groups
        if found.error_code in COORDINATOR_MOVED:
            yield Forget(cluster, Coordinator(group.group_id))
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            unknown.append(found)
            told += [(cluster, topic) for topic in _without_state(part.topics or [])]
        elif found.error_code:
            show_topic_ids(found.topics, mesh)
            return found
        else:
            owned = _owned(found.topics, cluster, mesh) if len(asked) > 1 else found.topics
            told += [(cluster, topic) for topic in owned]
    whole.topics = [*described(told, mesh), *_without_state(homeless)]
    show_topic_ids(whole.topics, mesh)
    return unknown[0] if unknown and len(unknown) == len(asked) else whole


def _with_share_groups(mesh: MeshView) -> list[str]:
    spoken = {name: mesh.clusters[name].versions for name in mesh.table.clusters}
    return [name for name, apis in spoken.items() if not apis or ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS in apis]


def _owned(
    topics: Iterable[DescribeShareGroupOffsetsResponseTopic], cluster: str, mesh: MeshView
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """A topic that has moved away leaves offsets behind, which are those of other records."""
    return [
        topic
        for topic in topics
        if cluster in (mesh.table.cluster_of(topic.topic_name), *further_clusters(topic.topic_name, mesh))
    ]


def _without_state(
    topics: Iterable[DescribeShareGroupOffsetsRequestTopic],
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic.topic_name,
            partitions=[
                DescribeShareGroupOffsetsResponsePartition(index, start_offset=NO_STATE) for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _undescribed(
    group: DescribeShareGroupOffsetsRequestGroup, failure: Verdict
) -> DescribeShareGroupOffsetsResponseGroup:
    code, text = failure
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=code, error_message=text)


# --- AlterShareGroupOffsets, DeleteShareGroupOffsets ---------------------------------------------------------------


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    return _change(request, mesh, AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, _not_altered)


def handle_delete(request: Request, mesh: MeshView) -> Plan:
    return _change(request, mesh, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, _not_deleted)


def _change(
    request: Request,
    mesh: MeshView,
    question: type[Any],
    response: type[AlterShareGroupOffsetsResponse] | type[DeleteShareGroupOffsetsResponse],
    refused: Callable[[Any, Verdict], Any],
) -> Plan:
    """Sends each cluster its topics. `refused` gives the result of a topic that no cluster has changed."""
    message = request.decode(question)
    places = yield from _changeable(message.group_id, message.topics, mesh)
    if isinstance(places, Verdict):
        return response(error_code=places[0], error_message=places[1])
    parts, homeless = places
    messages = {cluster: replace(message, topics=topics) for cluster, topics in parts.items()}
    answers = yield from _changed(messages, message.group_id, request.version, response, mesh)
    if (sole := _sole_failure(answers, homeless)) is not None:
        return response(error_code=sole[0], error_message=sole[1])
    results = [refused(topic, NO_OWNER) for topic in homeless]
    for cluster, answer in answers.items():
        if isinstance(answer, Verdict):
            results += [refused(topic, answer) for topic in parts[cluster]]
        else:
            results += answer.responses
    results = merged(results)
    show_topic_ids(results, mesh)
    return response(responses=results)


def _not_altered(topic: AlterShareGroupOffsetsRequestTopic, failure: Verdict) -> AlterShareGroupOffsetsResponseTopic:
    partitions = [AlterShareGroupOffsetsResponsePartition(p.partition_index, *failure) for p in topic.partitions]
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=partitions)


def _not_deleted(topic: DeleteShareGroupOffsetsRequestTopic, failure: Verdict) -> DeleteShareGroupOffsetsResponseTopic:
    code, text = failure
    return DeleteShareGroupOffsetsResponseTopic(topic.topic_name, error_code=code, error_message=text)


def _changeable(
    group_id: str, topics: Sequence[T], mesh: MeshView
) -> Generator[Command, Any, tuple[dict[str, list[T]], list[T]] | Verdict]:
    """As `_places`; the failure if the group has members, or may have them on a cluster that does not tell now."""
    places = yield from _places(group_id, topics, mesh)
    if isinstance(places, Unreachable):
        return _silent(places)
    parts, homeless = places
    if not topics and not parts:  # the group's home says what it thinks of a request without topics
        home = yield from find_home(group_id, mesh)
        return _silent(NOWHERE) if home is None else ({home: list(topics)}, [])
    if len(mesh.table.clusters) <= 1 or not may_have_shadows(group_id, mesh):
        return parts, homeless  # the coordinator knows all members
    found = by_cluster((yield from describe_patiently(questions(SHARE, group_id, mesh), mesh)))
    for cluster, group in found.items():
        if isinstance(group, Unreachable):
            return _silent(group)
        if group.error_code in NOT_YET_KNOWN:
            return _silent(Unreachable(cluster, words_of(group.error_code)))
        if claim_of(group)[0] == ALIVE:
            return refusal(ErrorCode.NON_EMPTY_GROUP, f"the group has members on cluster {cluster}")
    return parts, homeless


def _changed(
    messages: Mapping[str, Struct], group_id: str, version: int, cls: type[M], mesh: MeshView
) -> Generator[Command, Any, dict[str, M | Verdict]]:
    """The answer of each cluster, or why its part failed as a whole."""
    calls = [_call(cluster, message, group_id, version) for cluster, message in messages.items()]
    outcomes = yield from ask_fitting(mesh, calls, cls)
    answers: dict[str, M | Verdict] = {}
    for cluster, outcome in zip(messages, outcomes, strict=True):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(outcome, Unreachable) else _code_of(outcome)
        if code in COORDINATOR_MOVED:
            yield Forget(cluster, Coordinator(group_id))
        if isinstance(outcome, Unreachable):
            answers[cluster] = _silent(outcome)
        elif code:
            answers[cluster] = Verdict(code, _text_of(outcome) or words_of(code))
        else:
            answers[cluster] = outcome
    return answers


def _code_of(answer: Any) -> int:
    code: int = answer.error_code
    return code


def _text_of(answer: Any) -> str | None:
    text: str | None = answer.error_message
    return text


def _sole_failure(answers: Mapping[str, Struct | Verdict], homeless: Sequence[object]) -> Verdict | None:
    """The failure of the whole request: all parts failed by the same code."""
    failures = [answer for answer in answers.values() if isinstance(answer, Verdict)]
    alike = len({code for code, _ in failures}) == 1 and len(failures) == len(answers)
    return failures[0] if alike and not homeless else None
