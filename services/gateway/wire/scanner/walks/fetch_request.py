"""Fetch requests: the client, the partitions and offsets that it asks for, and its longest wait."""

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import Buffer, truncated
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES
from services.gateway.wire.scanner.walks import octets, readers
from services.gateway.wire.schema import NO_UUID

_IDS_SINCE = IDS_SINCE
_MAX_ENTRIES = MAX_ENTRIES
_FLEXIBLE = flexible_since(ApiKey.FETCH) or 0


class FetchPartitionScan:
    __slots__ = ("current_leader_epoch", "end", "fetch_offset", "max_bytes", "partition", "start")
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    start: int
    end: int


class FetchTopicScan:
    __slots__ = ("name", "partitions", "topic_id")
    name: str
    topic_id: bytes
    partitions: list[FetchPartitionScan]


class FetchRequestScan:
    __slots__ = (
        "forgotten_topics",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
        "version",
        "waits_at",
    )
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
    readers.enclose("Fetch", buffer, offset, end)
    data = octets.of(buffer)
    flexible = version >= _FLEXIBLE
    scan = FetchRequestScan.__new__(FetchRequestScan)
    scan.version = version
    scan.waits_at = at = offset if version >= 15 else offset + 4
    size = 8 if version < 3 else 12 if version == 3 else 13 if version < 7 else 21
    if end - at < size:
        raise truncated("Fetch.max_wait_ms", at, size, end)
    scan.replica_id = octets.int32(data, offset) if version < 15 else -1
    scan.max_wait_ms = octets.int32(data, at)
    scan.min_bytes = octets.int32(data, at + 4)
    scan.max_bytes = octets.int32(data, at + 8) if version >= 3 else 0x7FFF_FFFF
    scan.isolation_level = data[at + 12] if version >= 4 else 0
    scan.session_id = octets.int32(data, at + 13) if version >= 7 else 0
    scan.session_epoch = octets.int32(data, at + 17) if version >= 7 else -1
    count, at = readers.count(data, at + size, end, flexible, 2 + flexible, "Fetch.topics")
    left = readers.take(_MAX_ENTRIES, count, "Fetch.topics", at)
    topics: list[FetchTopicScan] = []
    for _ in range(count):
        topic = FetchTopicScan.__new__(FetchTopicScan)
        begin = at
        if version >= _IDS_SINCE:
            at = readers.topic_id(at, end, "Fetch.topic_id")
            topic.topic_id = octets.copy(data, begin, at)
            topic.name = ""
        else:
            begin, at = readers.text(data, at, end, flexible, "Fetch.topic")
            topic.topic_id = NO_UUID
            topic.name = readers.decoded(data, begin, at, "Fetch.topic")
        topic.partitions = []
        at = _fetch_partitions(data, at, end, version, left, topic.partitions)
        left -= len(topic.partitions)
        if flexible:
            at = readers.skip_tags(data, at, end, "Fetch.topic.tags")
        topics.append(topic)
    scan.topics = topics
    scan.forgotten_topics = 0
    if version >= 7:
        scan.forgotten_topics, at = _skip_forgotten(data, at, end, version)
    scan.rack_id = ""
    if version >= 11:
        begin, at = readers.text(data, at, end, flexible, "Fetch.rack_id")
        scan.rack_id = readers.decoded(data, begin, at, "Fetch.rack_id")
    if flexible:
        at = readers.skip_tags(data, at, end, "Fetch.tags")
    readers.finish("Fetch", at, end)
    return scan


def _fetch_partitions(data: Buffer, at: int, end: int, version: int, left: int, found: list[FetchPartitionScan]) -> int:
    """Number, leader epoch (9 on), offset, last epoch (12 on), log start (5 on), most bytes."""
    flexible = version >= _FLEXIBLE
    offset_at = 8 if version >= 9 else 4
    size = offset_at + 12 + (4 if version >= 12 else 0) + (8 if version >= 5 else 0)
    count, at = readers.count(data, at, end, flexible, size + flexible, "Fetch.partitions")
    readers.take(left, count, "Fetch.partitions", at)
    for _ in range(count):
        if end - at < size:
            raise truncated("Fetch.partition", at, size, end)
        part = FetchPartitionScan.__new__(FetchPartitionScan)
        part.partition = octets.int32(data, at)
        part.current_leader_epoch = octets.int32(data, at + 4) if version >= 9 else -1
        part.fetch_offset = octets.int64(data, at + offset_at)
        part.max_bytes = octets.int32(data, at + size - 4)
        part.start = at
        at += size
        if flexible:
            at = readers.skip_tags(data, at, end, "Fetch.partition.tags")
        part.end = at
        found.append(part)
    return at


def _skip_forgotten(data: Buffer, at: int, end: int, version: int) -> tuple[int, int]:
    """The number of forgotten topics, and their end offset."""
    flexible = version >= _FLEXIBLE
    count, at = readers.count(data, at, end, flexible, 2 + flexible, "Fetch.forgotten_topics")
    for _ in range(count):
        if version >= _IDS_SINCE:
            at = readers.topic_id(at, end, "Fetch.forgotten_topic_id")
        else:
            begin, at = readers.text(data, at, end, flexible, "Fetch.forgotten_topic")
            readers.decoded(data, begin, at, "Fetch.forgotten_topic")
        partitions, at = readers.count(data, at, end, flexible, 4, "Fetch.forgotten_partitions")
        at += 4 * partitions
        if flexible:
            at = readers.skip_tags(data, at, end, "Fetch.forgotten_topic.tags")
    return count, at
