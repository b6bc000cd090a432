"""CreateTopics: each topic is created on the cluster that the rules name.

Replicas that are assigned by hand are named by brokers' numbers or by virtual nodes (`real_brokers`).
"""

from mesh.topics import is_topic_name
from services.gateway.requests import real_brokers
from services.gateway.requests.plan import Call, Controller, Lane, MeshView, Plan, Request, Unreachable, admin_timeout_s
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topics.new_topics import why_refused
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, refusal, silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from services.gateway.wire.schema import NO_UUID

BROKER_DEFAULT = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(CreateTopicsRequest)
    results: dict[str, CreatableTopicResult] = {}
    parts: dict[str, list[CreatableTopic]] = {}
    for topic in message.topics:
        owner = mesh.table.cluster_of(topic.name)
        refusal = _refusal(topic, owner, mesh)
        if refusal is not None:
            results[topic.name] = _failed(topic.name, refusal)
        elif owner is not None:
            _with_default_partitions(topic, mesh.table.clusters[owner].partition_count)
            parts.setdefault(owner, []).append(topic)
    calls = [
        Call(
            cluster,
            CreateTopicsRequest(topics=topics, timeout_ms=message.timeout_ms, validate_only=message.validate_only),
            request.version,
            Controller(),
            Lane.CLIENT,
            timeout_s=admin_timeout_s(message.timeout_ms),
        )
        for cluster, topics in parts.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, CreateTopicsResponse)
    for topics, outcome in zip(parts.values(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            results |= {t.name: _failed(t.name, silence(outcome)) for t in topics}
        else:
            for result in outcome.topics:
                result.topic_id = NO_UUID if result.error_code else mesh_topic_id(mesh.mesh_id, result.name)
                results[result.name] = result
    return CreateTopicsResponse(topics=[results.get(t.name) or _failed(t.name, LEFT_OUT) for t in message.topics])


def _refusal(topic: CreatableTopic, owner: str | None, mesh: MeshView) -> Verdict | None:
    if not is_topic_name(topic.name):
        text = f"{topic.name!r} is no topic name: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
        return refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    if owner is None:
        text = (
            f"no forwarding rule matches topic {topic.name!r} (rules of revision {mesh.table.revision}): add one first"
        )
        return refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    reason = why_refused(topic.name, mesh)
    if reason is not None:
        return refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    for assignment in topic.assignments:
        ids = real_brokers.own_ids(assignment.broker_ids, assignment.partition_index, owner, mesh)
        if isinstance(ids, Verdict):
            return ids
        assignment.broker_ids = ids
    return None


def _with_default_partitions(topic: CreatableTopic, partition_count: int) -> None:
    if topic.num_partitions == BROKER_DEFAULT and partition_count > 0:
        topic.num_partitions = partition_count


def _failed(name: str, verdict: Verdict) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=verdict.code, error_message=verdict.text)
