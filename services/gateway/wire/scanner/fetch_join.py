"""Fetch responses out of the partitions of others: entries cut out, written in another version, and put together.

Records are never copied: they stay slices of the buffers that they came in.
"""

from collections.abc import Iterable, Sequence
from struct import Struct as Packing
from typing import NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    INT64,
    Buffer,
    read_compact_nullable_count,
    read_nullable_count,
    skip_tags,
    write_compact_nullable_count,
    write_compact_string,
    write_nullable_count,
    write_string,
    write_uvarint,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.walks import octets
from services.gateway.wire.scanner.walks.fetch_response import (
    FetchedPartition,
    FetchResponseScan,
    scan_fetch_response,
)
from services.gateway.wire.schema import NO_UUID

_FLEXIBLE = flexible_since(ApiKey.FETCH) or 0
_SESSIONS_SINCE = 7
_NO_ERROR = bytes(2)
_HEAD_4 = Packing(">ihqq")
"""Partition, error, high watermark, last stable offset ..."""
_HEAD_5 = Packing(">ihqqq")
"""... and log start offset."""
_NO_REPLICA = INT32.pack(-1)

Entry = Sequence[Buffer]
"""One partition of a response, in pieces."""


class Entries(NamedTuple):
    """Partitions of one topic, next to each other in an answer."""

    topic: str
    """Its name: not needed from version 13 on."""
    topic_id: bytes
    entries: Sequence[Entry]


def _form(version: int) -> int:
    """Versions of one form write a partition in the same way."""
    return 0 if version < 5 else 1 if version < 11 else 2 if version < _FLEXIBLE else 3


def cut_entry(buffer: Buffer, part: FetchedPartition, theirs: int, ours: int) -> Entry:
    """A partition of a response in version `theirs`, for one in version `ours` (both 4 or later), without what speaks
    of the cluster behind: tags and preferred replicas."""
    view = memoryview(buffer)
    tags = b"\x00" if ours >= _FLEXIBLE else b""
    if _form(theirs) != _form(ours):
        return _rewritten(view, part, theirs, ours)
    if part.preferred_read_replica == -1:
        return (view[part.start : part.records_end], tags)
    after = part.replica_at + len(_NO_REPLICA)
    return (view[part.start : part.replica_at], _NO_REPLICA, view[after : part.records_end], tags)


def _rewritten(view: memoryview, part: FetchedPartition, theirs: int, ours: int) -> Entry:
    head = bytearray(
        _numbers(
            ours, part.partition, part.error_code, part.high_watermark, part.last_stable_offset, part.log_start_offset
        )
    )
    _write_aborted(head, view, part, theirs, ours)
    null = part.records_start < 0
    _write_end_of_head(head, ours, -1 if null else part.record_bytes)
    records = view[part.records_end if null else part.records_start : part.records_end]
    return (bytes(head), records, b"\x00" if ours >= _FLEXIBLE else b"")


def shortened_entry(
    buffer: Buffer, part: FetchedPartition, version: int, records_end: int, last_stable_offset: int
) -> Entry:
    """A partition of a response with fewer records: those up to `records_end`, and another last stable offset."""
    view = memoryview(buffer)
    numbers = (part.partition, part.error_code, part.high_watermark, last_stable_offset, part.log_start_offset)
    head = bytearray(_numbers(version, *numbers))
    _write_aborted(head, view, part, version, version)
    records = view[part.records_start : records_end] if part.record_bytes else b""
    _write_end_of_head(head, version, len(records))
    return (bytes(head), records, b"\x00" if version >= _FLEXIBLE else b"")


def refilled(
    buffer: Buffer,
    part: FetchedPartition,
    version: int,
    records: Buffer,
    marks: tuple[int, int, int] | None = None,
    shift: int = 0,
) -> tuple[bytes, FetchedPartition]:
    """The same partition of a response with other records: a buffer, and the partition in it.

    `marks`: others than those of the partition; `shift` is added to the offsets of aborted transactions.
    """
    numbers = marks or (part.high_watermark, part.last_stable_offset, part.log_start_offset)
    head = bytearray(_numbers(version, part.partition, part.error_code, *numbers))
    _write_aborted(head, memoryview(buffer), part, version, version, shift)
    _write_end_of_head(head, version, len(records))
    entry = (bytes(head), records, b"\x00" if version >= _FLEXIBLE else b"")
    response = b"".join(join_fetch_response(version, [Entries("", NO_UUID, [entry])]))
    return response, scan_fetch_response(response, version, 0, len(response)).topics[0].partitions[0]


def own_entry(
    version: int,
    partition: int,
    error_code: int = 0,
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
) -> Entry:
    """A partition without records; marks of -1 are "unknown", which clients leave alone."""
    out = bytearray(_numbers(version, partition, error_code, high_watermark, last_stable_offset, log_start_offset))
    (write_compact_nullable_count if version >= _FLEXIBLE else write_nullable_count)(out, 0, "Fetch.aborted")
    _write_end_of_head(out, version, 0)
    if version >= _FLEXIBLE:
        out.append(0)
    return (bytes(out),)


def _numbers(version: int, partition: int, error: int, high_watermark: int, last_stable: int, log_start: int) -> bytes:
    if version < 5:
        return _HEAD_4.pack(partition, error, high_watermark, last_stable)
    return _HEAD_5.pack(partition, error, high_watermark, last_stable, log_start)


def _write_aborted(
    out: bytearray, view: memoryview, part: FetchedPartition, theirs: int, ours: int, shift: int = 0
) -> None:
    """The list of aborted transactions: an id and an offset each."""
    flexible = theirs >= _FLEXIBLE
    count_of = read_compact_nullable_count if flexible else read_nullable_count
    count, at = count_of(view, part.aborted_at, part.end, "Fetch.aborted_transactions", 16 + flexible)
    write = write_compact_nullable_count if ours >= _FLEXIBLE else write_nullable_count
    write(out, None if count < 0 else count, "Fetch.aborted_transactions")
    for _ in range(count):
        out += view[at : at + 8]
        out += INT64.pack(INT64.unpack_from(view, at + 8)[0] + shift)
        at = skip_tags(view, at + 16, part.end, "Fetch.aborted_transactions.tags") if flexible else at + 16
        if ours >= _FLEXIBLE:
            out.append(0)


def _write_end_of_head(out: bytearray, version: int, record_bytes: int) -> None:
    """No preferred replica, and the length of the records (-1: null)."""
    if version >= 11:
        out += _NO_REPLICA
    if version >= _FLEXIBLE:
        write_uvarint(out, record_bytes + 1)
    else:
        out += INT32.pack(record_bytes)


def join_fetch_response(
    version: int, topics: Sequence[Entries], throttle_time_ms: int = 0, session_id: int = 0
) -> list[Buffer]:
    """The body of one answer in `version`, in which its entries are written: pieces to send one after the other."""
    flexible = version >= _FLEXIBLE
    head = bytearray()
    octets.add32(head, throttle_time_ms)
    if version >= _SESSIONS_SINCE:
        head += _NO_ERROR
        octets.add32(head, session_id)
    octets.add_count(head, flexible, len(topics))
    pieces: list[Buffer] = []
    for topic, topic_id, entries in topics:
        if version >= IDS_SINCE:
            head += topic_id
        else:
            (write_compact_string if flexible else write_string)(head, topic, "Fetch.topic")
        octets.add_count(head, flexible, len(entries))
        for entry in entries:
            for piece in entry:
                if len(piece) > SMALL:
                    pieces += (bytes(head), piece)
                    head.clear()
                else:
                    head += piece
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    pieces.append(bytes(head))
    return pieces


def with_topic_ids(
    frame: memoryview, scan: FetchResponseScan, topic_ids: Sequence[bytes], session_id: int
) -> list[Buffer]:
    """The whole answer of a broker in the last version with names, with ids in the place of the names."""
    head = bytearray()
    octets.add32(head, scan.throttle_time_ms)
    head += _NO_ERROR
    octets.add32(head, session_id)
    octets.add_count(head, True, len(topic_ids))
    pieces: list[Buffer] = []
    for topic, topic_id in zip(scan.topics, topic_ids, strict=True):
        head += topic_id
        entries = frame[topic.partitions_at : topic.end]
        if len(entries) > SMALL:
            pieces += (bytes(head), entries)
            head.clear()
        else:
            head += entries
    head.append(0)
    pieces.append(bytes(head))
    return pieces


SMALL = 512
"""Pieces up to this many bytes are cheaper to copy than to send one by one."""


def by_topic(entries: Iterable[tuple[str, bytes, Entry]]) -> list[Entries]:
    """Neighbours of one topic put together, as brokers write them."""
    found: list[Entries] = []
    last: list[Entry] = []
    for topic, topic_id, entry in entries:
        if not found or (found[-1].topic, found[-1].topic_id) != (topic, topic_id):
            last = []
            found.append(Entries(topic, topic_id, last))
        last.append(entry)
    return found
