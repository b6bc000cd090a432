"""One client of Kafka with its records, from joining the group to the end of the client.

A session receives partitions and records from the client's thread (`consumer.Listener`). It has the flow of these
records, and the resulting commits. The end of a session leaves no state: records that were not committed come again.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any

import structlog

from services.sidecar.consuming.instance_values import Interest, PartitionStatus
from services.sidecar.consuming.positions import Position, Seek, SeekTarget
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.reactive.commits import Commits
from services.sidecar.reactive.flow import Flow, Process
from services.sidecar.reactive.options import Delivery, ReactiveOptions
from services.sidecar.reactive.partition_shares import PartitionShares
from services.sidecar.reactive.polling_consumer import GRACE_SECONDS, PollingConsumer
from services.sidecar.records import Commit, Partition, RawRecord

LOOK_SECONDS = 0.05
"""The time between two checks for partitions from the group."""

log = structlog.get_logger(__name__)


class Session:
    """A session of a reactive consumer. It begins shut: it reads ahead, and delivers nothing."""

    def __init__(
        self,
        options: ReactiveOptions,
        delivery: Delivery,
        process: Process,
        gone: Callable[[Iterable[Partition]], None],
        subscription: str = "",
    ) -> None:
        """`gone` is called with partitions whose records the session has dropped."""
        self._options = options
        self._gone = gone
        self._finish_seconds = options.finish_seconds
        self._flow = Flow(process, self._freed, self._settled, delivery.limits, delivery.lanes)
        self._commits = Commits(self._send, options.commit_interval_seconds, options.commit_records)
        shares = PartitionShares(options.max_held_records, options.max_held_bytes)
        self._consumer = PollingConsumer(options.id.instance, shares, self, options.finish_seconds, subscription)
        self._background: set[asyncio.Task[None]] = set()
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Gets the reason when the session cannot go on."""

    async def begin(self, properties: Mapping[str, Any], interest: Interest, *, rests: bool) -> None:
        """Joins the group. Fault when the client refuses the properties or the topics."""
        self._consumer.open(properties)
        if rests:
            await self._consumer.rest()
        if interest:
            await self._consumer.follow(interest)

    async def end(self, patience: float) -> None:
        """Waits for batches on their way, commits, and leaves the group, all in bounded time."""
        until = time.monotonic() + patience
        self._flow.shut()
        await self._flow.quiet(patience)
        self._finish_seconds = max(until - time.monotonic(), 0)
        await self._consumer.close(self._finish_seconds + GRACE_SECONDS)
        await self._abandon(self._flow.partitions)
        self._commits.close()
        await asyncio.gather(*self._background, return_exceptions=True)

    # status

    @property
    def is_joined(self) -> bool:
        return self._consumer.is_joined

    @property
    def partitions(self) -> set[Partition]:
        return self._flow.partitions

    @property
    def silent_seconds(self) -> float:
        """The time since the last turn of the client's thread."""
        return self._consumer.silent_seconds

    async def status(self) -> tuple[tuple[PartitionStatus, ...], str]:
        """The status of each partition, and the consumer's problem."""
        return await self._consumer.status()

    async def group_metadata(self) -> Any:
        """The consumer's group metadata, for transactions."""
        return await self._consumer.group_metadata()

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        """The committed offsets of the group; partitions without a commit are left out."""
        return await self._consumer.committed(partitions)

    # orders from the consumer

    def configure(self, delivery: Delivery) -> None:
        self._flow.configure(delivery.limits, delivery.lanes)

    def deliver(self) -> None:
        """Lets batches begin."""
        self._flow.open()

    async def wake(self) -> None:
        """Reads again after `rest`; batches begin only after `deliver`."""
        await self._consumer.wake()

    async def rest(self) -> None:
        """Begins no batch and reads no record; batches on their way go on."""
        self._flow.shut()
        await self._consumer.rest()

    async def follow(self, interest: Interest) -> None:
        """Reads these topics from now on, and no others."""
        with self._to_its_end("a change of what is read"):
            await self._consumer.follow(interest)

    async def quiet(self, patience: float) -> bool:
        """Begins no batch, and waits until no batch is on its way. Whether this happened in time."""
        self._flow.shut()
        return await self._flow.quiet(patience)

    async def leave(self) -> bool:
        """Commits settled offsets and leaves the group; other batches are cancelled. Whether the commit succeeded."""
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
        """Returns when the group has assigned partitions. Fault when the group assigns none in time."""
        until = time.monotonic() + patience
        while not self._flow.partitions:
            if time.monotonic() > until:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"{self._options.id.group}.{self._options.id.instance} has no partitions now; try again later",
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def seek(self, target: SeekTarget) -> list[Position]:
        """Seeks the session's partitions that the target names; their batches on the way are cancelled."""
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

    # calls from the client's thread

    def assigned(self, partitions: set[Partition]) -> None:
        self._flow.assigned(partitions)

    def arrived(self, records: list[RawRecord]) -> None:
        self._flow.arrived(records)

    async def finish(self, partitions: set[Partition]) -> Mapping[Partition, int]:
        offsets = await self._flow.finish(partitions, self._finish_seconds)
        self._forget(partitions)
        return {} if self._options.exactly_once else offsets

    def lost(self, partitions: set[Partition]) -> None:
        ended = self._flow.drop(partitions)  # at once: the next event may assign the same partitions again
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
        if self._options.exactly_once:  # the transaction has committed the offset
            self._consumer.progress.committed[partition] = next_offset
        else:
            self._commits.settled(partition, next_offset, records)

    def _send(self, offsets: Mapping[Partition, int]) -> None:
        self._consumer.commit(offsets)

    @contextlib.contextmanager
    def _to_its_end(self, what: str) -> Iterator[None]:
        """Guards a step that must not end half-way. If it does, positions are unknown, so all partitions begin anew at
        their committed offsets."""
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
        """Runs work in the background; nobody waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
