"""The flow of records from arrival to outcome: the lanes of all partitions, and one task for each lane with records.

Only a lingering batch waits for a clock. A lane's task takes a batch, and has it processed (`Process` returns when the
outcome of each record is in Kafka). Then the task takes the next batch, or ends if no batch waits. When a partition
leaves, its waiting records are dropped, and its batches on the way get time to end. A batch that takes longer is
cancelled: the partition's new owner gets its records again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from services.sidecar.reactive.lanes import BatchLimits, Lane, PartitionLanes
from services.sidecar.records import Partition, RawRecord
from services.sidecar.telemetry import metrics

log = structlog.get_logger(__name__)

Process = Callable[[Partition, list[RawRecord]], Awaitable[int]]
"""Processes a batch. Returns the number of first records whose outcomes are in Kafka; the others come again at once.
Raises only its cancellation."""
Freed = Callable[[Partition, int, int], None]
"""Called when so many records and bytes of a partition are not held any more."""
Settled = Callable[[Partition, int | None, int], None]
"""Called with the offset before which all records of a partition are settled, and the number of records settled now."""


@dataclass(slots=True)
class _Held:
    """A partition, and the tasks that work on it."""

    lanes: PartitionLanes
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class Flow:
    """The flow of one consumer, shut at first; all methods belong to the event loop."""

    def __init__(self, process: Process, freed: Freed, settled: Settled, limits: BatchLimits, lanes: int) -> None:
        """`lanes`: the number of lanes of each partition."""
        self._process = process
        self._freed = freed
        self._settled = settled
        self._limits = limits
        self._lanes = lanes
        self._held: dict[Partition, _Held] = {}
        self._lingering: dict[Lane, asyncio.Future[None]] = {}
        self._is_open = False

    @property
    def partitions(self) -> set[Partition]:
        return set(self._held)

    def configure(self, limits: BatchLimits, lanes: int) -> None:
        """Changes the limits of new batches. The number of lanes changes when a partition has no batch on its way."""
        self._limits = limits
        self._lanes = lanes
        for held in self._held.values():
            held.lanes.spread(lanes)
            self._begin_all(held)
        self._wake_all()

    def open(self) -> None:
        """Lets batches begin."""
        self._is_open = True
        for held in self._held.values():
            self._begin_all(held)

    def shut(self) -> None:
        """Lets no new batch begin; batches on their way go on."""
        self._is_open = False
        self._wake_all()

    def assigned(self, partitions: Iterable[Partition]) -> None:
        self._held.update({partition: _Held(PartitionLanes(partition, self._lanes)) for partition in partitions})

    def arrived(self, records: Iterable[RawRecord]) -> None:
        """Takes records. Records of partitions that have gone meanwhile are dropped."""
        now = asyncio.get_running_loop().time()
        for record in records:
            held = self._held.get(Partition(record.topic, record.partition))
            if held is None:
                continue
            lane = held.lanes.add(record, now)
            if not lane.is_out:
                self._begin(held, lane)
            elif lane in self._lingering and not lane.lingers(now, self._limits):
                self._wake(lane)

    async def quiet(self, patience: float) -> bool:
        """Waits until no batch is on its way, in a flow that is shut. Whether this happened in time."""
        tasks = [task for held in self._held.values() for task in held.tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        return all(task.done() for task in tasks)

    async def finish(self, partitions: Collection[Partition], patience: float) -> dict[Partition, int]:
        """Removes partitions; their batches have `patience` seconds to end. The result: for each partition the offset
        before which all records are settled. Partitions without a settled record are left out."""
        leaving = self._forget(partitions)
        tasks = [task for held in leaving for task in held.tasks]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=patience)
            if late:
                log.warning("batches of partitions that leave did not end in time; they come again", batches=len(late))
            await _cancelled(late)
        return _offsets(held.lanes for held in leaving)

    def drop(self, partitions: Collection[Partition]) -> Coroutine[Any, Any, None]:
        """Removes partitions at once; the returned coroutine cancels their batches."""
        return _cancelled([task for held in self._forget(partitions) for task in held.tasks])

    def _forget(self, partitions: Collection[Partition]) -> list[_Held]:
        leaving = [self._held.pop(one) for one in partitions if one in self._held]
        for held in leaving:
            held.lanes.drop_waiting()
        self._wake_all()
        return leaving

    def _may_begin(self, held: _Held) -> bool:
        return self._is_open and not held.lanes.is_changing and self._held.get(held.lanes.partition) is held

    def _begin_all(self, held: _Held) -> None:
        if held.lanes.respread(asyncio.get_running_loop().time()):
            for lane in held.lanes.lanes:
                self._begin(held, lane)

    def _begin(self, held: _Held, lane: Lane) -> None:
        if lane.is_out or not lane or not self._may_begin(held):
            return
        lane.is_out = True
        task = asyncio.create_task(self._work(held, lane), name=f"lane of {held.lanes.partition}")
        held.tasks.add(task)
        task.add_done_callback(held.tasks.discard)

    async def _work(self, held: _Held, lane: Lane) -> None:
        """Carries batches until the lane is empty, or has to stop."""
        try:
            while lane and self._may_begin(held):
                await self._linger(lane)
                if not self._may_begin(held):
                    break
                await self._through(held.lanes, lane)
        finally:
            lane.is_out = False
            if self._held.get(held.lanes.partition) is held:
                self._begin_all(held)

    async def _through(self, lanes: PartitionLanes, lane: Lane) -> None:
        taken = lane.take(self._limits)
        metrics.reactive_open_batches.inc()
        try:
            count = await self._process(lanes.partition, taken)
        finally:
            metrics.reactive_open_batches.dec()
        records = taken[:count]
        lane.give_back(taken[count:])
        freed = lanes.settle(records)
        if (held := self._held.get(lanes.partition)) is not None and held.lanes is lanes:
            self._freed(lanes.partition, *freed)
            self._settled(lanes.partition, lanes.next_offset, len(records))

    async def _linger(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        seconds = lane.lingers(loop.time(), self._limits)
        if seconds <= 0:
            return
        waiting: asyncio.Future[None] = loop.create_future()
        self._lingering[lane] = waiting
        timer = loop.call_later(seconds, self._wake, lane)
        try:
            await waiting
        finally:
            timer.cancel()
            self._lingering.pop(lane, None)

    def _wake(self, lane: Lane) -> None:
        waiting = self._lingering.get(lane)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _wake_all(self) -> None:
        for lane in list(self._lingering):
            self._wake(lane)


def _offsets(all_lanes: Iterable[PartitionLanes]) -> dict[Partition, int]:
    return {lanes.partition: lanes.next_offset for lanes in all_lanes if lanes.next_offset is not None}


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancels tasks, and returns when they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
