"""The note that a group on the target keeps for each source partition: position as offset, the rest as metadata.

    offset 1200   metadata "1 V5xvJ0g-Q6yEzZ1Vw0JZLg 41f7c0d2a9e8 200 5000 0 0 3 1000"

The transaction that holds the copies also writes their notes, so the notes are right whenever a process is killed. A
note also states the plan: topic, copy, first and last offset, lane. So each driver that resumes a replay follows the
same plan. A driver of another copy with the same group gets an error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from services.pipeline.copying.errors import CopyError

VERSION = "1"
NO_ID = "-"
MAGIC = b"CGMDv2:"
NO_GENERATION = -1
NO_INSTANCE = b"\x01"


@dataclass(frozen=True, slots=True)
class Note:
    """The progress of one partition."""

    topic_id: str
    """Kafka's own id of the source topic; empty if it has none."""
    start: int
    end: int
    lost: int
    """Offsets in the range that neither Kafka nor the archive held when the replay began."""
    lane: int
    """Number of the transactional id that writes the copies; it never changes, so that zombies are fenced."""
    position: int
    """Next offset to read."""
    records: int = 0
    """Number of copies so far."""
    lost_until: int = 0
    """End of the lost offsets; the copy fails if later offsets are lost."""
    copy: str = ""
    """Identifies the copy: see `routes.mark_of`."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def at(self, position: int, more: int) -> Note:
        return replace(self, position=position, records=self.records + more)

    @property
    def metadata(self) -> str:
        """The text that is stored as metadata of the offset."""
        numbers = (self.start, self.end, self.lost, self.lost_until, self.lane, self.records)
        return " ".join((VERSION, self.topic_id or NO_ID, self.copy or NO_ID, *map(str, numbers)))

    @classmethod
    def of(cls, position: int, metadata: str) -> Note:
        """CopyError if another program has committed offsets of the group."""
        match metadata.split(" "):
            case [version, topic_id, copy, *numbers] if version == VERSION and len(numbers) == 6:
                try:
                    start, end, lost, lost_until, lane, records = map(int, numbers)
                except ValueError:
                    pass
                else:
                    topic_id, copy = ("" if each == NO_ID else each for each in (topic_id, copy))
                    return cls(topic_id, start, end, lost, lane, position, records, lost_until, copy)
        raise CopyError(
            f"what the group keeps beside offset {position} is none of a replay's ({metadata[:80]!r}): somebody else "
            "has committed in it; copy with another group"
        )


def nobody_of(group: str) -> bytes:
    """The metadata of a group without members, for a transaction that commits its offsets.

    Only a consumer returns this metadata (`consumer_group_metadata`), as bytes for `send_offsets_to_transaction`. This
    function makes no consumer for it. A consumer would look for its coordinator in threads of its own, and would
    be closed at the same moment. This has crashed a driver inside librdkafka (`rd_kafka_cgrp_op`). The bytes have the
    format of `rd_kafka_consumer_group_metadata_write`. A librdkafka with another format refuses these bytes, and a test
    compares them.
    """
    return MAGIC + struct.pack("=i", NO_GENERATION) + group.encode() + b"\0" + b"\0" + NO_INSTANCE
