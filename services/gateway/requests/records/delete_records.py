"""DeleteRecords: the leaders on each topic's owner move the starts of their logs, and those of the old parts first.

Offsets are the owner's own, unless the log is stitched (`stitched_ends`).
"""

from collections.abc import Iterator
from dataclasses import replace

from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request, admin_timeout_s
from services.gateway.requests.records.stitched_ends import Deletion
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteRecordsRequest)

    def question(place: Place, parts: list[Wanted[Deletion]]) -> Call:
        topics: dict[str, DeleteRecordsTopic] = {}
        for w in parts:
            partition = asked[w.topic, w.partition]
            partition.offset = w.item.offset_there
            topics.setdefault(w.topic, DeleteRecordsTopic(w.topic)).partitions.append(partition)
        part = DeleteRecordsRequest(list(topics.values()), message.timeout_ms)
        timeout_s = admin_timeout_s(message.timeout_ms)
        return Call(place.cluster, part, request.version, Broker(place.broker_id), Lane.CLIENT, timeout_s)

    asked = {(topic.name, p.partition_index): p for topic in message.topics for p in topic.partitions}
    left = [Wanted(*slot, Deletion.of(*slot, each.offset, mesh)) for slot, each in asked.items()]
    results = {
        (w.topic, w.partition): _failed(w.partition, ErrorCode.POLICY_VIOLATION) for w in left if w.item.is_refused
    }
    left = [w for w in left if not w.item.is_refused]
    while left:
        left = [replace(w, cluster=w.item.cluster) for w in left]
        results |= yield from ask_leaders(mesh, left, question, DeleteRecordsResponse, _results_of, _failed)
        left = [w for w in left if not _is_done(w.item, results[w.topic, w.partition])]
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [results[topic.name, p.partition_index] for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _is_done(deletion: Deletion, result: DeleteRecordsPartitionResult) -> bool:
    low_watermark = deletion.take(result.low_watermark, result.error_code)
    if low_watermark is not None:
        result.low_watermark = low_watermark
    return low_watermark is not None


def _results_of(answer: DeleteRecordsResponse) -> Iterator[tuple[str, DeleteRecordsPartitionResult]]:
    return ((topic.name, partition) for topic in answer.topics for partition in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition, NO_LOW_WATERMARK, error)
