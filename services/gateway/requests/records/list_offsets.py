"""ListOffsets: offsets by time or end, from the leaders. Times and isolation mean the same as on the broker."""

from collections.abc import Iterator

from services.gateway.requests.leaders import ask_leaders
from services.gateway.requests.placement import Place, Wanted
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

NO_EPOCH = -1
TIMEOUT_S = 35.0
"""To look a time up in a tiered log is slow; clients wait 30 s by default."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListOffsetsRequest)
    wanted = [Wanted(topic.name, p.partition_index, p) for topic in message.topics for p in topic.partitions]

    def question(place: Place, parts: list[Wanted[ListOffsetsPartition]]) -> Call:
        return _call(message, request.version, place, parts)

    results = yield from ask_leaders(mesh, wanted, question, ListOffsetsResponse, _results_of, _failed)
    for result in results.values():
        result.leader_epoch = NO_EPOCH
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic.name, [results[topic.name, p.partition_index] for p in topic.partitions])
            for topic in message.topics
        ]
    )


def _call(message: ListOffsetsRequest, version: int, place: Place, parts: list[Wanted[ListOffsetsPartition]]) -> Call:
    topics: dict[str, ListOffsetsTopic] = {}
    for w in parts:
        w.item.current_leader_epoch = NO_EPOCH
        topics.setdefault(w.topic, ListOffsetsTopic(w.topic)).partitions.append(w.item)
    part = ListOffsetsRequest(
        message.replica_id, message.isolation_level, list(topics.values()), timeout_ms=message.timeout_ms
    )
    return Call(place.cluster, part, version, Broker(place.broker_id), Lane.CLIENT, timeout_s=TIMEOUT_S)


def _results_of(answer: ListOffsetsResponse) -> Iterator[tuple[str, ListOffsetsPartitionResponse]]:
    return ((topic.name, partition) for topic in answer.topics for partition in topic.partitions)


def _failed(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error)
