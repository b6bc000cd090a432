"""The beginning of a large Fetch response that still comes: it shows whether the response may pass.

The beginning of an answer with one partition shows everything before the records are there. Only tags follow the
records, and the size shows that these tags are empty.
"""

from struct import Struct as Packing
from typing import Final, NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import (
    INT32,
    Buffer,
    WireError,
    read_compact_nullable_count,
    read_compact_string,
    read_nullable_count,
    read_string,
    read_uvarint,
    skip_tags,
    truncated,
)

_FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
_HEAD_4: Final = Packing(">i")
"""Throttle time ..."""
_HEAD_7: Final = Packing(">ihi")
"""... error, and session."""
_MARKS_4: Final = Packing(">ihqq")
"""Partition, error, high watermark, last stable offset ..."""
_MARKS_5: Final = Packing(">ihqqq")
"""... and the log start offset."""
_TAGS: Final = 3
"""Bytes of the tags of partition, topic and answer, if all are empty."""
_ABORTED_BYTES: Final = 16
_NO_REPLICA: Final = -1


class FetchBeginning(NamedTuple):
    """The beginning of an answer without errors and hints, about one partition."""

    throttle_time_ms: int
    topic: str
    partitions_at: int
    """The offset of the count of the topic's partitions. The bytes from here on do not depend on the topic's name."""
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_at: int
    record_bytes: int


def read_beginning(buffer: Buffer, version: int, offset: int, end: int, missing: int) -> FetchBeginning | None:
    """The response (version 4 or later, with names) whose body begins with `buffer[offset:end]`; `missing` bytes
    follow. None for a response with more than one partition, or if only the whole answer shows enough."""
    try:
        return _read(buffer, version, offset, end, missing)
    except WireError:  # the beginning may only be cut
        return None


def _read(buffer: Buffer, version: int, offset: int, end: int, missing: int) -> FetchBeginning | None:
    flexible = version >= _FLEXIBLE
    head = _HEAD_7 if version >= 7 else _HEAD_4
    throttle, *others = _unpacked(head, buffer, offset, end)
    if any(others):
        return None
    at = _behind_count_of_one(buffer, offset + head.size, end, flexible)
    topic, partitions_at = (read_compact_string if flexible else read_string)(buffer, at, end, "Fetch.topic")
    at = _behind_count_of_one(buffer, partitions_at, end, flexible)
    marks = _MARKS_5 if version >= 5 else _MARKS_4
    partition, error, high, stable, *start = _unpacked(marks, buffer, at, end)
    if error:
        return None
    nullable = read_compact_nullable_count if flexible else read_nullable_count
    aborted, at = nullable(buffer, at + marks.size, end, "Fetch.aborted_transactions", _ABORTED_BYTES + flexible)
    for _ in range(aborted):
        at += _ABORTED_BYTES
        if flexible:
            at = skip_tags(buffer, at, end, "Fetch.aborted_transactions.tags")
    if version >= 11:
        (replica,) = _unpacked(INT32, buffer, at, end)
        if replica != _NO_REPLICA:
            return None
        at += INT32.size
    if flexible:
        length, at = read_uvarint(buffer, at, end, "Fetch.records")
        length -= 1
    else:
        (length,) = _unpacked(INT32, buffer, at, end)
        at += INT32.size
    if length < 0 or at + length + (_TAGS if flexible else 0) != end + missing:
        return None
    return FetchBeginning(
        throttle, topic, partitions_at, partition, high, stable, start[0] if start else -1, at, length
    )


def _behind_count_of_one(buffer: Buffer, at: int, end: int, flexible: bool) -> int:
    """The offset behind a count of one. Raises WireError for any other count, too."""
    if flexible:
        count, behind = read_uvarint(buffer, at, end, "Fetch")
    else:
        (count,), behind = _unpacked(INT32, buffer, at, end), at + INT32.size
    if count != 1 + flexible:
        raise WireError("Fetch", at, "not one")
    return behind


def _unpacked(layout: Packing, buffer: Buffer, at: int, end: int) -> tuple[int, ...]:
    if end - at < layout.size:
        raise truncated("Fetch", at, layout.size, end)
    return layout.unpack_from(buffer, at)
