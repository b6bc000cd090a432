"""DeleteRecords: the leaders on each topic's owner move the starts of their logs. Offsets are the owner's own."""

from collections.abc import Iterator

from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request, admin_timeout_s
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteRecordsRequest)

    def question(place: Place, parts: list[Wanted[DeleteRecordsPartition]]) -> Call:
        topics: dict[str, DeleteRecordsTopic] = {}
        for w in parts:
            topics.setdefault(w.topic, DeleteRecordsTopic(w.topic)).partitions.append(w.item)
        part = DeleteRecordsRequest(list(topics.values()), message.timeout_ms)
        timeout_s = admin_timeout_s(message.timeout_ms)
        return Call(place.cluster, part, request.version, Broker(place.broker_id), Lane.CLIENT, timeout_s)

    wanted = [Wanted(topic.name, p.partition_index, p) for topic in message.topics for p in topic.partitions]
    results = yield from ask_leaders(mesh, wanted, question, DeleteRecordsResponse, _results_of, _failed)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [results[topic.name, p.partition_index] for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _results_of(answer: DeleteRecordsResponse) -> Iterator[tuple[str, DeleteRecordsPartitionResult]]:
    return ((topic.name, partition) for topic in answer.topics for partition in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition, NO_LOW_WATERMARK, error)
