"""ListOffsets: offsets by time or end, from the leaders. Times and isolation mean what they mean on the broker."""

from services.gateway.requests.placement import LEADER_ERRORS, Place, Wanted, locate
from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request, Stale, Unreachable, ask_all
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
"""Looking a time up in a tiered log is slow; clients wait 30 s by default."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListOffsetsRequest)
    wanted = [Wanted(topic.name, p.partition_index, p) for topic in message.topics for p in topic.partitions]
    located = yield from locate(mesh, wanted)
    results = {(w.topic, w.partition): _failed(w.partition, error) for w, error in located.homeless}
    calls = [_call(message, request.version, place, parts) for place, parts in located.places.items()]
    answers = yield from ask_all(calls, ListOffsetsResponse)
    for (place, parts), answer in zip(located.places.items(), answers, strict=True):
        told: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        if not isinstance(answer, Unreachable):
            told = {(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}
        stale: set[str] = set()
        for w in parts:
            result = told.get((w.topic, w.partition)) or _failed(w.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            result.leader_epoch = NO_EPOCH
            results[w.topic, w.partition] = result
            if result.error_code in LEADER_ERRORS:
                stale.add(w.topic)
        if stale:
            yield Stale(place.cluster, tuple(stale))
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


def _failed(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error)
