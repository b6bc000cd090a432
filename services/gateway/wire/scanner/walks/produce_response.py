"""Produce responses: whether the answer may pass as it is, or with other offsets."""

from collections.abc import Mapping

from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.primitives import Buffer, WireError, truncated
from services.gateway.wire.scanner.walks import octets, readers

_FLEXIBLE = flexible_since(ApiKey.PRODUCE) or 0
_FIRST, _LAST = 3, 12
"""Versions with names; from 13 on, topics have ids."""


class AnsweredTopic:
    """The offsets of a topic's name."""

    __slots__ = ("name_at", "partitions_at", "start")
    start: int
    """The length of the name stands here."""
    name_at: int
    partitions_at: int


def produce_response_is_clean(buffer: Buffer, version: int, offset: int, end: int) -> bool:
    """Whether `buffer[offset:end]` is a response without errors, messages and tags.

    False also for any unusual response: the decoder shows more. Raises WireError only if the response ends too early.
    """
    if version < _FIRST or version > _LAST:
        return False
    readers.enclose("Produce", buffer, offset, end)
    if version >= _FLEXIBLE:
        return _flexible(octets.of(buffer), offset, end, None)
    return _classic(octets.of(buffer), version, offset, end, None)


def base_offsets(buffer: Buffer, version: int, offset: int, end: int) -> dict[tuple[bytes, int], int]:
    """The base offsets in a clean response, by the topic's name and the partition's number."""
    readers.enclose("Produce", buffer, offset, end)
    data = octets.of(buffer)
    flexible, size = version >= _FLEXIBLE, _partition_bytes(version)
    found: dict[tuple[bytes, int], int] = {}
    for topic in _topics(data, version, offset, end):
        name = octets.copy(data, topic.name_at, topic.partitions_at)
        partitions, at = readers.count(data, topic.partitions_at, end, flexible, size, "Produce.partitions")
        for _ in range(partitions):
            found[name, octets.int32(data, at)] = octets.int64(data, at + 6)
            at += size
    return found


def shift_offsets(
    buffer: bytearray | memoryview, version: int, offset: int, end: int, shifts: Mapping[bytes, tuple[int, ...]]
) -> None:
    """Adds to the offsets of a clean response, in place; `shifts`: by the topic's name and the partition's number."""
    readers.enclose("Produce", buffer, offset, end)
    data = octets.of(buffer)
    flexible, size = version >= _FLEXIBLE, _partition_bytes(version)
    for topic in _topics(data, version, offset, end):
        of_topic = shifts.get(octets.copy(data, topic.name_at, topic.partitions_at))
        if of_topic is None:
            continue
        known = len(of_topic)
        partitions, at = readers.count(data, topic.partitions_at, end, flexible, size, "Produce.partitions")
        for _ in range(partitions):
            number = octets.int32(data, at)
            if 0 <= number < known:
                shift = of_topic[number]
                _shift(buffer, data, at + 6, shift)
                if version >= 5:
                    _shift(buffer, data, at + 22, shift)
            at += size


def _shift(buffer: bytearray | memoryview, data: Buffer, at: int, shift: int) -> None:
    offset = octets.int64(data, at)
    if offset >= 0:
        octets.put64(buffer, at, offset + shift)


def _topics(data: Buffer, version: int, offset: int, end: int) -> list[AnsweredTopic]:
    """The topics of a clean response."""
    found: list[AnsweredTopic] = []
    if version >= _FLEXIBLE:
        _flexible(data, offset, end, found)
    else:
        _classic(data, version, offset, end, found)
    return found


def _partition_bytes(version: int) -> int:
    """The size of a partition in a clean response."""
    return 33 if version >= _FLEXIBLE else 22 if version < 5 else 36 if version == 8 else 30


def topics_of_clean_response(buffer: Buffer, version: int, offset: int, end: int) -> list[AnsweredTopic] | None:
    """The offsets of the topics in a response that is clean and flexible; None for any other response."""
    if version < _FLEXIBLE or version > _LAST:
        return None
    readers.enclose("Produce", buffer, offset, end)
    found: list[AnsweredTopic] = []
    return found if _flexible(octets.of(buffer), offset, end, found) else None


def _flexible(data: Buffer, at: int, end: int, found: list[AnsweredTopic] | None) -> bool:
    topics, at = readers.uvarint(data, at, end, "Produce.responses")
    for _ in range(topics - 1):
        start = at
        length, name_at = readers.uvarint(data, at, end, "Produce.topic")
        at = name_at + length - 1
        if found is not None:
            topic = AnsweredTopic.__new__(AnsweredTopic)
            topic.start = start
            topic.name_at = name_at
            topic.partitions_at = at
            found.append(topic)
        partitions, at = readers.uvarint(data, at, end, "Produce.partitions")
        for _ in range(partitions - 1):
            # number, error, offset, time, start, then: no record errors, no message, no tags
            if end - at < 33:
                raise truncated("Produce.partition", at, 33, end)
            if data[at + 4] or data[at + 5] or data[at + 30] != 1 or data[at + 31] or data[at + 32]:
                return False
            at += 33
        if at >= end or data[at]:
            return False
        at += 1
    return end - at == 5 and data[at + 4] == 0


def _classic(data: Buffer, version: int, at: int, end: int, found: list[AnsweredTopic] | None) -> bool:
    size = 22 if version < 5 else 30
    topics, at = _int32(data, at, end, "Produce.responses")
    for _ in range(topics):
        if end - at < 2:
            raise truncated("Produce.topic", at, 2, end)
        length = octets.int16(data, at)
        if length < 0:
            raise WireError("Produce.topic", at, f"negative length {length}")
        start = at
        at += 2 + length
        if found is not None:
            topic = AnsweredTopic.__new__(AnsweredTopic)
            topic.start = start
            topic.name_at = start + 2
            topic.partitions_at = at
            found.append(topic)
        partitions, at = _int32(data, at, end, "Produce.partitions")
        for _ in range(partitions):
            if end - at < size:
                raise truncated("Produce.partition", at, size, end)
            if data[at + 4] or data[at + 5]:
                return False
            at += size
            if version == 8:
                if end - at < 6:
                    raise truncated("Produce.record_errors", at, 6, end)
                if octets.int32(data, at) or octets.int16(data, at + 4) != -1:
                    return False
                at += 6
    return end - at == 4


def _int32(data: Buffer, at: int, end: int, field: str) -> tuple[int, int]:
    if end - at < 4:
        raise truncated(field, at, 4, end)
    return octets.int32(data, at), at + 4
