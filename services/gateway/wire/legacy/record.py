"""A record as all formats know it. What only one of them has (headers, producer ids) is not kept."""

from collections.abc import Iterator
from typing import NamedTuple

from services.gateway.wire.compression import Codec
from services.gateway.wire.primitives import Buffer

NO_TIMESTAMP = -1
"""Of messages of magic 0."""


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None


class Group(NamedTuple):
    """Records that lie together: a batch, a compressed wrapper, or one plain message.

    They are read as they are asked for, so that no more of them is in memory than somebody keeps; what is wrong with
    their bytes comes out then.
    """

    codec: Codec
    log_append_time: bool
    """The timestamp is the broker's, not the producer's."""
    records: Iterator[Record]
    next_offset: int
    """Where reading goes on after it."""
