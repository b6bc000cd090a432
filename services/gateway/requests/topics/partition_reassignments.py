"""AlterPartitionReassignments and ListPartitionReassignments: replicas move between the brokers of their topic's owner.

Replicas are named by the numbers of real brokers (`real_brokers`), in requests and in answers. A broker of another
cluster is refused by name: replicas of one topic are never on two clusters. Kafka's tools ask which partitions are
being reassigned before they describe topics. So a list for certain topics skips a cluster that does not answer, with a
line in the log. A list of all topics reports that a cluster is missing.
"""

from dataclasses import replace

import structlog

from services.gateway.requests import real_brokers
from services.gateway.requests.clusters.everywhere import ask_each
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Controller, MeshView, Plan, Request, Unreachable, admin_timeout_s
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, joined, refusal, silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

log = structlog.get_logger(__name__)


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterPartitionReassignmentsRequest)
    verdicts: dict[tuple[str, int], Verdict] = {}
    parts: dict[str, list[ReassignableTopic]] = {}
    for topic in message.topics:
        owner = mesh.table.cluster_of(topic.name)
        passed = []
        for partition in topic.partitions:
            named = _as_the_owner_names_it(topic.name, partition, owner, mesh)
            if isinstance(named, Verdict):
                verdicts[topic.name, partition.partition_index] = named
            else:
                passed.append(named)
        if owner is not None and passed:
            parts.setdefault(owner, []).append(ReassignableTopic(topic.name, passed))
    outcomes = yield from ask_each(
        mesh,
        {owner: replace(message, topics=topics) for owner, topics in parts.items()},
        request.version,
        AlterPartitionReassignmentsResponse,
        Controller(),
        timeout_s=admin_timeout_s(message.timeout_ms),
    )
    for owner, outcome in outcomes.items():
        verdicts |= _verdicts(parts[owner], outcome)
    responses = []
    for topic in message.topics:
        answers = [
            ReassignablePartitionResponse(p.partition_index, *verdicts[topic.name, p.partition_index])
            for p in topic.partitions
        ]
        responses.append(ReassignableTopicResponse(topic.name, answers))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change, error_message=None, responses=responses
    )


def handle_list(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListPartitionReassignmentsRequest)
    outcomes = yield from ask_each(
        mesh,
        _questions(message, mesh),
        request.version,
        ListPartitionReassignmentsResponse,
        Controller(),
        timeout_s=admin_timeout_s(message.timeout_ms),
    )
    verdicts: dict[str, Verdict] = {}
    topics = []
    for cluster, outcome in outcomes.items():
        if isinstance(outcome, Unreachable):
            verdicts[cluster] = silence(outcome)
            continue
        verdicts[cluster] = Verdict(outcome.error_code, outcome.error_message)
        topics += [_shown(topic, cluster, mesh) for topic in outcome.topics if _is_shown(topic, cluster, mesh)]
    code, text = joined(verdicts) if verdicts else Verdict(ErrorCode.NONE)
    if code and message.topics is not None:
        log.warning("a list of reassignments lacks clusters", reason=text)
        code, text = Verdict(ErrorCode.NONE)
    return ListPartitionReassignmentsResponse(error_code=code, error_message=text, topics=topics)


def _as_the_owner_names_it(
    topic: str, partition: ReassignablePartition, owner: str | None, mesh: MeshView
) -> ReassignablePartition | Verdict:
    if owner is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no forwarding rule matches topic {topic!r}")
    if partition.replicas is None:
        return partition
    ids = real_brokers.own_ids(partition.replicas, partition.partition_index, owner, mesh)
    return ids if isinstance(ids, Verdict) else replace(partition, replicas=ids)


def _verdicts(
    topics: list[ReassignableTopic], outcome: AlterPartitionReassignmentsResponse | Unreachable
) -> dict[tuple[str, int], Verdict]:
    otherwise = LEFT_OUT
    if isinstance(outcome, Unreachable):
        otherwise = silence(outcome)
    elif outcome.error_code:
        otherwise = Verdict(outcome.error_code, outcome.error_message)
    verdicts = {(topic.name, p.partition_index): otherwise for topic in topics for p in topic.partitions}
    if not isinstance(outcome, Unreachable):
        for topic in outcome.responses:
            for p in topic.partitions:
                verdicts[topic.name, p.partition_index] = Verdict(p.error_code, p.error_message)
    return verdicts


def _questions(
    message: ListPartitionReassignmentsRequest, mesh: MeshView
) -> dict[str, ListPartitionReassignmentsRequest]:
    if message.topics is None:
        return dict.fromkeys(mesh.table.clusters, message)
    parts: dict[str, list[ListPartitionReassignmentsTopics]] = {}
    for topic in message.topics:
        owner = mesh.table.cluster_of(topic.name)
        if owner is not None:
            parts.setdefault(owner, []).append(topic)
    return {owner: replace(message, topics=topics) for owner, topics in parts.items()}


def _is_shown(topic: OngoingTopicReassignment, cluster: str, mesh: MeshView) -> bool:
    return not is_internal(topic.name) and mesh.table.cluster_of(topic.name) == cluster


def _shown(topic: OngoingTopicReassignment, cluster: str, mesh: MeshView) -> OngoingTopicReassignment:
    def numbers(ids: list[int]) -> list[int]:
        return [real_brokers.number_of(Place(cluster, each), mesh) for each in ids]

    partitions = [
        OngoingPartitionReassignment(
            p.partition_index, numbers(p.replicas), numbers(p.adding_replicas), numbers(p.removing_replicas)
        )
        for p in topic.partitions
    ]
    return OngoingTopicReassignment(topic.name, partitions)
