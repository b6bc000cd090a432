"""The progress and pace of a replay: numbers and texts. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mesh.rpc import replays
from meshctl.output import count

ENDS = (replays.REPLAY_STATE_DONE, replays.REPLAY_STATE_FAILED, replays.REPLAY_STATE_CANCELLED)
PACE_SECONDS = 15.0
"""The pace counts the records of so many last seconds."""
SHORTEST_PACE = 1.0
"""The fewest seconds from which a pace is computed."""
SHOWN_PARTITIONS = 15
"""Partitions that are under way, shown at a time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is, all partitions together."""

    done: int = 0
    """Offsets behind which all is acknowledged, or does not count."""
    total: int = 0
    records: int = 0
    failed: int = 0
    partitions: int = 0
    partitions_done: int = 0

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0


def progress(replay: replays.Replay) -> Progress:
    """The totals that control sends; for an earlier release of control without totals, the sum of the partitions."""
    if not replay.HasField("totals"):
        return _sum(replay.partitions)
    of = replay.totals
    return Progress(of.offsets_done, of.offsets, of.records, of.failed, of.partitions, of.partitions_done)


def _sum(partitions: Iterable[replays.ReplayPartition]) -> Progress:
    known = list(partitions)
    return Progress(
        sum(max(0, each.position - each.start_offset) for each in known),
        sum(max(0, each.end_offset - each.start_offset) for each in known),
        sum(each.records for each in known),
        sum(each.failed for each in known),
        len(known),
        sum(each.position >= each.end_offset for each in known),
    )


def records_of(partitions: Iterable[replays.ReplayPartition]) -> int:
    return sum(each.records for each in partitions)


def share_of(each: replays.ReplayPartition) -> float:
    """The finished share of one partition; an empty partition is finished."""
    length = each.end_offset - each.start_offset
    return min(1.0, max(0, each.position - each.start_offset) / length) if length > 0 else 1.0


def progress_text(replay: replays.Replay) -> str:
    """ "40% (400 records, 2 failed)"; "-" before there is a plan."""
    far = progress(replay)
    if not far.total:
        return "-"
    failed = f", {far.failed} failed" if far.failed else ""
    return f"{far.share:.0%} ({count(far.records, 'record')}{failed})"


def partitions_text(far: Progress) -> str:
    """ "3 of 12 partitions", where there are several."""
    return f"{far.partitions_done} of {far.partitions} partitions" if far.partitions > 1 else ""


def under_way(partitions: Iterable[replays.ReplayPartition]) -> list[replays.ReplayPartition]:
    """Partitions that have begun and are not through, those first that are nearest to their end."""
    begun = [each for each in partitions if each.start_offset < each.position < each.end_offset]
    return sorted(begun, key=lambda each: (-share_of(each), each.topic, each.partition))[:SHOWN_PARTITIONS]


def span(seconds: float) -> str:
    """ "40 s", "3 min 20 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


Counted = Callable[[Progress], int]


@dataclass(slots=True)
class Pace:
    """The pace of a replay, by its records of the last seconds."""

    _seen: deque[tuple[float, Progress]] = field(default_factory=deque)

    def saw(self, far: Progress, now: float) -> None:
        """The replay at a moment. One whose plan is not known has no pace yet."""
        if not far.total:
            return
        if self._seen and far.done < self._seen[-1][1].done:
            self._seen.clear()  # another member goes on behind what the last one has said
        self._seen.append((now, far))
        while len(self._seen) > 1 and self._seen[1][0] <= now - PACE_SECONDS:
            self._seen.popleft()

    @property
    def records_per_second(self) -> float | None:
        """None while the pace is not known."""
        return self._rate(lambda far: far.records + far.failed)

    @property
    def seconds_left(self) -> float | None:
        speed = self._rate(lambda far: far.done)
        if not speed:
            return None
        far = self._seen[-1][1]
        return (far.total - far.done) / speed

    def text(self) -> str:
        """ "120 records/s, 3 min 20 s left"."""
        rate, left = self.records_per_second, self.seconds_left
        parts = ("" if rate is None else f"{rate:.0f} records/s", "" if not left else f"{span(left)} left")
        return ", ".join(part for part in parts if part)

    def _rate(self, of: Counted) -> float | None:
        if not self._seen:
            return None
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return max(0, of(last) - of(first)) / (now - began) if now - began >= SHORTEST_PACE else None


def line(replay: replays.Replay, pace: Pace, state: str) -> str:
    """One line of progress for those who have no terminal."""
    waits = replay.description
    if not progress(replay).total:
        return state + (f": {waits}" if waits else "")
    parts: Sequence[str] = (progress_text(replay), partitions_text(progress(replay)), pace.text())
    return f"{state}: {', '.join(part for part in parts if part)}{f'; {waits}' if waits else ''}"
