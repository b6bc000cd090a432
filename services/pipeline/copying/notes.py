"""What a group on the target remembers of each source partition: position as its offset, the rest as its metadata.

    offset 1200   metadata "1 V5xvJ0g-Q6yEzZ1Vw0JZLg 41f7c0d2a9e8 200 5000 0 0 3 1000"

Both are written in the very transaction that holds the copies up to there, so they are true whatever is killed when.
The plan stands in it too (which topic, which copy, from where to where, in which lane), so whoever goes on follows the
same plan, and who asks for another copy with the same group is told so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.pipeline.copying.errors import CopyError

VERSION = "1"
NO_ID = "-"


@dataclass(frozen=True, slots=True)
class Note:
    """How far a partition is."""

    topic_id: str
    """Kafka's own id of the source topic; empty where none is known."""
    start: int
    end: int
    lost: int
    """Offsets in between that nobody held any more when the replay began."""
    lane: int
    """Which of the replay's transactional ids writes its copies: the same one always, so that zombies are fenced."""
    position: int
    """Next offset to be read."""
    records: int = 0
    """Copies so far."""
    lost_until: int = 0
    """Where that ends which nobody held; whatever goes later is missed."""
    copy: str = ""
    """Which copy it is: see `routes.mark_of`."""

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def at(self, position: int, more: int) -> Note:
        return replace(self, position=position, records=self.records + more)

    @property
    def metadata(self) -> str:
        """What is kept beside the offset."""
        numbers = (self.start, self.end, self.lost, self.lost_until, self.lane, self.records)
        return " ".join((VERSION, self.topic_id or NO_ID, self.copy or NO_ID, *map(str, numbers)))

    @classmethod
    def of(cls, position: int, metadata: str) -> Note:
        """CopyError when somebody else has committed there."""
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
