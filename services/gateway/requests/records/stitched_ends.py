"""Questions about stitched logs, one part after another until one has the answer.

1. An end is that of the present part. A beginning, and the first offset from a time on, are in the first part that has
   one in front of its end. The record with the latest time and the latest tiered one are in the last part with any.
2. An offset that a cluster reports behind the end of an old part is no offset of the log: the next part is asked. An
   offset in front of a part's start is taken for that start, because its cluster has the topic's earlier records too.
3. Records are deleted in the old parts first. A part whose cluster is away stops the deletion with its error, before
   records behind it are deleted. A log that begins with another topic's records deletes none.
"""

from dataclasses import dataclass

from services.gateway.requests.plan import MeshView
from services.gateway.requests.records.stitched import UNKNOWN, Stretch, Stretches, covering, stretches
from services.gateway.wire.messages.list_offsets import ListOffsetsPartitionResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
HIGH_WATERMARK = -1
"""The offset of DeleteRecords that stands for all records."""


@dataclass(slots=True)
class OffsetSearch:
    """The offset of one partition by a timestamp of ListOffsets. Without parts, the owner's answer counts."""

    timestamp: int
    parts: Stretches
    left: list[Stretch]
    """The parts to ask, in order. The first of them is asked next."""

    @classmethod
    def of(cls, topic: str, partition: int, timestamp: int, mesh: MeshView) -> "OffsetSearch":
        parts = stretches(topic, partition, mesh)
        if timestamp in (MAX_TIMESTAMP, LATEST_TIERED):
            return cls(timestamp, parts, list(reversed(parts)))
        forward = timestamp >= 0 or timestamp in (EARLIEST, EARLIEST_LOCAL)
        return cls(timestamp, parts, list(parts if forward else parts[-1:]))

    @property
    def cluster(self) -> str | None:
        return self.left[0].cluster if self.left else None

    def asked_as(self, topic: str) -> str:
        """The name of the topic in the next question."""
        return self.left[0].asked_as(topic) if self.left else topic

    @property
    def asked(self) -> Stretch | None:
        """The part that was asked last."""
        return self.left[0] if self.left else None

    def take(self, result: ListOffsetsPartitionResponse) -> bool:
        """Gives the result the offset of clients. False: the next part has to be asked."""
        if not self.left or result.error_code:
            return True
        part = self.left[0]
        offset = self._shown(part, result.offset)
        if offset < 0 and len(self.left) > 1:
            del self.left[0]
            return False
        result.offset = offset
        if offset < 0:
            result.timestamp = UNKNOWN
        return True

    def _shown(self, part: Stretch, offset: int) -> int:
        if offset < 0:
            return offset
        if self.timestamp in (MAX_TIMESTAMP, LATEST_TIERED):
            found = covering(self.parts, part, offset)
            if found is None and self.timestamp == LATEST_TIERED and part.end is not None:
                return part.end - 1 if part.shown(offset) >= part.end else UNKNOWN
            return UNKNOWN if found is None else found.shown(offset)
        shown = part.shown(offset)
        return UNKNOWN if part.end is not None and shown >= part.end else max(part.start, shown)


@dataclass(slots=True)
class Deletion:
    """The deletion of one partition's records in front of an offset, part by part."""

    offset: int
    """As clients see it."""
    left: list[Stretch]
    """The parts to ask; the first of them is asked next."""
    is_refused: bool = False
    """The log of a fork begins with records of another topic, so its start can't be moved."""

    @classmethod
    def of(cls, topic: str, partition: int, offset: int, mesh: MeshView) -> "Deletion":
        parts = stretches(topic, partition, mesh)
        if any(part.is_past for part in parts):
            return cls(offset, [], is_refused=True)
        if offset < 0:
            return cls(offset, list(parts if offset == HIGH_WATERMARK else parts[-1:]))
        return cls(offset, [part for part in parts if part.is_first or part.start < offset])

    @property
    def cluster(self) -> str | None:
        return self.left[0].cluster if self.left else None

    @property
    def offset_there(self) -> int:
        """The offset for the next part's cluster."""
        if not self.left:
            return self.offset
        part = self.left[0]
        if self.offset < 0:
            return self.offset if part.end_there is None else part.end_there
        offset = max(self.offset, part.start)
        return part.there(offset if part.end is None else min(offset, part.end))

    def take(self, low_watermark: int, error_code: int) -> int | None:
        """The low watermark as clients see it. None: the next part has to be asked."""
        if not self.left or error_code:
            return low_watermark
        part = self.left[0]
        if len(self.left) > 1:
            del self.left[0]
            return None
        return max(part.start, part.shown(low_watermark)) if low_watermark >= 0 else low_watermark
