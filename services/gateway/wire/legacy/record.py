"""A record as all formats know it. Fields that only one format has (headers, producer ids) are not kept."""

from collections.abc import Iterator
from typing import NamedTuple

from mesh.compression import Codec
from services.gateway.wire.primitives import Buffer

NO_TIMESTAMP = -1
"""The timestamp of messages of magic 0."""


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None


class Group(NamedTuple):
    """Records that lie together: a batch, a compressed wrapper, or one plain message.

    The records are read lazily, so that no more of them are in memory than the reader keeps. Damaged bytes raise an
    error only then.
    """

    codec: Codec
    log_append_time: bool
    """The timestamp is the broker's, not the producer's."""
    records: Iterator[Record]
    next_offset: int
    """The offset after the group, where reading goes on."""
