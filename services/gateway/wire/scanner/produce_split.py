"""Smaller Produce requests cut from a larger one, in its own version or another."""

from collections.abc import Sequence
from struct import Struct as Packing

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    Buffer,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
    write_uvarint,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.walks.produce import ProducePartition, ProduceScan, ProduceTopic

_PRODUCE_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_ACKS_AND_TIMEOUT = Packing(">hi")


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
    pieces: list[Buffer] = [head, written_count(len(parts), flexible)]
    for topic, partitions in parts:
        pieces.append(view[topic.start : topic.partitions_at] if same_names else _text(topic.name, flexible))
        pieces.append(written_count(len(partitions), flexible))
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
    return [number + written_count(length, flexible), records, _NO_TAGS if flexible else b""]


def written_count(count: int, flexible: bool) -> bytes:
    """The number of entries, or of bytes, as it stands before them."""
    if not flexible:
        return INT32.pack(count)
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)
