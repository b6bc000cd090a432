"""Which batches of a Produce are audited, and how each of them ended.

`records` opens a copy of their bytes in another process, later: the request does not wait. Without acks no broker
reports how a batch ended, so the batch is not audited.
"""

from typing import TYPE_CHECKING

from services.gateway.requests.auditing.clients import AuditedBatch, ClientAudit
from services.gateway.requests.older.rewriting import message_of_answer
from services.gateway.requests.plan import Answer
from services.gateway.wire.batches import count_records
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from services.gateway.wire.scanner import ProducePartition

if TYPE_CHECKING:
    from services.gateway.requests.records.produce_order import Producing


def tell_audit(audit: ClientAudit, produce: "Producing", answer: Answer) -> None:
    """A Produce has its answer."""
    topics = [topic for topic in produce.scan.topics if topic.name in audit.topics]
    if not topics or produce.scan.acks == 0:
        return
    results = results_of(produce, answer)
    found = [
        _audited(produce, topic.name, part, result)
        for topic in topics
        for part in topic.partitions
        if part.records_start >= 0 and (result := results.get((topic.name, part.partition))) is not None
    ]
    if found:
        audit.take(found)


def _audited(
    produce: "Producing", topic: str, part: ProducePartition, result: PartitionProduceResponse
) -> AuditedBatch:
    frame, route = produce.request.frame, produce.mesh.table.route(topic)
    return AuditedBatch(
        "" if route is None else route.cluster,
        topic,
        part.partition,
        result.base_offset,
        _failure(result),
        count_records(frame, part.records_start, part.records_end),
        bytes(frame[part.records_start : part.records_end]),
    )


def results_of(produce: "Producing", answer: Answer) -> dict[tuple[str, int], PartitionProduceResponse]:
    """The result of each partition; empty if the gateway closes the connection instead of an answer."""
    message = message_of_answer(answer, ProduceResponse, produce.request.version)
    if not isinstance(message, ProduceResponse):
        return {}
    names = {topic.topic_id: topic.name for topic in produce.scan.topics}
    return {
        (topic.name or names.get(topic.topic_id, ""), part.index): part
        for topic in message.responses
        for part in topic.partition_responses
    }


def _failure(result: PartitionProduceResponse) -> str:
    if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return ""
    try:
        name = ErrorCode(result.error_code).name
    except ValueError:
        name = f"error {result.error_code}"
    return f"{name}: {result.error_message}" if result.error_message else name
