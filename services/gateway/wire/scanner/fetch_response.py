"""Fetch responses: where the records lie, and whether the answer may pass as it is."""

from struct import Struct as Packing
from typing import NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    Buffer,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_string,
    read_tag_section,
    read_uvarint,
    skip_tags,
    truncated,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES, finished, lying, read_topic_id, take
from services.gateway.wire.schema import NO_UUID

_FETCH_FLEXIBLE = flexible_since(ApiKey.FETCH) or 0


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    """-1 before version 4."""
    log_start_offset: int
    """-1 before version 5."""
    aborted_at: int
    """The count of aborted transactions stands here; -1 before version 4."""
    preferred_read_replica: int
    replica_at: int
    """Where the preferred replica stands; -1 before version 11."""
    hints: bool
    """Tagged fields that name leaders or epochs of the real cluster."""
    start: int
    end: int
    records_start: int
    """-1 where the records are null."""
    records_end: int

    @property
    def record_bytes(self) -> int:
        return self.records_end - self.records_start if self.records_start >= 0 else 0


class FetchedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchedPartition]


class FetchResponseScan(NamedTuple):
    version: int
    throttle_time_ms: int
    error_code: int
    session_id: int
    record_bytes: int
    untouched: bool
    """Nothing in it speaks of the cluster behind: no error, no session, no hint at leaders, endpoints or replicas."""
    topics: list[FetchedTopic]


def scan_fetch_response(buffer: Buffer, version: int, offset: int, end: int) -> FetchResponseScan:
    """The Fetch response whose body is `buffer[offset:end]`; records are walked over."""
    flexible = version >= _FETCH_FLEXIBLE
    count_of = read_compact_count if flexible else read_count
    text = read_compact_string if flexible else read_string
    at = offset
    throttle = error_code = session_id = record_bytes = 0
    if version >= 1:
        head = 10 if version >= 7 else 4
        if end - at < head:
            raise truncated("Fetch.throttle_time_ms", at, head, end)
        (throttle,) = INT32.unpack_from(buffer, at)
        if version >= 7:
            error_code, session_id = _ERROR_AND_SESSION.unpack_from(buffer, at + 4)
        at += head
    untouched = not error_code and not session_id
    count, at = count_of(buffer, at, end, "Fetch.responses", 2 + flexible)
    left = take(MAX_ENTRIES, count, "Fetch.responses", at)
    topics: list[FetchedTopic] = []
    for _ in range(count):
        if version >= IDS_SINCE:
            name, topic_id, at = "", *read_topic_id(buffer, at, end, "Fetch.topic_id")
        else:
            name, at = text(buffer, at, end, "Fetch.topic")
            topic_id = NO_UUID
        partitions, at = _fetched_partitions(buffer, at, end, version, left)
        left -= len(partitions)
        for partition in partitions:
            record_bytes += partition.record_bytes
            if partition.error_code or partition.hints or partition.preferred_read_replica != -1:
                untouched = False
        if flexible:
            at = skip_tags(buffer, at, end, "Fetch.topic.tags")
        topics.append(FetchedTopic(name, topic_id, partitions))
    if flexible:
        tags, at = read_tag_section(memoryview(buffer), at, end, "Fetch.tags")
        untouched = untouched and not tags
    finished("Fetch", at, end)
    return FetchResponseScan(version, throttle, error_code, session_id, record_bytes, untouched, topics)


_ERROR_AND_SESSION = Packing(">hi")


def _fetched_partitions(
    buffer: Buffer, at: int, end: int, version: int, left: int
) -> tuple[list[FetchedPartition], int]:
    flexible = version >= _FETCH_FLEXIBLE
    head = _FETCHED_HEADS[0 if version < 4 else 1 if version < 5 else 2]
    count_of = read_compact_count if flexible else read_count
    transactions_of = read_compact_nullable_count if flexible else read_nullable_count
    count, at = count_of(buffer, at, end, "Fetch.partitions", head.size + 1)
    take(left, count, "Fetch.partitions", at)
    partitions: list[FetchedPartition] = []
    for _ in range(count):
        start = at
        if end - at < head.size:
            raise truncated("Fetch.partition", at, head.size, end)
        number, error_code, high_watermark, *marks = head.unpack_from(buffer, at)
        last_stable, log_start = (*marks, -1, -1)[:2]
        at += head.size
        aborted_at = at if version >= 4 else -1
        if version >= 4:
            aborted, at = transactions_of(buffer, at, end, "Fetch.aborted_transactions", 16 + flexible)
            if flexible:
                for _ in range(aborted):
                    at = skip_tags(buffer, at + 16, end, "Fetch.aborted_transactions.tags")
            elif aborted > 0:
                at += 16 * aborted
        replica = replica_at = -1
        if version >= 11:
            if end - at < 4:
                raise truncated("Fetch.preferred_read_replica", at, 4, end)
            (replica,) = INT32.unpack_from(buffer, at)
            replica_at = at
            at += 4
        records_start, records_end = _records(buffer, at, end, flexible)
        hints = False
        at = records_end
        if flexible:
            if at < end and buffer[at] == 0:
                at += 1
            else:
                at = skip_tags(buffer, at, end, "Fetch.partition.tags")
                hints = True
        partitions.append(
            FetchedPartition(
                number,
                error_code,
                high_watermark,
                last_stable,
                log_start,
                aborted_at,
                replica,
                replica_at,
                hints,
                start,
                at,
                records_start,
                records_end,
            )
        )
    return partitions, at


_FETCHED_HEADS = (Packing(">ihq"), Packing(">ihqq"), Packing(">ihqqq"))
"""Partition, error, high watermark, then last stable offset (4 on) and log start offset (5 on)."""


def _records(buffer: Buffer, at: int, end: int, flexible: bool) -> tuple[int, int]:
    """Where the records begin (-1 for null) and end."""
    if flexible:
        length, start = read_uvarint(buffer, at, end, "Fetch.records")
        length -= 1
    else:
        if end - at < 4:
            raise truncated("Fetch.records", at, 4, end)
        (length,) = INT32.unpack_from(buffer, at)
        start = at + 4
    if length == -1:
        return -1, start
    if not 0 <= length <= end - start:
        raise lying("Fetch.records", at, length, end - start)
    return start, start + length
