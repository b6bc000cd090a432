"""The extent of a partition's log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets of a partition's log: that of the first record, and that of the next record to be written."""

    start: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.start
