"""Samples of the lag of groups: the bound on them, and which samples become rows. No I/O.

Theory of operation
1. A sample has, for each partition of a topic that a group reads, the position of the group and the end of the log.
2. The first sample of each five minutes becomes a row of every series; such rows are kept for 30 days. All other rows
   are kept for a day.
3. Between them, a sample becomes a row if it differs from the sample before. Then the sample before becomes a row, too.
   So a straight line between two rows is what control saw, and an idle series has a row in five minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from services.control.domain.log_ranges import LogRange
from services.control.domain.topics.groups import WITHOUT_MEMBERS, MeshGroup

LASTING: Final = timedelta(minutes=5)
"""The first row of each such time is kept for longer."""
KEPT, LASTING_KEPT = timedelta(days=1), timedelta(days=30)
"""How long rows are kept: any row, and the first row of five minutes."""
_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a group in a topic; the lists have the same order."""

    partitions: tuple[int, ...]
    positions: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def lag(self) -> int:
        return sum(end - position for position, end in zip(self.positions, self.ends, strict=True))


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """A group and a topic that it reads, as clients know both."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class Row:
    """A sample that is stored."""

    series: Series
    time: datetime
    lasts: bool
    seen: Seen


@dataclass(frozen=True, slots=True)
class Round:
    """The samples of all groups at one time."""

    time: datetime
    groups: int = 0
    partitions: int = 0
    left_out_groups: int = 0
    left_out_partitions: int = 0
    problem: str = ""


def seen(offsets: Mapping[int, int], log: Mapping[int, LogRange]) -> Seen | None:
    """The state of a group in a topic; None if the end of no partition is known."""
    known = [(number, offset, log[number]) for number, offset in sorted(offsets.items()) if number in log]
    if not known:
        return None
    positions = (min(max(offset, there.start), there.end) for _, offset, there in known)
    return Seen(tuple(number for number, *_ in known), tuple(positions), tuple(there.end for *_, there in known))


def by_need(groups: Mapping[str, MeshGroup]) -> list[MeshGroup]:
    """Groups with members come first: a bound leaves out the others before them."""
    return sorted(groups.values(), key=lambda each: (each.there.state in WITHOUT_MEMBERS, each.name))


def within(
    found: Mapping[str, Mapping[str, Mapping[int, int]]], names: Sequence[str], most_partitions: int
) -> tuple[dict[str, Mapping[str, Mapping[int, int]]], int, int]:
    """Groups -> topic -> offsets of the first names that fit; the number of groups and partitions that do not fit.

    A group is sampled whole or not at all.
    """
    fitting: dict[str, Mapping[str, Mapping[int, int]]] = {}
    room, left_groups, left_partitions = most_partitions, 0, 0
    for name in names:
        count = sum(map(len, found.get(name, {}).values()))
        if count <= room:
            room -= count
            fitting[name] = found.get(name, {})
        else:
            left_groups += 1
            left_partitions += count
    return fitting, left_groups, left_partitions


@dataclass(slots=True)
class _Last:
    time: datetime
    seen: Seen
    is_stored: bool


@dataclass(slots=True)
class Thinning:
    """Decides which samples become rows."""

    _last: dict[Series, _Last] = field(default_factory=dict)
    _lasting: datetime | None = None
    """The start of the five minutes that have their rows."""

    def rows(self, time: datetime, sampled: Mapping[Series, Seen]) -> Iterator[Row]:
        """The rows that a round of samples gives."""
        begun = time - (time - _EPOCH) % LASTING
        lasts = begun != self._lasting
        self._lasting = begun
        for series in self._last.keys() - sampled.keys():
            last = self._last.pop(series)
            if not last.is_stored:
                yield Row(series, last.time, lasts=False, seen=last.seen)
        for series, state in sampled.items():
            before = self._last.get(series)
            changed = before is None or before.seen != state
            if before is not None and changed and not before.is_stored:
                yield Row(series, before.time, lasts=False, seen=before.seen)
            if changed or lasts:
                yield Row(series, time, lasts=lasts or before is None, seen=state)
            self._last[series] = _Last(time, state, is_stored=changed or lasts)

    def forget(self) -> None:
        """Makes the next round store all series: rows of the last one may be missing."""
        self._last.clear()
        self._lasting = None
