"""Fetch 0 to 3: today's Fetch, its batches turned into message sets.

Theory of operation
1. The client reads all records below the high watermark, also those of aborted transactions: it knows of no
   transactions.
2. Versions 0 and 1 get messages of magic 0, without times; 2 and 3 magic 1. Headers are left out, zstd becomes gzip.
3. A broker's answer may hold no message for such a client: markers of transactions, or the gaps of compaction. With an
   empty answer the client would ask for the same offset at once, again and again. So the gateway reads on behind these
   batches itself, a few times, and waits there as long as the client allows.
4. A damaged batch is CORRUPT_MESSAGE for its partition. If the conversion finds no room or no time, the client gets no
   records this time, and asks again.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from services.gateway.requests.conversions import NotConverted, convert
from services.gateway.requests.older.rewriting import known_code, message_of_answer, rewritten
from services.gateway.requests.plan import Close, Command, MeshView, NoAnswer, Plan, Request
from services.gateway.requests.records import fetch
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.legacy.conversion import Corrupt, Readable, Stored, message_sets_of
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

log = structlog.get_logger(__name__)

VERSION = 11
"""From 10 on brokers give batches in zstd; 12 is the first flexible one. An older cluster gets its own newest version.
"""
MAGIC_1_SINCE = 2
MAX_BYTES = 8 * 1024 * 1024
"""Bytes of one answer: a second's work if the records are tiny. Clients accept less than they allow at any time."""
READS = 3
"""Reads of one request at most, if the batches hold nothing for the client."""

Slot = tuple[str, int]


@dataclass(slots=True)
class _Given:
    """The state of a partition after the last read."""

    data: PartitionData
    messages: bytes = b""
    next_offset: int = -1


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(FetchRequest)
    offsets = {(topic.topic, p.partition): p.fetch_offset for topic in message.topics for p in topic.partitions}
    given: dict[Slot, _Given] = {}
    throttle_ms = 0
    for _ in range(READS):
        answer = yield from _read(request, message, offsets, mesh)
        if not isinstance(answer, FetchResponse):
            return answer
        throttle_ms = max(throttle_ms, answer.throttle_time_ms)
        given = yield from _convert(request, message, offsets, _given(message, answer))
        empty = {slot: found for slot, found in given.items() if not found.messages and not found.data.error_code}
        onward = {slot: found.next_offset for slot, found in empty.items() if found.next_offset > offsets[slot]}
        if not onward or len(empty) < len(given):
            break
        offsets |= onward
    return _answer(message, given, throttle_ms, request.version)


def _read(
    request: Request, message: FetchRequest, offsets: dict[Slot, int], mesh: MeshView
) -> Generator[Command, Any, FetchResponse | Close | NoAnswer]:
    version = min(VERSION, mesh.served[ApiKey.FETCH].high)
    question = FetchRequest(
        max_wait_ms=message.max_wait_ms,
        min_bytes=message.min_bytes,
        max_bytes=min(message.max_bytes, MAX_BYTES),
        topics=[
            FetchTopic(
                topic.topic,
                partitions=[
                    FetchPartition(
                        p.partition,
                        fetch_offset=offsets[topic.topic, p.partition],
                        partition_max_bytes=p.partition_max_bytes,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
    answer = yield from fetch.handle(rewritten(request, question, version), mesh)
    return message_of_answer(answer, FetchResponse, version)


def _given(message: FetchRequest, answer: FetchResponse) -> dict[Slot, _Given]:
    """Each partition of the request, in its order."""
    found = {(topic.topic, p.partition_index): p for topic in answer.responses for p in topic.partitions}
    missing = answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
    return {
        (topic.topic, p.partition): _Given(
            found.get((topic.topic, p.partition))
            or PartitionData(partition_index=p.partition, error_code=missing, high_watermark=-1)
        )
        for topic in message.topics
        for p in topic.partitions
    }


def _convert(
    request: Request, message: FetchRequest, offsets: dict[Slot, int], given: dict[Slot, _Given]
) -> Generator[Command, Any, dict[Slot, _Given]]:
    most = {(topic.topic, p.partition): p.partition_max_bytes for topic in message.topics for p in topic.partitions}
    filled = [slot for slot, found in given.items() if found.data.records]
    if not filled:
        return given
    stored = tuple(Stored(bytes(given[slot].data.records or b""), offsets[slot], most[slot]) for slot in filled)
    magic = 1 if request.version >= MAGIC_1_SINCE else 0
    converted = yield from convert(message_sets_of, stored, magic, message.max_bytes)
    if not isinstance(converted, NotConverted):
        _take(request, given, filled, converted)
    return given


def _take(
    request: Request, given: dict[Slot, _Given], filled: Sequence[Slot], converted: Sequence[Readable | Corrupt]
) -> None:
    for slot, readable in zip(filled, converted, strict=True):
        if isinstance(readable, Readable):
            given[slot].messages, given[slot].next_offset = readable.messages, readable.next_offset
            continue
        given[slot].data.error_code = ErrorCode.CORRUPT_MESSAGE
        topic, index = slot
        log.warning(
            "a broker's records can't be converted",
            topic=topic,
            partition=index,
            fault=readable.reason,
            client_id=request.header.client_id,
        )


def _answer(message: FetchRequest, given: dict[Slot, _Given], throttle_ms: int, version: int) -> FetchResponse:
    def shown(found: _Given) -> PartitionData:
        return PartitionData(
            partition_index=found.data.partition_index,
            error_code=known_code(found.data.error_code, version),
            high_watermark=found.data.high_watermark,
            records=found.messages,
        )

    return FetchResponse(
        throttle_time_ms=throttle_ms,
        responses=[
            FetchableTopicResponse(
                topic.topic, partitions=[shown(given[topic.topic, p.partition]) for p in topic.partitions]
            )
            for topic in message.topics
        ],
    )
