"""A look at a topic: the records that a viewer asks for, and those that were found. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.judging.records import Record
from services.console.records.decoding import Places


class Start(StrEnum):
    """Where a look begins."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"
    AFTER = "after"
    """From the positions on: the next page."""
    BEFORE = "before"
    """The newest records below the positions: the page before."""


CHOICES = (Start.NEWEST, Start.OLDEST, Start.OFFSET, Start.TIME)
"""Those that a viewer names. The others stand in links."""
MOST_PARTITIONS = 100
"""The partitions of one look, each of which costs a request. A viewer of a larger topic names a partition."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records that a viewer asks for."""

    topic: str
    start: Start = Start.NEWEST
    partition: int | None = None
    """None: all partitions."""
    offset: int = 0
    time_ms: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    most: int = 50
    filter: str = ""
    committed: bool = True


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one look may cost."""

    records: int
    size: int
    """Bytes of keys and values."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """The records of one look."""

    records: Sequence[Record]
    ends: Mapping[int, tuple[int, int]]
    """The first offset and the end of each partition."""
    on: Mapping[int, int]
    """Positions of the next page; empty if nothing is left there."""
    scanned: int = 0
    bound: str = ""
    """The bound that ended the look, in words."""
    undecided: int = 0
    """Records of which the filter can't say whether they fit."""
    why: str = ""
    """Why it can't, of the first one."""
    contents: Places = field(default_factory=dict)
    """Those keys and values that name schemas of a registry."""


def positions_text(positions: Mapping[int, int]) -> str:
    """For an address: "0-12.1-40"."""
    return ".".join(f"{partition}-{offset}" for partition, offset in sorted(positions.items()))


def positions_of(text: str) -> dict[int, int]:
    """ValueError: it is no such text."""
    pairs = [each.split("-") for each in text.split(".")] if text else []
    if len(pairs) > MOST_PARTITIONS or len(text) > 4096:
        raise ValueError("too many positions")
    return {int(partition): int(offset) for partition, offset in pairs}
