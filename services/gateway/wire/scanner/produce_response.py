"""Produce responses that pass: as they are, with ids in the place of names, or several of them as one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.gateway.wire.primitives import INT32, Buffer
from services.gateway.wire.scanner.produce_split import written_count
from services.gateway.wire.scanner.walks.produce_response import produce_response_is_clean, topics_of_clean_response

__all__ = ["Awaited", "join_clean", "produce_response_is_clean", "throttle_ms", "with_topic_ids"]

_PARTITION_BYTES = 33
"""Size of a partition in a clean flexible response: number, error, offset, time, start, three empty fields."""
_END_BYTES = 5
"""Size of the throttle time, and of the empty tags, behind the topics."""


class Awaited(NamedTuple):
    """A topic that is to be in a response."""

    name: bytes
    topic_id: bytes | None
    """The id that stands in the place of its name."""
    partitions: int
    """The number of partitions."""


def throttle_ms(frame: memoryview, *, flexible: bool) -> int:
    """For how long, in ms, the broker reads nothing more from the connection of this response.

    A response with tags, which names another leader, counts as none: its client is about to go there.
    """
    end = len(frame)
    if flexible:
        end -= 1
        if frame[end]:
            return 0
    return int(INT32.unpack_from(frame, end - INT32.size)[0])


def with_topic_ids(
    buffer: Buffer, version: int, offset: int, end: int, topic_ids: Mapping[bytes, bytes]
) -> list[Buffer] | None:
    """The body in version 13, if the response is clean and flexible: ids in the place of names, the rest slices.

    Other names, written as in flexible versions, may stand in the place of the ids: then the version stays.
    """
    topics = topics_of_clean_response(buffer, version, offset, end)
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


def join_clean(responses: Sequence[tuple[Buffer, int, int, int]], topics: Sequence[Awaited]) -> list[Buffer] | None:
    """The body of one response made of several (each: buffer, version, start and end of its body), topics in this
    order; slices of them but for ids and the throttle time. The throttle time is the longest of theirs. None unless
    they are clean and flexible. Each topic must be in exactly one of them, with as many partitions, and no other topic
    may be there.
    """
    throttle_ms = 0
    entries: dict[bytes, tuple[memoryview, memoryview]] = {}
    for buffer, version, offset, end in responses:
        found = topics_of_clean_response(buffer, version, offset, end)
        if found is None:
            return None
        view, stop = memoryview(buffer), end - _END_BYTES
        throttle_ms = max(throttle_ms, INT32.unpack_from(view, stop)[0])
        for topic in reversed(found):
            name = view[topic.name_at : topic.partitions_at].tobytes()
            entries[name] = view[topic.start : topic.partitions_at], view[topic.partitions_at : stop]
            stop = topic.start
    if len(entries) != len(topics):
        return None
    pieces: list[Buffer] = [written_count(len(topics), True)]
    for awaited in topics:
        entry = entries.get(awaited.name)
        if entry is None:
            return None
        named, partitions = entry
        count = written_count(awaited.partitions, True)
        if (
            len(partitions) != len(count) + awaited.partitions * _PARTITION_BYTES + 1
            or partitions[: len(count)] != count
        ):
            return None
        pieces += (named if awaited.topic_id is None else awaited.topic_id, partitions)
    pieces.append(INT32.pack(throttle_ms) + b"\x00")
    return pieces
