"""Produce responses that pass: as they are, or with ids in the place of names."""

from collections.abc import Mapping

from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner.running import produce_response_is_clean, topics_of_clean_response

__all__ = ["produce_response_is_clean", "with_topic_ids"]


def with_topic_ids(
    buffer: Buffer, version: int, offset: int, end: int, topic_ids: Mapping[bytes, bytes]
) -> list[Buffer] | None:
    """The body in version 13, if the response is clean and flexible: ids in the place of names, the rest slices."""
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
