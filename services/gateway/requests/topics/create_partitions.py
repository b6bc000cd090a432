"""CreatePartitions: each topic grows on the cluster that the rules name.

Replicas that are assigned by hand are named by brokers' numbers or by virtual nodes (`real_brokers`).
"""

from services.gateway.requests import real_brokers
from services.gateway.requests.plan import (
    Call,
    Controller,
    Lane,
    MeshView,
    Plan,
    Request,
    Stale,
    Unreachable,
    admin_timeout_s,
)
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, refusal, silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(CreatePartitionsRequest)
    results: dict[str, CreatePartitionsTopicResult] = {}
    parts: dict[str, list[CreatePartitionsTopic]] = {}
    for topic in message.topics:
        owner = mesh.table.cluster_of(topic.name)
        refusal = _refusal(topic, owner, mesh)
        if refusal is not None:
            results[topic.name] = _failed(topic.name, refusal)
        elif owner is not None:
            parts.setdefault(owner, []).append(topic)
    calls = [
        Call(
            cluster,
            CreatePartitionsRequest(topics=topics, timeout_ms=message.timeout_ms, validate_only=message.validate_only),
            request.version,
            Controller(),
            Lane.CLIENT,
            timeout_s=admin_timeout_s(message.timeout_ms),
        )
        for cluster, topics in parts.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, CreatePartitionsResponse)
    for (cluster, topics), outcome in zip(parts.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            results |= {t.name: _failed(t.name, silence(outcome)) for t in topics}
        else:
            results |= {result.name: result for result in outcome.results}
        yield Stale(cluster, tuple(topic.name for topic in topics))
    return CreatePartitionsResponse(
        results=[
            results.get(name) or _failed(name, LEFT_OUT)
            for name in dict.fromkeys(topic.name for topic in message.topics)
        ]
    )


def _refusal(topic: CreatePartitionsTopic, owner: str | None, mesh: MeshView) -> Verdict | None:
    if owner is None:
        text = f"no forwarding rule matches topic {topic.name!r} (rules of revision {mesh.table.revision})"
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    for index, assignment in enumerate(topic.assignments or ()):
        ids = real_brokers.own_ids(assignment.broker_ids, index, owner, mesh)
        if isinstance(ids, Verdict):
            return ids
        assignment.broker_ids = ids
    return None


def _failed(name: str, verdict: Verdict) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=verdict.code, error_message=verdict.text)
