"""One client of Kafka and all that was read by it, from joining the group to whatever ends it.

It is what the client's thread tells of partitions and records (`consumer.Listener`), the flow of these records, and the
commits that follow from it. When it ends, nothing of it is left: what was not committed comes again.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any

import structlog

from services.sidecar.consuming.records import (
    Commit,
    Interest,
    Partition,
    PartitionStatus,
    Position,
    Seek,
    SeekTarget,
)
from services.sidecar.delivering.records import RawRecord
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.reactive.commits import Commits
from services.sidecar.reactive.consumer import GRACE_SECONDS, PollingConsumer
from services.sidecar.reactive.flow import Carry, Flow
from services.sidecar.reactive.options import Delivery, ReactiveOptions
from services.sidecar.reactive.room import Room

LOOK_SECONDS = 0.05
"""How often it is looked whether the group has given partitions."""

log = structlog.get_logger(__name__)


class Session:
    """Of a reactive consumer; begins shut: it reads ahead, and delivers nothing."""

    def __init__(
        self, options: ReactiveOptions, delivery: Delivery, carry: Carry, gone: Callable[[Iterable[Partition]], None]
    ) -> None:
        """`gone` hears of partitions whose records are not here any more."""
        self._options = options
        self._gone = gone
        self._finish_seconds = options.finish_seconds
        self._flow = Flow(carry, self._freed, self._settled, delivery.limits, delivery.lanes)
        self._commits = Commits(self._send, options.commit_interval_seconds, options.commit_records)
        room = Room(options.max_held_records, options.max_held_bytes)
        self._consumer = PollingConsumer(options.id.instance, room, self, options.finish_seconds)
        self._background: set[asyncio.Task[None]] = set()
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it cannot go on, when it cannot."""

    async def begin(self, properties: Mapping[str, Any], interest: Interest, *, rests: bool) -> None:
        """Joins the group. Fault when the client does not take it."""
        self._consumer.open(properties, self._options.instance)
        if rests:
            await self._consumer.rest()
        if interest:
            await self._consumer.follow(interest)

    async def end(self, patience: float) -> None:
        """Lets what is on its way end, commits, leaves the group: all of it in bounded time."""
        until = time.monotonic() + patience
        self._flow.shut()
        await self._flow.quiet(patience)
        self._finish_seconds = max(until - time.monotonic(), 0)
        await self._consumer.close(self._finish_seconds + GRACE_SECONDS)
        await self._abandon(self._flow.partitions)
        self._commits.close()
        await asyncio.gather(*self._background, return_exceptions=True)

    # how it does

    @property
    def is_joined(self) -> bool:
        return self._consumer.is_joined

    @property
    def partitions(self) -> set[Partition]:
        return self._flow.partitions

    @property
    def silent_seconds(self) -> float:
        """How long its thread has not been seen at work."""
        return self._consumer.silent_seconds

    async def status(self) -> tuple[tuple[PartitionStatus, ...], str]:
        """Where it is in each partition, and what hinders it."""
        return await self._consumer.status()

    async def group_metadata(self) -> Any:
        """Who it is in its group, for transactions."""
        return await self._consumer.group_metadata()

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        """What the group committed; partitions without a commit are left out."""
        return await self._consumer.committed(partitions)

    # what it is told

    def configure(self, delivery: Delivery) -> None:
        self._flow.configure(delivery.limits, delivery.lanes)

    def deliver(self) -> None:
        """Batches begin."""
        self._flow.open()

    async def wake(self) -> None:
        """Reads on after `rest`; batches begin with `deliver`."""
        await self._consumer.wake()

    async def rest(self) -> None:
        """Begins no batch and reads nothing; what is on its way goes on."""
        self._flow.shut()
        await self._consumer.rest()

    async def follow(self, interest: Interest) -> None:
        """Reads this from now on, and nothing else."""
        with self._to_its_end("a change of what is read"):
            await self._consumer.follow(interest)

    async def quiet(self, patience: float) -> bool:
        """Begins no batch, and waits until none is on its way; whether that came true in time."""
        self._flow.shut()
        return await self._flow.quiet(patience)

    async def leave(self) -> bool:
        """Commits what is settled and leaves the group; what is on its way is cancelled. Whether it was committed."""
        is_committed = True
        if due := dict(self._commits.due):
            try:
                await self._consumer.commit_now(due)
            except Fault as refused:
                is_committed = False
                log.warning("offsets are not committed", reason=refused.description)
        await self._abandon(self._flow.partitions)
        with self._to_its_end("a drain"):
            await self._consumer.follow(Interest())
        return is_committed

    async def has_partitions(self, patience: float) -> None:
        """Returns when the group has given it some. Fault when it does not in time."""
        until = time.monotonic() + patience
        while not self._flow.partitions:
            if time.monotonic() > until:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"{self._options.id.group}.{self._options.id.instance} has no partitions now; try again later",
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def seek(self, target: SeekTarget) -> list[Position]:
        """Goes on elsewhere in its partitions that the target names; what is on its way there is cancelled."""
        mine = self._flow.partitions
        chosen = {one for one in mine if target.topic in ("", one.topic) and target.partition in (None, one.partition)}
        if not chosen:
            named = (
                f"{target.topic or 'any topic'}, {'any partition' if target.partition is None else target.partition}"
            )
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"{self._options.id.group}.{self._options.id.instance} has no partition to seek in ({named}; it has: "
                f"{', '.join(map(str, sorted(mine))) or 'none'})",
            )
        positions = await self._consumer.positions([Seek(one, target.to) for one in sorted(chosen)])
        await self._abandon(chosen)
        with self._to_its_end("a seek"):
            await self._consumer.seek(positions)
        return positions

    # what the client's thread tells

    def assigned(self, partitions: set[Partition]) -> None:
        self._flow.assigned(partitions)

    def arrived(self, records: list[RawRecord]) -> None:
        self._flow.arrived(records)

    async def finish(self, partitions: set[Partition]) -> Mapping[Partition, int]:
        offsets = await self._flow.finish(partitions, self._finish_seconds)
        self._forget(partitions)
        return {} if self._options.exactly_once else offsets

    def lost(self, partitions: set[Partition]) -> None:
        ended = self._flow.drop(partitions)  # at once: the next news may be that they are here again
        self._forget(partitions)
        self._later(ended)

    def commit_ended(self, commits: list[Commit]) -> None:
        self._commits.ended(commits)

    def broke(self, reason: str) -> None:
        if not self.broken.done():
            self.broken.set_result(reason)

    def _freed(self, partition: Partition, records: int, size: int) -> None:
        self._consumer.freed(partition, records, size)

    def _settled(self, partition: Partition, next_offset: int | None, records: int) -> None:
        if next_offset is None:
            return
        self._consumer.progress.given[partition] = next_offset
        if self._options.exactly_once:  # its transaction has committed it
            self._consumer.progress.committed[partition] = next_offset
        else:
            self._commits.settled(partition, next_offset, records)

    def _send(self, offsets: Mapping[Partition, int]) -> None:
        self._consumer.commit(offsets)

    @contextlib.contextmanager
    def _to_its_end(self, what: str) -> Iterator[None]:
        """What ends half-way leaves partitions of which nobody knows where they are: all begin anew as committed."""
        is_done = False
        try:
            yield
            is_done = True
        finally:
            if not is_done:
                self.broke(f"{what} ended half-way")

    async def _abandon(self, partitions: Collection[Partition]) -> None:
        await self._flow.drop(partitions)
        self._forget(partitions)

    def _forget(self, partitions: Collection[Partition]) -> None:
        self._commits.forget(partitions)
        self._gone(partitions)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Has it done; nobody waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
