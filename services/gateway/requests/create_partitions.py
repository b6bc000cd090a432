"""CreatePartitions: each topic grows on the cluster that the rules give it to."""

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
    ask_all,
)
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
        if owner is None:
            text = f"no forwarding rule matches topic {topic.name!r} (rules of revision {mesh.table.revision})"
            results[topic.name] = _failed(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif topic.assignments:
            text = "replicas can't be assigned by hand: the mesh shows virtual brokers; leave the choice to the cluster"
            results[topic.name] = _failed(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        else:
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
    outcomes = yield from ask_all(calls, CreatePartitionsResponse)
    for (cluster, topics), outcome in zip(parts.items(), outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            text = f"cluster {cluster} can't be reached: {outcome.reason}"
            results |= {t.name: _failed(t.name, ErrorCode.REQUEST_TIMED_OUT, text) for t in topics}
        else:
            results |= {result.name: result for result in outcome.results}
        yield Stale(cluster, tuple(topic.name for topic in topics))
    return CreatePartitionsResponse(
        results=[
            results.get(name) or _failed(name, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer left it out")
            for name in dict.fromkeys(topic.name for topic in message.topics)
        ]
    )


def _failed(name: str, code: ErrorCode, text: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=text)
