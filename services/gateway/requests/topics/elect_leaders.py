"""ElectLeaders: the controller of each topic's owner elects the leaders of its partitions.

An election of all partitions covers all partitions that the mesh shows; other partitions of a cluster are left alone.
As on one cluster, such an answer leaves out partitions that needed no election.
"""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.plan import (
    Call,
    Command,
    Controller,
    Lane,
    MeshView,
    Plan,
    Request,
    Unreachable,
    admin_timeout_s,
    ask_all,
)
from services.gateway.requests.topic_ids import HIGHEST_METADATA
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, refusal, silence
from services.gateway.requests.versions import ask_fitting, highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from services.gateway.wire.messages.metadata import MetadataRequest, MetadataResponse

TOP_LEVEL_ERROR_SINCE = 1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ElectLeadersRequest)
    everything = message.topic_partitions is None
    silent: list[Unreachable] = []
    wanted = message.topic_partitions
    if wanted is None:
        wanted, silent = yield from _all_partitions(mesh)
    verdicts: dict[tuple[str, int], Verdict] = {}
    parts: dict[str, list[TopicPartitions]] = {}
    for topic in wanted:
        owner = mesh.table.cluster_of(topic.topic)
        if owner is None:
            text = f"no forwarding rule matches topic {topic.topic!r}"
            verdicts |= {
                (topic.topic, p): refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text) for p in topic.partitions
            }
        else:
            parts.setdefault(owner, []).append(topic)
    calls = [
        Call(
            cluster,
            ElectLeadersRequest(message.election_type, topics, message.timeout_ms),
            request.version,
            Controller(),
            Lane.CLIENT,
            timeout_s=admin_timeout_s(message.timeout_ms),
        )
        for cluster, topics in parts.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, ElectLeadersResponse)
    for (cluster, topics), outcome in zip(parts.items(), outcomes, strict=True):
        verdicts |= _verdicts(cluster, topics, outcome)
    answer = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic.topic, results)
            for topic in wanted
            if (results := _results(topic, verdicts, everything=everything))
        ]
    )
    if silent and request.version >= TOP_LEVEL_ERROR_SINCE:
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT
    return answer


def _all_partitions(mesh: MeshView) -> Generator[Command, Any, tuple[list[TopicPartitions], list[Unreachable]]]:
    """All partitions that clients see, and the clusters that did not report their partitions."""
    clusters = list(mesh.table.clusters)
    calls = [
        Call(
            cluster,
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            highest_version(mesh, cluster, ApiKey.METADATA, HIGHEST_METADATA),
        )
        for cluster in clusters
    ]
    outcomes = yield from ask_all(calls, MetadataResponse)
    found = []
    silent = []
    for cluster, outcome in zip(clusters, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            silent.append(outcome)
            continue
        for topic in outcome.topics:
            name = topic.name
            if name and not is_internal(name) and mesh.table.cluster_of(name) == cluster:
                found.append(TopicPartitions(name, [p.partition_index for p in topic.partitions]))
    return found, silent


def _verdicts(
    cluster: str, topics: list[TopicPartitions], outcome: ElectLeadersResponse | Unreachable
) -> dict[tuple[str, int], Verdict]:
    if isinstance(outcome, Unreachable):
        otherwise = silence(outcome)
    elif outcome.error_code:
        otherwise = refusal(outcome.error_code, f"cluster {cluster} refuses the election")
    else:
        otherwise = LEFT_OUT
    verdicts = {(topic.topic, partition): otherwise for topic in topics for partition in topic.partitions}
    if isinstance(outcome, ElectLeadersResponse):
        for result in outcome.replica_election_results:
            for p in result.partition_result:
                verdicts[result.topic, p.partition_id] = Verdict(p.error_code, p.error_message)
    return verdicts


def _results(
    topic: TopicPartitions, verdicts: dict[tuple[str, int], Verdict], *, everything: bool
) -> list[PartitionResult]:
    results = [PartitionResult(partition, *verdicts[topic.topic, partition]) for partition in topic.partitions]
    return [r for r in results if not everything or r.error_code != ErrorCode.ELECTION_NOT_NEEDED]
