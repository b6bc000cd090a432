"""What a session keeps of each source partition on its way, and what it counts. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.router.forwarding.memory import SourcePartition
from services.router.forwarding.points import Points


@dataclass(slots=True)
class Counts:
    """What a worker has done since it began. Only what is committed counts."""

    written: int = 0
    filtered: int = 0
    dead: int = 0
    been_there: int = 0
    """Not copied, because they have been on the target before."""
    bytes: int = 0
    transactions: int = 0
    setbacks: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Lane:
    """The way of one source partition."""

    source: SourcePartition
    target_topic: str
    """Of a mirror."""
    position: int
    """The next offset to read, as of this transaction."""
    committed: list[int]
    """As each target remembers it."""
    points: Points
    began: int = 0
    """Where this transaction began."""
    first: int = -1
    """Offset on the target of this transaction's first record, once it has one."""
    failure: Any = None
    """Why it did not arrive."""
    point_at: float = 0.0
    """When a signpost was last kept."""
    note_first: Callable[[Any, Any], None] | None = field(default=None, repr=False)
    """Called with the delivery of the first record."""

    def set_out(self) -> None:
        """A transaction begins."""
        self.began = self.position
        self.first = -1
        self.note_first = self._arrived

    def _arrived(self, error: Any, message: Any) -> None:
        self.failure = error
        if error is None:
            self.first = message.offset()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """For reports."""

    source: SourcePartition
    position: int
    end: int
