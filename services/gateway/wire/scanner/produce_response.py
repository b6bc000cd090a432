"""Produce responses: whether the answer may pass as it is, which is all that the hot path wants to know of it."""

from collections.abc import Mapping
from typing import NamedTuple

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import INT16, INT32, Buffer, WireError, read_int32, read_uvarint, truncated

_PRODUCE_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_SUPPORTED = range(3, 13)
"""Versions with names; from 13 on, topics have ids."""


def produce_response_is_clean(buffer: Buffer, version: int, offset: int, end: int) -> bool:
    """Whether `buffer[offset:end]` is a response without errors, messages and tags.

    False also for whatever is unusual: who wants to know more decodes. Raises WireError only for what ends too early.
    """
    if version not in _SUPPORTED:
        return False
    if version >= _PRODUCE_FLEXIBLE:
        return _flexible(buffer, offset, end) is not None
    return _classic(buffer, version, offset, end)


def with_topic_ids(
    buffer: Buffer, version: int, offset: int, end: int, topic_ids: Mapping[bytes, bytes]
) -> list[Buffer] | None:
    """The body in version 13, if the response is clean and flexible: ids in the place of names, the rest slices."""
    if version not in _SUPPORTED or version < _PRODUCE_FLEXIBLE:
        return None
    topics = _flexible(buffer, offset, end)
    if topics is None:
        return None
    view = memoryview(buffer)
    pieces: list[Buffer] = []
    at = offset
    for topic in topics:
        topic_id = topic_ids.get(bytes(view[topic.name_at : topic.partitions_at]))
        if topic_id is None:
            return None
        pieces += (view[at : topic.start], topic_id)
        at = topic.partitions_at
    pieces.append(view[at:end])
    return pieces


class _Topic(NamedTuple):
    start: int
    """The length of the name stands here."""
    name_at: int
    partitions_at: int


def _flexible(buffer: Buffer, at: int, end: int) -> list[_Topic] | None:
    """Where the topics lie in a clean response; None if it is not."""
    found: list[_Topic] = []
    topics, at = read_uvarint(buffer, at, end, "Produce.responses")
    for _ in range(topics - 1):
        start = at
        length, name_at = read_uvarint(buffer, at, end, "Produce.topic")
        at = name_at + length - 1
        found.append(_Topic(start, name_at, at))
        partitions, at = read_uvarint(buffer, at, end, "Produce.partitions")
        for _ in range(partitions - 1):
            # number, error, offset, time, start, then: no record errors, no message, no tags
            if end - at < 33:
                raise truncated("Produce.partition", at, 33, end)
            if buffer[at + 4] or buffer[at + 5] or buffer[at + 30] != 1 or buffer[at + 31] or buffer[at + 32]:
                return None
            at += 33
        if at >= end or buffer[at]:
            return None
        at += 1
    return found if end - at == 5 and not buffer[at + 4] else None


def _classic(buffer: Buffer, version: int, at: int, end: int) -> bool:
    size = 22 if version < 5 else 30
    topics, at = read_int32(buffer, at, end, "Produce.responses")
    for _ in range(topics):
        if end - at < 2:
            raise truncated("Produce.topic", at, 2, end)
        (length,) = INT16.unpack_from(buffer, at)
        if length < 0:
            raise WireError("Produce.topic", at, f"negative length {length}")
        partitions, at = read_int32(buffer, at + 2 + length, end, "Produce.partitions")
        for _ in range(partitions):
            if end - at < size:
                raise truncated("Produce.partition", at, size, end)
            if buffer[at + 4] or buffer[at + 5]:
                return False
            at += size
            if version == 8:
                if end - at < 6:
                    raise truncated("Produce.record_errors", at, 6, end)
                if INT32.unpack_from(buffer, at)[0] or INT16.unpack_from(buffer, at + 4)[0] != -1:
                    return False
                at += 6
    return end - at == 4
