"""Produce: which topics and partitions, and where their records lie; smaller requests cut from a larger one."""

from collections.abc import Sequence
from struct import Struct as Packing
from typing import NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.batches import BatchHeader, batches, read_batch_header
from services.gateway.wire.primitives import (
    INT32,
    Buffer,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    truncated,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
    write_uvarint,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE, MAX_ENTRIES, TWO_INT32, finished, lying, read_topic_id, take
from services.gateway.wire.schema import NO_UUID

_PRODUCE_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_ACKS_AND_TIMEOUT = Packing(">hi")


class ProducePartition(NamedTuple):
    partition: int
    start: int
    """Where the partition's entry begins (its number) ..."""
    end: int
    """... and ends (after its tags)."""
    records_start: int
    """-1 where the records are null."""
    records_end: int

    def first_batch(self, buffer: Buffer) -> BatchHeader:
        """Producer id, epoch, sequence, count: raises `WireError` where there is no whole batch of magic 2."""
        return read_batch_header(buffer, max(self.records_start, 0), self.records_end)

    def batch_starts(self, buffer: Buffer) -> list[int]:
        """Where each batch begins. Brokers take exactly one; what a client sends may hold more."""
        if self.records_start < 0:
            return []
        return [header.start for header in batches(buffer, self.records_start, self.records_end)]


class ProduceTopic(NamedTuple):
    name: str
    topic_id: bytes
    start: int
    """Where the topic's name or id begins ..."""
    partitions_at: int
    """... and ends: the count of its partitions stands here."""
    tags_at: int
    """After the last partition; the topic's tags stand here in flexible versions."""
    end: int
    partitions: list[ProducePartition]


class ProduceScan(NamedTuple):
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


def scan_produce(buffer: Buffer, version: int, offset: int, end: int) -> ProduceScan:
    """The Produce request whose body is `buffer[offset:end]`."""
    flexible = version >= _PRODUCE_FLEXIBLE
    at = offset
    transactional_id = None
    if version >= 3:
        read_id = read_compact_nullable_string if flexible else read_nullable_string
        transactional_id, at = read_id(buffer, at, end, "Produce.transactional_id")
    if end - at < 6:
        raise truncated("Produce.acks", at, 6, end)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(buffer, at)
    topics_at = at + 6
    count_of = read_compact_count if flexible else read_count
    text = read_compact_string if flexible else read_string
    count, at = count_of(buffer, topics_at, end, "Produce.topics", 2 + flexible)
    left = take(MAX_ENTRIES, count, "Produce.topics", at)
    topics: list[ProduceTopic] = []
    for _ in range(count):
        start = at
        if version >= IDS_SINCE:
            name, topic_id, at = "", *read_topic_id(buffer, at, end, "Produce.topic_id")
        else:
            name, at = text(buffer, at, end, "Produce.topic")
            topic_id = NO_UUID
        partitions_at = at
        partitions, tags_at = _produce_partitions(buffer, at, end, flexible, left)
        left -= len(partitions)
        at = skip_tags(buffer, tags_at, end, "Produce.topic.tags") if flexible else tags_at
        topics.append(ProduceTopic(name, topic_id, start, partitions_at, tags_at, at, partitions))
    tags_at = at
    if flexible:
        at = skip_tags(buffer, at, end, "Produce.tags")
    finished("Produce", at, end)
    return ProduceScan(version, transactional_id, acks, timeout_ms, offset, topics_at, tags_at, end, topics)


def _produce_partitions(
    buffer: Buffer, at: int, end: int, flexible: bool, left: int
) -> tuple[list[ProducePartition], int]:
    partitions: list[ProducePartition] = []
    if flexible:
        count, at = read_compact_count(buffer, at, end, "Produce.partitions", 6)
        take(left, count, "Produce.partitions", at)
        for _ in range(count):
            if end - at < 5:
                raise truncated("Produce.partition", at, 5, end)
            (number,) = INT32.unpack_from(buffer, at)
            length, records = read_uvarint(buffer, at + 4, end, "Produce.records")
            stop = records + length - 1 if length else records
            if stop >= end:  # the entry's tags follow, so records never end with the request
                raise lying("Produce.records", at + 4, length - 1, end - records)
            start, at = at, stop + 1
            if buffer[stop]:
                at = skip_tags(buffer, stop, end, "Produce.partition.tags")
            partitions.append(ProducePartition(number, start, at, records if length else -1, stop))
        return partitions, at
    count, at = read_count(buffer, at, end, "Produce.partitions", 8)
    take(left, count, "Produce.partitions", at)
    for _ in range(count):
        if end - at < 8:
            raise truncated("Produce.partition", at, 8, end)
        number, length = TWO_INT32.unpack_from(buffer, at)
        records = at + 8
        stop = records + length if length > 0 else records
        if stop > end or length < -1:
            raise lying("Produce.records", at + 4, length, end - records)
        partitions.append(ProducePartition(number, at, stop, records if length >= 0 else -1, stop))
        at = stop
    return partitions, at


def split_produce(
    buffer: Buffer,
    scan: ProduceScan,
    parts: Sequence[tuple[ProduceTopic, Sequence[ProducePartition]]],
    version: int | None = None,
) -> list[Buffer]:
    """The body of a Produce with some of the partitions of `scan`: pieces to send one after the other.

    Records are slices of `buffer`, and so is all else that does not change. In another `version` than the scan's, which
    must name topics, heads are written anew. Tags that this code does not know stay where they can.
    """
    view = memoryview(buffer)
    version = scan.version if version is None else version
    flexible = version >= _PRODUCE_FLEXIBLE
    same_form = flexible == (scan.version >= _PRODUCE_FLEXIBLE)
    same_names = same_form and (version >= IDS_SINCE) == (scan.version >= IDS_SINCE)
    head: Buffer = view[scan.start : scan.topics_at] if same_form else _head(scan, version)
    pieces: list[Buffer] = [head, _count(len(parts), flexible)]
    for topic, partitions in parts:
        pieces.append(view[topic.start : topic.partitions_at] if same_names else _text(topic.name, flexible))
        pieces.append(_count(len(partitions), flexible))
        for partition in partitions:
            if same_form:
                pieces.append(view[partition.start : partition.end])
            else:
                pieces += _rewritten(view, partition, flexible)
        if flexible:
            pieces.append(view[topic.tags_at : topic.end] if same_form else _NO_TAGS)
    if flexible:
        pieces.append(view[scan.tags_at : scan.end] if same_form else _NO_TAGS)
    return pieces


_NO_TAGS = b"\x00"


def _head(scan: ProduceScan, version: int) -> bytes:
    """All before the count of topics."""
    out = bytearray()
    if version >= _PRODUCE_FLEXIBLE:
        write_compact_nullable_string(out, scan.transactional_id, "Produce.transactional_id")
    elif version >= 3:
        write_nullable_string(out, scan.transactional_id, "Produce.transactional_id")
    return bytes(out + _ACKS_AND_TIMEOUT.pack(scan.acks, scan.timeout_ms))


def _text(name: str, flexible: bool) -> bytes:
    out = bytearray()
    write = write_compact_string if flexible else write_string
    write(out, name, "Produce.topic")
    return bytes(out)


def _rewritten(view: memoryview, partition: ProducePartition, flexible: bool) -> list[Buffer]:
    """One partition's entry in the other form."""
    null = partition.records_start < 0
    length = -1 if null else partition.records_end - partition.records_start
    records = view[partition.records_end if null else partition.records_start : partition.records_end]
    number = INT32.pack(partition.partition)
    return [number + _count(length, flexible), records, _NO_TAGS if flexible else b""]


def _count(count: int, flexible: bool) -> bytes:
    if not flexible:
        return INT32.pack(count)
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)
