"""Produce requests: their topics and partitions, and the offsets of their records."""

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.batches import HEADER_BYTES, MOST_COUNTED, BatchHeader, batches, read_batch_header
from services.gateway.wire.primitives import Buffer, truncated
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES
from services.gateway.wire.scanner.walks import octets, readers
from services.gateway.wire.schema import NO_UUID

_IDS_SINCE = IDS_SINCE
_MAX_ENTRIES = MAX_ENTRIES
_HEADER_BYTES = HEADER_BYTES
_MOST_COUNTED = MOST_COUNTED
_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_CLOSED = 0x27
"""The attributes of batches whose records can't be read: compressed ones, and markers of transactions."""
_SMALL_BYTES = 1_000
"""Records below this size, on average, are not walked: to search their bytes costs less."""


class ProducePartition:
    __slots__ = ("end", "partition", "records", "records_end", "records_start", "start")
    partition: int
    start: int
    """The start of the partition's entry (its number) ..."""
    end: int
    """... and its end (after its tags)."""
    records_start: int
    """-1 where the records are null."""
    records_end: int
    records: int
    """How many, as `first_headers` has found them."""

    def first_batch(self, buffer: Buffer) -> BatchHeader:
        """Producer id, epoch, sequence, count: raises `WireError` where there is no whole batch of magic 2."""
        return read_batch_header(buffer, max(self.records_start, 0), self.records_end)

    def batch_starts(self, buffer: Buffer) -> list[int]:
        """The start of each batch. Brokers take exactly one batch; a client may send more."""
        if self.records_start < 0:
            return []
        return [header.start for header in batches(buffer, self.records_start, self.records_end)]


class ProduceTopic:
    __slots__ = (
        "end", "name", "partitions", "partitions_at", "record_bytes", "records", "start", "tags_at", "topic_id",
    )  # fmt: skip
    name: str
    topic_id: bytes
    start: int
    """The start of the topic's name or id ..."""
    partitions_at: int
    """... and its end: the count of the topic's partitions stands here."""
    tags_at: int
    """After the last partition; the topic's tags stand here in flexible versions."""
    end: int
    partitions: list[ProducePartition]
    records: int
    """The sums over the partitions, as `first_headers` has found them."""
    record_bytes: int

    def named(self, name: str) -> "ProduceTopic":
        """The same under another name."""
        topic = ProduceTopic.__new__(ProduceTopic)
        topic.records, topic.record_bytes = self.records, self.record_bytes
        topic.name = name
        topic.topic_id = self.topic_id
        topic.start = self.start
        topic.partitions_at = self.partitions_at
        topic.tags_at = self.tags_at
        topic.end = self.end
        topic.partitions = self.partitions
        return topic


class ProduceScan:
    __slots__ = ("acks", "end", "start", "tags_at", "timeout_ms", "topics", "topics_at", "transactional_id", "version")
    version: int
    transactional_id: str | None
    acks: int
    timeout_ms: int
    start: int
    topics_at: int
    """The count of topics stands here; all before it is the same for every part of a split."""
    tags_at: int
    end: int
    topics: list[ProduceTopic]

    def of(self, topics: list[ProduceTopic]) -> "ProduceScan":
        """The same request with these topics alone."""
        scan = ProduceScan.__new__(ProduceScan)
        scan.version = self.version
        scan.transactional_id = self.transactional_id
        scan.acks = self.acks
        scan.timeout_ms = self.timeout_ms
        scan.start = self.start
        scan.topics_at = self.topics_at
        scan.tags_at = self.tags_at
        scan.end = self.end
        scan.topics = topics
        return scan


def scan_produce(buffer: Buffer, version: int, offset: int, end: int) -> ProduceScan:
    """The Produce request whose body is `buffer[offset:end]`."""
    readers.enclose("Produce", buffer, offset, end)
    data = octets.of(buffer)
    flexible = version >= _FLEXIBLE
    scan = ProduceScan.__new__(ProduceScan)
    at = _head(data, scan, version, offset, end)
    count, at = readers.count(data, at, end, flexible, 2 + flexible, "Produce.topics")
    left = readers.take(_MAX_ENTRIES, count, "Produce.topics", at)
    topics: list[ProduceTopic] = []
    for _ in range(count):
        topic = ProduceTopic.__new__(ProduceTopic)
        topic.records = topic.record_bytes = 0
        at = _named(data, topic, version, at, end)
        topic.partitions = []
        at = _produce_partitions(data, at, end, flexible, left, topic.partitions)
        left -= len(topic.partitions)
        topic.tags_at = at
        if flexible:
            at = readers.skip_tags(data, at, end, "Produce.topic.tags")
        topic.end = at
        topics.append(topic)
    scan.topics = topics
    scan.tags_at = at
    if flexible:
        at = readers.skip_tags(data, at, end, "Produce.tags")
    readers.finish("Produce", at, end)
    scan.end = end
    return scan


def scan_produce_beginning(buffer: Buffer, version: int, offset: int, end: int, size: int) -> ProduceScan | None:
    """The Produce that begins in `buffer[offset:end]` and ends at `size`.

    None unless it has one partition, whose records begin here, and nothing but empty tags behind them.
    """
    readers.enclose("Produce", buffer, offset, end)
    data = octets.of(buffer)
    flexible = version >= _FLEXIBLE
    scan = ProduceScan.__new__(ProduceScan)
    topic = ProduceTopic.__new__(ProduceTopic)
    part = ProducePartition.__new__(ProducePartition)
    topic.records = topic.record_bytes = part.records = 0
    at = _head(data, scan, version, offset, end)
    count, at = readers.count(data, at, end, flexible, 0, "Produce.topics")
    if count != 1:
        return None
    at = _named(data, topic, version, at, end)
    count, at = readers.count(data, at, end, flexible, 0, "Produce.partitions")
    if count != 1 or end - at < 8:
        return None
    part.partition = octets.int32(data, at)
    part.start = at
    if flexible:
        length, at = readers.uvarint(data, at + 4, end, "Produce.records")
        length -= 1
    else:
        length = octets.int32(data, at + 4)
        at += 8
    part.records_start = at
    part.records_end = at + length
    part.end = topic.tags_at = part.records_end + flexible
    topic.end = scan.tags_at = topic.tags_at + flexible
    scan.end = scan.tags_at + flexible
    topic.partitions = [part]
    scan.topics = [topic]
    return None if length < 0 or scan.end != size else scan


def first_headers(buffer: Buffer, scan: ProduceScan) -> bytes | None:
    """The header bytes of the first batch of each partition of the request in `buffer`; None if a partition has
    fewer. Notes the numbers of records, by the headers of all batches, as `count_records` takes them."""
    readers.enclose("Produce", buffer, scan.start, scan.end)
    data = octets.of(buffer)
    found: list[bytes] = []
    for topic in scan.topics:
        records = size = 0
        for part in topic.partitions:
            start = part.records_start
            if start < 0 or part.records_end - start < _HEADER_BYTES:
                return None
            found.append(octets.copy(data, start, start + _HEADER_BYTES))
            part.records = _count_records(data, start, part.records_end)
            records += part.records
            size += part.records_end - start
        topic.records = records
        topic.record_bytes = size
    return b"".join(found)


def led_by(topic: ProduceTopic, leaders: tuple[int | None, ...]) -> int | None:
    """The broker that leads all partitions that the request has of a topic, by the leaders of all partitions there are;
    None if one of them has no leader, or another one, or does not exist."""
    found: int | None = None
    known = len(leaders)
    for part in topic.partitions:
        if part.partition < 0 or part.partition >= known:
            return None
        leader = leaders[part.partition]
        if leader is None or (found is not None and leader != found):
            return None
        found = leader
    return found


def _count_records(data: Buffer, start: int, end: int) -> int:
    records = 0
    at = start
    for _ in range(_MOST_COUNTED):
        if end - at < _HEADER_BYTES:
            return records
        length = octets.int32(data, at + 8)
        stop = at + 12 + length
        if data[at + 16] != 2 or length < _HEADER_BYTES - 12 or stop > end:
            return records
        if not data[at + 22] & 0x20:  # markers of transactions are no records
            records += octets.int32(data, at + 57)
        at = stop
    counted = records  # that many records times so many bytes may be more than a machine's word holds
    return counted * (end - start) // (at - start)


def may_have_headers(data: Buffer, start: int, end: int, most: int) -> bool:
    """Whether one of the first `most` records of the batch at `start` has headers, as far as they end before `end`.

    Records have none if they can't be read. Small records may have some. The caller compares `end` with the buffer.
    """
    if end - start < _HEADER_BYTES or data[start + 16] != 2 or data[start + 22] & _CLOSED:
        return False
    count, at = octets.int32(data, start + 57), start + _HEADER_BYTES
    if count * _SMALL_BYTES > end - start:
        return True
    for _ in range(min(count, most)):
        place = _behind_varint(data, at, end)
        at = place + _length(data, at, end)  # of the next record
        if at > end or at == place:
            return False
        place = _behind_varint(data, place + 1, at)  # the time, behind the attributes
        place = _behind_varint(data, place, at)  # the offset
        place = _behind_varint(data, place, at) + _length(data, place, at)  # the key
        place = _behind_varint(data, place, at) + _length(data, place, at)  # the value
        if place >= at:
            return False
        if data[place]:
            return True
    return False


def _behind_varint(data: Buffer, at: int, end: int) -> int:
    while at < end and data[at] > 0x7F:
        at += 1
    return at + 1


def _length(data: Buffer, at: int, end: int) -> int:
    """The length that stands here; 0 for null."""
    found = shift = 0
    while at < end and shift <= 28:
        found |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            break
        shift += 7
        at += 1
    return 0 if found & 1 else found >> 1


def _head(data: Buffer, scan: ProduceScan, version: int, offset: int, end: int) -> int:
    """Notes all before the topics, and returns where these begin."""
    scan.version = version
    scan.transactional_id = None
    scan.start = at = offset
    if version >= 3:
        begin, at = readers.nullable_text(data, at, end, version >= _FLEXIBLE, "Produce.transactional_id")
        if begin >= 0:
            scan.transactional_id = readers.decoded(data, begin, at, "Produce.transactional_id")
    if end - at < 6:
        raise truncated("Produce.acks", at, 6, end)
    scan.acks = octets.int16(data, at)
    scan.timeout_ms = octets.int32(data, at + 2)
    scan.topics_at = at + 6
    return at + 6


def _named(data: Buffer, topic: ProduceTopic, version: int, at: int, end: int) -> int:
    """Notes the topic's name or id, and returns where its partitions begin."""
    topic.start = at
    if version >= _IDS_SINCE:
        at = readers.topic_id(at, end, "Produce.topic_id")
        topic.topic_id = octets.copy(data, topic.start, at)
        topic.name = ""
    else:
        begin, at = readers.text(data, at, end, version >= _FLEXIBLE, "Produce.topic")
        topic.topic_id = NO_UUID
        topic.name = readers.decoded(data, begin, at, "Produce.topic")
    topic.partitions_at = at
    return at


def _produce_partitions(
    data: Buffer, at: int, end: int, flexible: bool, left: int, found: list[ProducePartition]
) -> int:
    least = 6 if flexible else 8
    head = 5 if flexible else 8
    count, at = readers.count(data, at, end, flexible, least, "Produce.partitions")
    readers.take(left, count, "Produce.partitions", at)
    for _ in range(count):
        if end - at < head:
            raise truncated("Produce.partition", at, head, end)
        part = ProducePartition.__new__(ProducePartition)
        part.records = 0
        part.partition = octets.int32(data, at)
        part.start = at
        if flexible:
            length, begin = readers.uvarint(data, at + 4, end, "Produce.records")
            length -= 1
        else:
            length = octets.int32(data, at + 4)
            begin = at + 8
        stop = begin + length if length > 0 else begin
        # in flexible versions the entry's tags follow, so records never end with the request
        if stop + flexible > end or length < -1:
            raise readers.lying("Produce.records", at + 4, length, end - begin)
        part.records_start = begin if length >= 0 else -1
        part.records_end = at = stop
        if flexible:
            at = readers.skip_tags(data, stop, end, "Produce.partition.tags")
        part.end = at
        found.append(part)
    return at
