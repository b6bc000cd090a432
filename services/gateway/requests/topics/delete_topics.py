"""DeleteTopics: each topic is deleted on the cluster that the rules name, and only there."""

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
    Stale,
    Unreachable,
    admin_timeout_s,
    ask_all,
)
from services.gateway.requests.topic_ids import mesh_topic_id, topic_names
from services.gateway.requests.verdicts import LEFT_OUT, silence
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from services.gateway.wire.schema import NO_UUID

BY_ID_SINCE = 6


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteTopicsRequest)
    wanted = message.topics or [DeleteTopicState(name=name) for name in message.topic_names]
    names = yield from topic_names(mesh, [state.topic_id for state in wanted if state.name is None])
    results: list[DeletableTopicResult | None] = []
    parts: dict[str, list[str]] = {}
    for state in wanted:
        name = state.name if state.name is not None else names.get(state.topic_id)
        owner = None if name is None else mesh.table.cluster_of(name)
        if name is None or owner is None:
            results.append(_unknown(state))
        else:
            results.append(None)
            parts.setdefault(owner, []).append(name)
    answers = yield from _delete(parts, message.timeout_ms, request.version, mesh)
    for place, state in enumerate(wanted):
        if results[place] is None:
            name = state.name if state.name is not None else names[state.topic_id]
            answer = answers[name]
            is_unknown = answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if state.name is None and is_unknown:
                results[place] = _unknown(state)
                continue
            results[place] = DeletableTopicResult(
                name=name,
                topic_id=NO_UUID if is_unknown else mesh_topic_id(mesh.mesh_id, name),
                error_code=answer.error_code,
                error_message=answer.error_message,
            )
    return DeleteTopicsResponse(responses=[result for result in results if result is not None])


def _delete(
    parts: dict[str, list[str]], timeout_ms: int, version: int, mesh: MeshView
) -> Generator[Command, Any, dict[str, DeletableTopicResult]]:
    calls = []
    for cluster, topics in parts.items():
        spoken = highest_version(mesh, cluster, ApiKey.DELETE_TOPICS, version)
        question = DeleteTopicsRequest(timeout_ms=timeout_ms)
        if spoken >= BY_ID_SINCE:
            question.topics = [DeleteTopicState(name=name) for name in topics]
        else:
            question.topic_names = topics
        calls.append(Call(cluster, question, spoken, Controller(), Lane.CLIENT, admin_timeout_s(timeout_ms)))
    outcomes = yield from ask_all(calls, DeleteTopicsResponse)
    answers: dict[str, DeletableTopicResult] = {}
    for (cluster, topics), outcome in zip(parts.items(), outcomes, strict=True):
        code, text = silence(outcome) if isinstance(outcome, Unreachable) else LEFT_OUT
        failed = [DeletableTopicResult(name=name, error_code=code, error_message=text) for name in topics]
        answers |= {str(result.name): result for result in failed}
        if not isinstance(outcome, Unreachable):
            answers |= {result.name: result for result in outcome.responses if result.name is not None}
            yield Stale(cluster, tuple(topics))
    return answers


def _unknown(state: DeleteTopicState) -> DeletableTopicResult:
    by_id = state.topic_id != NO_UUID
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = worded(code, "no cluster of the mesh owns such a topic")
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code, error_message=text)
