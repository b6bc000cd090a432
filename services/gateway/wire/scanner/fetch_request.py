"""Fetch requests: who asks for which partitions from where, and how long it will wait."""

from struct import Struct as Packing
from typing import NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    Buffer,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
    truncated,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES, TWO_INT32, finished, read_topic_id, take
from services.gateway.wire.schema import NO_UUID

_FETCH_FLEXIBLE = flexible_since(ApiKey.FETCH) or 0


class FetchPartitionScan(NamedTuple):
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    start: int
    end: int


class FetchTopicScan(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[FetchPartitionScan]


class FetchRequestScan(NamedTuple):
    version: int
    replica_id: int
    """-1 for consumers; from version 15 on a tag that only brokers send, and not read here."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    waits_at: int
    """max_wait_ms, min_bytes and (version 3 on) max_bytes stand here as three int32: to be patched in place."""
    topics: list[FetchTopicScan]
    forgotten_topics: int
    rack_id: str


def scan_fetch_request(buffer: Buffer, version: int, offset: int, end: int) -> FetchRequestScan:
    """The Fetch request whose body is `buffer[offset:end]`."""
    flexible = version >= _FETCH_FLEXIBLE
    count_of = read_compact_count if flexible else read_count
    text = read_compact_string if flexible else read_string
    waits_at = offset if version >= 15 else offset + 4
    sizes = 8 if version < 3 else 12 if version == 3 else 13 if version < 7 else 21
    if end - waits_at < sizes:
        raise truncated("Fetch.max_wait_ms", waits_at, sizes, end)
    (replica_id,) = INT32.unpack_from(buffer, offset) if version < 15 else (-1,)
    max_wait_ms, min_bytes = TWO_INT32.unpack_from(buffer, waits_at)
    (max_bytes,) = INT32.unpack_from(buffer, waits_at + 8) if version >= 3 else (0x7FFF_FFFF,)
    isolation_level = buffer[waits_at + 12] if version >= 4 else 0
    session_id, session_epoch = TWO_INT32.unpack_from(buffer, waits_at + 13) if version >= 7 else (0, -1)
    at = waits_at + sizes
    count, at = count_of(buffer, at, end, "Fetch.topics", 2 + flexible)
    left = take(MAX_ENTRIES, count, "Fetch.topics", at)
    topics: list[FetchTopicScan] = []
    entry = _fetch_entry(version)
    for _ in range(count):
        if version >= IDS_SINCE:
            name, topic_id, at = "", *read_topic_id(buffer, at, end, "Fetch.topic_id")
        else:
            name, at = text(buffer, at, end, "Fetch.topic")
            topic_id = NO_UUID
        partitions, at = _fetch_partitions(buffer, at, end, version, entry, left)
        left -= len(partitions)
        if flexible:
            at = skip_tags(buffer, at, end, "Fetch.topic.tags")
        topics.append(FetchTopicScan(name, topic_id, partitions))
    forgotten = 0
    if version >= 7:
        forgotten, at = _skip_forgotten(buffer, at, end, version)
    rack_id = ""
    if version >= 11:
        rack_id, at = text(buffer, at, end, "Fetch.rack_id")
    if flexible:
        at = skip_tags(buffer, at, end, "Fetch.tags")
    finished("Fetch", at, end)
    return FetchRequestScan(
        version,
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        waits_at,
        topics,
        forgotten,
        rack_id,
    )


class _FetchEntry(NamedTuple):
    """How one partition of a Fetch request is packed in a version."""

    packing: Packing
    epoch: int
    """Which of the unpacked values is the leader epoch (-1: none), which the fetch offset; max_bytes is the last."""
    offset: int


def _fetch_entry(version: int) -> _FetchEntry:
    layout = ">i" + ("i" if version >= 9 else "") + "q" + ("i" if version >= 12 else "") + ("q" if version >= 5 else "")
    return _FetchEntry(Packing(layout + "i"), 1 if version >= 9 else -1, 2 if version >= 9 else 1)


def _fetch_partitions(
    buffer: Buffer, at: int, end: int, version: int, entry: _FetchEntry, left: int
) -> tuple[list[FetchPartitionScan], int]:
    flexible = version >= _FETCH_FLEXIBLE
    packing, epoch_at, offset_at = entry
    size = packing.size
    count_of = read_compact_count if flexible else read_count
    count, at = count_of(buffer, at, end, "Fetch.partitions", size + flexible)
    take(left, count, "Fetch.partitions", at)
    partitions: list[FetchPartitionScan] = []
    for _ in range(count):
        if end - at < size:
            raise truncated("Fetch.partition", at, size, end)
        values = packing.unpack_from(buffer, at)
        start, at = at, at + size
        if flexible:
            at = skip_tags(buffer, at, end, "Fetch.partition.tags")
        epoch = values[epoch_at] if epoch_at > 0 else -1
        partitions.append(FetchPartitionScan(values[0], values[offset_at], values[-1], epoch, start, at))
    return partitions, at


def _skip_forgotten(buffer: Buffer, at: int, end: int, version: int) -> tuple[int, int]:
    flexible = version >= _FETCH_FLEXIBLE
    count_of = read_compact_count if flexible else read_count
    count, at = count_of(buffer, at, end, "Fetch.forgotten_topics", 2 + flexible)
    for _ in range(count):
        if version >= IDS_SINCE:
            _, at = read_topic_id(buffer, at, end, "Fetch.forgotten_topic_id")
        else:
            text = read_compact_string if flexible else read_string
            _, at = text(buffer, at, end, "Fetch.forgotten_topic")
        partitions, at = count_of(buffer, at, end, "Fetch.forgotten_partitions", 4)
        at += 4 * partitions
        if flexible:
            at = skip_tags(buffer, at, end, "Fetch.forgotten_topic.tags")
    return count, at
