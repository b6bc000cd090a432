"""Copies the partitions of one topic to another cluster, with their offsets. One session; any error ends it.

Theory of operation
1. Nothing is stored about a copy but the copy itself: a session goes on from the end of the target's log. Before, it
   compares the last record there with the source's record at the same offset. So a topic that was moved away can be
   copied back to: the old log ends where the new one goes on.
2. All sessions of a move write as one producer, whose id follows from the move's. The leader of a partition remembers
   the producer's last sequence, and a session asks for it. A batch that an earlier session has sent, and that arrives
   late, is therefore a repeat, and the broker drops it.
3. A gap of the source becomes markers of transactions without records. They have no sequence, so a repeat is not
   dropped: the first marker of a session raises the producer's epoch, which fences earlier sessions.
4. Each write has to land on its offset. If one does not, somebody else has written to the target: the copy is broken
   for good, and a move never switches to it.
5. If the source's log begins behind offset 0, batches of empty records fill the target up to there. They are deleted
   before the copy goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mesh.topic_logs.batches import (
    FILL_AT_ONCE,
    Batch,
    ForeignBatchError,
    Writer,
    batches,
    filling,
    producer_of,
    written_by,
)
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from mesh.topic_logs.course import Gap, steps
from mesh.topic_logs.evidence import visible
from mesh.topic_logs.pace import Pace
from mesh.topic_logs.parts import Source
from mesh.topic_logs.records import JOINED, joined

FETCH_BYTES: Final = 1 << 20
"""The bytes of one Fetch. A session holds so many for each of AT_ONCE partitions."""
GROWTH_EVERY_S: Final = 30.0
"""Seconds between two questions for the number of partitions: one request for each topic."""
AT_ONCE: Final = 32
"""Partitions that hold fetched batches at the same time."""
IN_FLIGHT: Final = 5
"""Batches of a partition without an answer; a broker recognizes a repeat of the last five batches."""
MARKERS_AT_ONCE: Final = 10_000
IDLE_S: Final = 0.05
"""Seconds between two Fetches of a source without new records."""
NO_STOP: Final = 1 << 63


class BrokenCopyError(Exception):
    """The target has other records than the source, and no further session changes that."""


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Which topic to copy, and as what."""

    move_id: str
    topic: str
    """The name on the source."""
    target_topic: str


@dataclass(slots=True)
class PartitionCopy:
    """How far the copy of a partition is."""

    position: int = 0
    """The next offset to copy."""
    end: int = 0
    """The source's last stable offset, as of the last look."""
    records: int = 0
    bytes: int = 0
    gaps: int = 0
    """Offsets without a record that the session has filled."""
    is_open: bool = False
    """Whether the session has found where to go on."""
    has_gone_on: bool = False
    """Whether the target has taken something in this session, or lacks nothing."""
    level_at: float = 0.0
    """When the copy was last at the source's end, by the monotonic clock."""
    tail_s: float = 0.0
    """The seconds that the target last took to reach an end of the source, from when the copier saw this end."""
    tail: tuple[int, float] | None = None
    """The tail that is on its way: its end, and when the copier saw it."""

    def saw(self, end: int) -> None:
        """The source ends here."""
        self.end = end
        if self.tail is None:
            self.tail = end, time.monotonic()

    def has(self, end: int) -> None:
        """The target has all up to here."""
        self.has_gone_on = True
        if self.tail is not None and end >= self.tail[0]:
            self.tail_s, self.tail = time.monotonic() - self.tail[1], None

    def is_level(self) -> None:
        """The target has all that the source has."""
        self.has_gone_on = True
        self.level_at = time.monotonic()
        self.tail_s, self.tail = 0.0, None

    def behind_s(self, now: float) -> float:
        """The seconds that a cut would wait for the copy, as far as it can be known."""
        return self.tail_s if self.tail is None else max(self.tail_s, now - self.tail[1])


@dataclass(slots=True)
class Copier:
    """One session. `run` goes on until it is cancelled."""

    order: CopyOrder
    source: Source
    target: Brokers
    pace: Pace = field(default_factory=Pace)
    joins: int = JOINED
    """Bytes of a batch that is joined from small ones; the target may take less than it takes by default."""
    progress: dict[int, PartitionCopy] = field(default_factory=dict)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def run(self) -> None:
        """Raises CopySetbackError if another session may go on, BrokenCopyError if none can."""
        order = self.order
        there, wanted = await self.target.partitions(order.target_topic), await self.source.partitions(order.topic)
        if not wanted or there != wanted:
            raise CopySetbackError(
                f"topic {order.topic!r} has {len(wanted)} partitions on {self.source.name!r}, and "
                f"{len(there)} on {self.target.name!r} as {order.target_topic!r}: a copy needs as many"
            )
        self.progress |= {number: PartitionCopy(level_at=time.monotonic()) for number in wanted}
        try:
            async with asyncio.TaskGroup() as group:
                for number in wanted:
                    group.create_task(self._copied(number), name=f"copy-{order.topic}-{number}")
                group.create_task(self._watch_growth(len(wanted)), name=f"copy-{order.topic}-partitions")
        except* (CopySetbackError, BrokenCopyError) as errors:
            raise _gravest(errors) from None

    async def _watch_growth(self, partitions: int) -> None:
        """Ends the session when the topic has got more partitions: the next one copies them, too."""
        while True:
            await asyncio.sleep(GROWTH_EVERY_S)
            now = len(await self.source.partitions(self.order.topic))
            if now > partitions:
                text = f"topic {self.order.topic!r} has {now} partitions on {self.source.name!r} now, not {partitions}"
                raise CopySetbackError(f"{text}; the copy begins again")

    async def _copied(self, number: int) -> None:
        lane = _Lane(self, number)
        try:
            await lane.open()
            await lane.follow()
        except ForeignBatchError as error:
            raise BrokenCopyError(f"{self.order.topic}-{number}: {error}") from error

    @property
    def is_open(self) -> bool:
        """Whether all partitions have begun."""
        return bool(self.progress) and all(each.is_open for each in self.progress.values())

    @property
    def has_gone_on(self) -> bool:
        """Whether no partition stands where an earlier session has failed."""
        return bool(self.progress) and all(each.has_gone_on for each in self.progress.values())


class _Lane:
    """One partition in one session."""

    def __init__(self, copier: Copier, number: int) -> None:
        self._copier = copier
        self._source, self._target = copier.source, copier.target
        self._from, self._to = copier.order.topic, copier.order.target_topic
        self._number = number
        self._producer_id = producer_of(copier.order.move_id)
        self._writer = Writer(self._producer_id, 0, 0)
        self._has_marked = self._has_written = False
        self._sent: deque[tuple[asyncio.Task[int], Batch]] = deque()
        self._progress = copier.progress[number]

    async def open(self) -> None:
        """Finds where the copy goes on."""
        first, _ = await self._source.range(self._from, self._number)
        start, end = await self._target.range(self._to, self._number)
        self._progress.position = end
        filled = await self._is_filled(start, end)
        if end < first:
            if end and not await self._is_filled(end - 1, end):
                raise BrokenCopyError(
                    f"{self._from}-{self._number}: {self._source.name!r} has deleted offsets {end} to {first - 1} "
                    "before they were copied; begin with an empty topic"
                )
            await self._fill(end, first)
            filled = True
        elif first < end:
            await self._compare(end - 1)
        self._writer = await self._target.writer(self._to, self._number, self._producer_id)
        if filled:
            await self._shorten(first)
        self._progress.is_open = True

    async def follow(self) -> None:
        """Copies what comes, until it is cancelled."""
        progress = self._progress
        try:
            while True:
                async with self._copier.room:
                    moved = await self._copy_some(NO_STOP)
                if not moved:
                    await self._settle(0)
                    progress.is_level()
                    await asyncio.sleep(IDLE_S)
        finally:
            for task, _ in self._sent:
                task.cancel()

    async def _copy_some(self, stop: int, first: int = 0) -> bool:
        """Copies what one Fetch brings; False when there is nothing new. `first`: the source has no earlier offset."""
        progress, before = self._progress, self._progress.position
        fetched = await self._source.fetch(self._from, self._number, max(first, before), FETCH_BYTES, 0)
        progress.saw(fetched.stable)
        most = min(self._copier.joins, self._copier.pace.at_once)
        for step in joined(steps(before, fetched.records, fetched.aborted, stop), most):
            match step:
                case Gap():
                    await self._settle(0)
                    await self._mark(step)
                case Batch():
                    await self._write(step)
        return progress.position > before

    async def _write(self, batch: Batch) -> None:
        await self._copier.pace.take(len(batch.raw))
        # a broker takes any first sequence of a producer that it does not know: the second batch has to wait
        await self._settle(IN_FLIGHT - 1 if self._has_written else 0)
        copy = written_by(self._writer, batch)
        self._writer = self._writer.after(batch.records)
        task = asyncio.create_task(self._target.produce(self._to, self._number, copy))
        self._sent.append((task, batch))
        self._has_written = True
        self._progress.position = batch.next_offset

    async def _settle(self, most: int) -> None:
        """Returns when at most so many batches have no answer."""
        while len(self._sent) > most:
            task, batch = self._sent[0]
            self._check(batch.base_offset, await task)
            self._sent.popleft()
            self._progress.records += batch.records
            self._progress.bytes += len(batch.raw)
            self._progress.has(batch.next_offset)

    async def _mark(self, gap: Gap) -> None:
        if not self._has_marked:
            self._writer, self._has_marked = self._writer.anew(), True
        for at in range(gap.start, gap.stop, MARKERS_AT_ONCE):
            stop = min(gap.stop, at + MARKERS_AT_ONCE)
            await self._target.mark(self._to, self._number, self._writer, stop - at)
            self._check(stop, (await self._target.range(self._to, self._number))[1])
        self._progress.position = gap.stop
        self._progress.has(gap.stop)
        self._progress.gaps += gap.stop - gap.start

    def _check(self, wanted: int, found: int) -> None:
        if found != wanted:
            raise BrokenCopyError(
                f"{self._to}-{self._number} on {self._target.name!r}: a write came to offset {found}, and belongs to "
                f"{wanted}; somebody else writes there"
            )

    async def _fill(self, start: int, first: int) -> None:
        """Takes the offsets below the source's first batch."""
        fetched = await self._source.fetch(self._from, self._number, first, FETCH_BYTES, 0)
        head = next(batches(fetched.records), None)
        stop = first if head is None else min(first, head.base_offset)
        timestamp = 0 if head is None else head.base_timestamp
        filler = await self._target.writer(self._to, self._number, self._filler)
        for at in range(start, stop, FILL_AT_ONCE):
            number = min(FILL_AT_ONCE, stop - at)
            batch = await asyncio.to_thread(filling, filler, number, timestamp)
            self._check(at, await self._target.produce(self._to, self._number, batch))
            filler = filler.after(number)
        self._progress.position = stop

    @property
    def _filler(self) -> int:
        return producer_of(f"{self._copier.order.move_id}/filling")

    async def _is_filled(self, offset: int, end: int) -> bool:
        """Whether the target has a batch here that fills."""
        if offset >= end:
            return False
        there = await self._target.fetch(self._to, self._number, offset, 1, 0)
        return (head := next(batches(there.records), None)) is not None and head.producer_id == self._filler

    async def _shorten(self, first: int) -> None:
        """Deletes what fills, with the part of the first batch that the source has deleted."""
        if self._progress.position < first:
            await self._copy_some(first, first)
            await self._settle(0)
        await self._target.delete_before(self._to, self._number, first)

    async def _compare(self, last: int) -> None:
        """The last offset of the target has to be the same on both sides."""
        here = visible(last, await self._source.fetch(self._from, self._number, last, 1, 0))
        there = visible(last, await self._target.fetch(self._to, self._number, last, 1, 0))
        if here != there:
            raise BrokenCopyError(
                f"{self._to}-{self._number} on {self._target.name!r} ends with another record at offset {last} than "
                f"{self._source.name!r} has there"
            )


def _gravest(errors: ExceptionGroup[CopySetbackError | BrokenCopyError]) -> Exception:
    broken = errors.subgroup(BrokenCopyError)
    found: BaseException = broken or errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, Exception)
    return found
