"""Produce 0 to 2: message sets, each of which becomes one batch.

Theory of operation
1. All message sets of the request are converted together, in another process; then today's Produce takes the batches.
   Requests are sent on in the client's order: a Produce counts as sent only when its batches leave.
2. A damaged set is CORRUPT_MESSAGE for its partition, as on a broker; the other sets go on. If the conversion finds no
   room or no time, nothing is written, and the client has to try all partitions again (NOT_LEADER_OR_FOLLOWER).
3. A set without a message has nothing to store: no error and no offset, as brokers of that time answered.
"""

import structlog

from mesh.validation.checks import V2
from services.gateway.requests.conversions import NotConverted, convert
from services.gateway.requests.older.rewriting import known_code, message_of_answer, rewritten
from services.gateway.requests.plan import Close, MeshView, NoAnswer, Plan, Request
from services.gateway.requests.records import produce
from services.gateway.wire.batches import MAGIC_AT
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.legacy.conversion import Corrupt, batches_of
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

log = structlog.get_logger(__name__)

VERSION = 3
"""The first version that takes batches; 4 to 8 have the same request."""
NO_OFFSET = -1

Slot = tuple[str, int]
Converted = bytes | Corrupt | NotConverted | None


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ProduceRequest)
    sets = tuple(bytes(p.records or b"") for topic in message.topic_data for p in topic.partition_data)
    outcome = yield from convert(batches_of, sets)
    batches: tuple[Converted, ...] = (outcome,) * len(sets) if isinstance(outcome, NotConverted) else outcome
    slots = [(topic.name, p.index) for topic in message.topic_data for p in topic.partition_data]
    converted = dict(zip(slots, batches, strict=True))
    _tell_corrupt(request, converted)
    answer = ProduceResponse()
    if any(isinstance(batch, bytes) for batch in converted.values()):
        asked = rewritten(request, _with_batches(message, converted), VERSION, _magic(sets))
        given = yield from produce.handle(asked, mesh)
        told = message_of_answer(given, ProduceResponse, VERSION)
        if isinstance(told, Close):
            return told
        if isinstance(told, ProduceResponse):
            answer = told
    if message.acks == 0:
        return _without_acks(converted)
    results = {(t.name, p.index): p for t in answer.responses for p in t.partition_responses}
    return ProduceResponse(
        throttle_time_ms=answer.throttle_time_ms,
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    _result((topic.name, p.index), converted, results, request.version) for p in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ],
    )


def _magic(sets: tuple[bytes, ...]) -> int:
    """The oldest message format of the request: its batches are judged by it."""
    return min((each[MAGIC_AT] for each in sets if len(each) > MAGIC_AT), default=V2)


def _with_batches(message: ProduceRequest, converted: dict[Slot, Converted]) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for (topic, index), batch in converted.items():
        if isinstance(batch, bytes):
            found = topics.setdefault(topic, TopicProduceData(topic))
            found.partition_data.append(PartitionProduceData(index, batch))
    return ProduceRequest(acks=message.acks, timeout_ms=message.timeout_ms, topic_data=list(topics.values()))


def _result(
    slot: Slot, converted: dict[Slot, Converted], results: dict[Slot, PartitionProduceResponse], version: int
) -> PartitionProduceResponse:
    _, index = slot
    match converted[slot]:
        case Corrupt():
            return PartitionProduceResponse(index, ErrorCode.CORRUPT_MESSAGE, NO_OFFSET)
        case NotConverted():
            return PartitionProduceResponse(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
        case None:
            return PartitionProduceResponse(index, ErrorCode.NONE, NO_OFFSET)
    found = results[slot]
    return PartitionProduceResponse(
        index, known_code(found.error_code, version), found.base_offset, found.log_append_time_ms
    )


def _without_acks(converted: dict[Slot, Converted]) -> NoAnswer | Close:
    """A closed connection is the only sign of a fault that such a client sees."""
    failed = sorted({topic for (topic, _), batch in converted.items() if isinstance(batch, Corrupt | NotConverted)})
    return Close(f"records without acks could not be converted, topics {', '.join(failed)}") if failed else NoAnswer()


def _tell_corrupt(request: Request, converted: dict[Slot, Converted]) -> None:
    for (topic, index), batch in converted.items():
        if isinstance(batch, Corrupt):
            log.warning(
                "a message set is corrupt",
                topic=topic,
                partition=index,
                fault=batch.reason,
                client_id=request.header.client_id,
            )
            return  # one line a request
