"""Produce responses: whether the answer may pass as it is, which is all that the hot path wants to know of it."""

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
        return _flexible(buffer, offset, end)
    return _classic(buffer, version, offset, end)


def _flexible(buffer: Buffer, at: int, end: int) -> bool:
    topics, at = read_uvarint(buffer, at, end, "Produce.responses")
    for _ in range(topics - 1):
        length, at = read_uvarint(buffer, at, end, "Produce.topic")
        partitions, at = read_uvarint(buffer, at + length - 1, end, "Produce.partitions")
        for _ in range(partitions - 1):
            # number, error, offset, time, start, then: no record errors, no message, no tags
            if end - at < 33:
                raise truncated("Produce.partition", at, 33, end)
            if buffer[at + 4] or buffer[at + 5] or buffer[at + 30] != 1 or buffer[at + 31] or buffer[at + 32]:
                return False
            at += 33
        if at >= end or buffer[at]:
            return False
        at += 1
    return end - at == 5 and not buffer[at + 4]


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
