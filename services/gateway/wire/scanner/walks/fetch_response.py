"""Fetch responses: the offsets of the records, and whether the answer may pass as it is, or with other offsets."""

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import Buffer, truncated
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES
from services.gateway.wire.scanner.walks import octets, readers
from services.gateway.wire.schema import NO_UUID

_IDS_SINCE = IDS_SINCE
_MAX_ENTRIES = MAX_ENTRIES
_FLEXIBLE = flexible_since(ApiKey.FETCH) or 0
_LENGTH_FROM = 12
"""The length of a batch counts the bytes from here on."""


class FetchedPartition:
    __slots__ = (
        "aborted_at",
        "end",
        "error_code",
        "high_watermark",
        "hints",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_read_replica",
        "record_bytes",
        "records_end",
        "records_start",
        "replica_at",
        "start",
    )
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
    """The offset of the preferred replica; -1 before version 11."""
    hints: bool
    """Tagged fields that name leaders or epochs of the real cluster."""
    start: int
    end: int
    records_start: int
    """-1 where the records are null."""
    records_end: int
    record_bytes: int


class FetchedTopic:
    __slots__ = ("end", "name", "partitions", "partitions_at", "start", "topic_id")
    name: str
    topic_id: bytes
    partitions: list[FetchedPartition]
    start: int
    partitions_at: int
    """The end offset of the name or id; the count of partitions stands there."""
    end: int


class FetchResponseScan:
    __slots__ = ("error_code", "record_bytes", "session_id", "throttle_time_ms", "topics", "untouched", "version")
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
    readers.enclose("Fetch", buffer, offset, end)
    data = octets.of(buffer)
    flexible = version >= _FLEXIBLE
    at = offset
    scan = FetchResponseScan.__new__(FetchResponseScan)
    scan.version = version
    scan.throttle_time_ms = scan.error_code = scan.session_id = scan.record_bytes = 0
    head = 10 if version >= 7 else 4 if version >= 1 else 0
    if end - at < head:
        raise truncated("Fetch.throttle_time_ms", at, head, end)
    if version >= 1:
        scan.throttle_time_ms = octets.int32(data, at)
    if version >= 7:
        scan.error_code = octets.int16(data, at + 4)
        scan.session_id = octets.int32(data, at + 6)
    scan.untouched = scan.error_code == 0 and scan.session_id == 0
    count, at = readers.count(data, at + head, end, flexible, 2 + flexible, "Fetch.responses")
    left = readers.take(_MAX_ENTRIES, count, "Fetch.responses", at)
    topics: list[FetchedTopic] = []
    for _ in range(count):
        topic = FetchedTopic.__new__(FetchedTopic)
        topic.start = begin = at
        if version >= _IDS_SINCE:
            at = readers.topic_id(at, end, "Fetch.topic_id")
            topic.topic_id = octets.copy(data, begin, at)
            topic.name = ""
        else:
            begin, at = readers.text(data, at, end, flexible, "Fetch.topic")
            topic.topic_id = NO_UUID
            topic.name = readers.decoded(data, begin, at, "Fetch.topic")
        topic.partitions = []
        topic.partitions_at = at
        at = _fetched_partitions(data, at, end, scan, left, topic.partitions)
        left -= len(topic.partitions)
        if flexible:
            at = readers.skip_tags(data, at, end, "Fetch.topic.tags")
        topic.end = at
        topics.append(topic)
    scan.topics = topics
    if flexible:
        tags_at = at
        at = readers.skip_tags(data, at, end, "Fetch.tags")
        scan.untouched = scan.untouched and data[tags_at] == 0
    readers.finish("Fetch", at, end)
    return scan


def _fetched_partitions(
    data: Buffer, at: int, end: int, scan: FetchResponseScan, left: int, found: list[FetchedPartition]
) -> int:
    """Partition, error, high watermark, last stable offset (4 on), log start offset (5 on), aborted transactions,
    preferred replica (11 on), records. Their sums are noted in `scan`."""
    version = scan.version
    flexible = version >= _FLEXIBLE
    head = 14 if version < 4 else 22 if version < 5 else 30
    count, at = readers.count(data, at, end, flexible, head + 1, "Fetch.partitions")
    readers.take(left, count, "Fetch.partitions", at)
    for _ in range(count):
        if end - at < head:
            raise truncated("Fetch.partition", at, head, end)
        part = FetchedPartition.__new__(FetchedPartition)
        part.start = at
        part.partition = octets.int32(data, at)
        part.error_code = octets.int16(data, at + 4)
        part.high_watermark = octets.int64(data, at + 6)
        part.last_stable_offset = octets.int64(data, at + 14) if version >= 4 else -1
        part.log_start_offset = octets.int64(data, at + 22) if version >= 5 else -1
        at += head
        part.aborted_at = -1
        if version >= 4:
            part.aborted_at = at
            at = _skip_aborted(data, at, end, flexible)
        part.preferred_read_replica = part.replica_at = -1
        if version >= 11:
            if end - at < 4:
                raise truncated("Fetch.preferred_read_replica", at, 4, end)
            part.preferred_read_replica = octets.int32(data, at)
            part.replica_at = at
            at += 4
        if flexible:
            length, begin = readers.uvarint(data, at, end, "Fetch.records")
            length -= 1
        else:
            if end - at < 4:
                raise truncated("Fetch.records", at, 4, end)
            length = octets.int32(data, at)
            begin = at + 4
        if length < -1 or length > end - begin:
            raise readers.lying("Fetch.records", at, length, end - begin)
        part.records_start = begin if length >= 0 else -1
        part.record_bytes = length if length >= 0 else 0
        part.records_end = at = begin + part.record_bytes
        part.hints = False
        if flexible:
            part.hints = at >= end or data[at] != 0
            at = readers.skip_tags(data, at, end, "Fetch.partition.tags")
        part.end = at
        scan.record_bytes += part.record_bytes
        if part.error_code != 0 or part.hints or part.preferred_read_replica != -1:
            scan.untouched = False
        found.append(part)
    return at


def _skip_aborted(data: Buffer, at: int, end: int, flexible: bool) -> int:
    """Transactions that were aborted: an id and an offset each."""
    count, at = readers.nullable_count(data, at, end, flexible, 16 + flexible, "Fetch.aborted_transactions")
    if not flexible:
        return at + 16 * count if count > 0 else at
    for _ in range(count):
        at = readers.skip_tags(data, at + 16, end, "Fetch.aborted_transactions.tags")
    return at


def show_offsets(
    buffer: bytearray | memoryview,
    version: int,
    part: FetchedPartition,
    shift: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
) -> None:
    """Writes these marks over those of a partition, in place, and adds to its other offsets.

    These are the first offsets of aborted transactions, and the base offsets of batches, which lie outside the CRC.
    """
    data = octets.of(buffer)
    flexible = version >= _FLEXIBLE
    part.high_watermark = high_watermark
    octets.put64(buffer, part.start + 6, high_watermark)
    if version >= 4:
        part.last_stable_offset = last_stable_offset
        octets.put64(buffer, part.start + 14, last_stable_offset)
        field = "Fetch.aborted_transactions"
        count, at = readers.nullable_count(data, part.aborted_at, part.end, flexible, 16 + flexible, field)
        for _ in range(count):
            octets.put64(buffer, at + 8, octets.int64(data, at + 8) + shift)
            at += 16
            if flexible:
                at = readers.skip_tags(data, at, part.end, "Fetch.aborted_transactions.tags")
    if version >= 5:
        part.log_start_offset = log_start_offset
        octets.put64(buffer, part.start + 22, log_start_offset)
    at = part.records_start
    while part.record_bytes and part.records_end - at >= _LENGTH_FROM:
        length = octets.int32(data, at + 8)
        octets.put64(buffer, at, octets.int64(data, at) + shift)
        if length <= 0:
            break
        at += _LENGTH_FROM + length
