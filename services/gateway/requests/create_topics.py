"""CreateTopics: each topic is created on the cluster that the rules give it to."""

from mesh.topics import is_topic_name
from services.gateway.requests.plan import (
    Call,
    Controller,
    MeshView,
    Plan,
    Request,
    Unreachable,
    admin_timeout_s,
    ask_all,
)
from services.gateway.requests.topic_ids import mesh_topic_id
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
            results[topic.name] = refusal
        elif owner is not None:
            _with_default_partitions(topic, mesh.table.clusters[owner].partition_count)
            parts.setdefault(owner, []).append(topic)
    calls = [
        Call(
            cluster,
            CreateTopicsRequest(topics=topics, timeout_ms=message.timeout_ms, validate_only=message.validate_only),
            request.version,
            Controller(),
            timeout_s=admin_timeout_s(message.timeout_ms),
        )
        for cluster, topics in parts.items()
    ]
    outcomes = yield from ask_all(calls, CreateTopicsResponse)
    for (cluster, topics), outcome in zip(parts.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            text = f"cluster {cluster} can't be reached: {outcome.reason}"
            results |= {t.name: _failed(t.name, ErrorCode.REQUEST_TIMED_OUT, text) for t in topics}
        else:
            for result in outcome.topics:
                result.topic_id = NO_UUID if result.error_code else mesh_topic_id(mesh.mesh_id, result.name)
                results[result.name] = result
    return CreateTopicsResponse(
        topics=[
            results.get(t.name) or _failed(t.name, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer left it out")
            for t in message.topics
        ]
    )


def _refusal(topic: CreatableTopic, owner: str | None, mesh: MeshView) -> CreatableTopicResult | None:
    if not is_topic_name(topic.name):
        text = f"{topic.name!r} is no topic name: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"
        return _failed(topic.name, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    if owner is None:
        text = (
            f"no forwarding rule matches topic {topic.name!r} (rules of revision {mesh.table.revision}): add one first"
        )
        return _failed(topic.name, ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    if topic.assignments:
        text = "replicas can't be assigned by hand: the mesh shows virtual brokers; leave the choice to the cluster"
        return _failed(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return None


def _with_default_partitions(topic: CreatableTopic, partition_count: int) -> None:
    if topic.num_partitions == BROKER_DEFAULT and partition_count > 0:
        topic.num_partitions = partition_count


def _failed(name: str, code: ErrorCode, text: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=text)
