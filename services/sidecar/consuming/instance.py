"""One consumer instance: a consumer, its thread, and bounds for every call.

The backend reads and commits; operators pause, resume, seek and drain. The instance's thread serves all these calls one
after the other.
"""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from services.sidecar.consuming.consumer_thread import GRACE_SECONDS, ConsumerThread
from services.sidecar.consuming.group_consumer import OFFSETS_SECONDS, SEEK_SECONDS, GroupConsumer, ReadLimits
from services.sidecar.consuming.instance_values import (
    NOTHING,
    InstanceId,
    InstanceOptions,
    InstanceState,
    InstanceStatus,
    Interest,
    ReadRequest,
    Standing,
)
from services.sidecar.consuming.positions import Position, Seek, SeekTarget
from services.sidecar.consuming.reads import Reads
from services.sidecar.consuming.record_stream import RecordStream, StreamRequest
from services.sidecar.consuming.seeking import ASK_SECONDS
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Commit, Consumed, Consumption, Partition

JOIN_SECONDS = 10.0
"""How long a seek waits for the group to be joined."""


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """Bounds, in the unit that each name ends in."""

    max_instances: int
    idle_seconds: float
    commit_seconds: float
    read: ReadLimits = field(default_factory=lambda: ReadLimits(linger_seconds=0.01, max_records=500))


class ConsumerInstance:
    """One consumer and its thread."""

    def __init__(self, id_: InstanceId, options: InstanceOptions, limits: InstanceLimits, reader: RecordReader) -> None:
        self.id = id_
        self.options = options
        self.interest = NOTHING
        """The topics, pattern or partitions that the backend requested."""
        self.standing = Standing.GIVING
        """The state that operators ordered. Interest and standing survive a restart: see `restore`."""
        self._limits = limits
        self._reader = reader
        self._thread = ConsumerThread(id_)
        self._drain: object | None = None
        """The last drain. An earlier drain that finds another one here is over."""
        self._reads = Reads(id_, options, limits.read.max_records, self._thread)
        self._last_status = InstanceStatus(InstanceState.IDLE, (), time.time())

    @property
    def topics(self) -> tuple[str, ...]:
        """The requested topics or pattern, as control shows them."""
        if self.interest.pattern:
            return (f"^{self.interest.pattern}$",)
        return self.interest.topics or tuple(sorted({one.topic for one in self.interest.partitions}))

    async def open(self, properties: dict[str, Any]) -> None:
        """Makes the consumer. Fault when its configuration is refused."""
        await self._thread.open(
            lambda: GroupConsumer(self.id.group, properties, self.options, self._limits.read, self._reader)
        )

    async def restore(self, interest: Interest, standing: Standing, idle_seconds: float) -> None:
        """Goes on as it was before its sidecar ended, idle for so long already; `open` comes first."""
        self.standing = Standing.DRAINED if standing is Standing.DRAINING else standing
        if standing is not Standing.GIVING:
            await self._thread.call(lambda consumer: consumer.pause())
        if interest:
            await self._follow(interest)
        self._thread.touch(idle_seconds)

    # what is read

    async def subscribe(self, topics: tuple[str, ...]) -> None:
        self._refuse_if_assigned()
        await self._follow(Interest(topics=topics))

    async def subscribe_pattern(self, pattern: str) -> None:
        self._refuse_if_assigned()
        await self._follow(Interest(pattern=pattern))

    async def assign(self, partitions: tuple[Partition, ...]) -> None:
        """Assigns partitions by hand, without the group; an empty list ends the assignment."""
        if self.interest.is_shared:
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"Instance {self.id.instance} is subscribed, so its group assigns it partitions; "
                "DELETE .../subscriptions before you assign by hand",
            )
        await self._follow(Interest(partitions=partitions))

    async def unsubscribe(self) -> None:
        """Reads nothing any more, whether it was subscribed or assigned."""
        await self._follow(NOTHING)

    async def subscription(self) -> tuple[str, ...]:
        """The topics asked for; for a pattern, those that it has found."""
        if not self.interest.pattern:
            return self.interest.topics
        return tuple(sorted({one.topic for one in await self.assignment()}))

    async def assignment(self) -> list[Partition]:
        return await self._thread.call(lambda consumer: consumer.assignment())

    # reading

    async def read(self, request: ReadRequest) -> list[Consumed]:
        """The records of one read.

        Fault if no record can be read. The call answers in bounded time, whatever Kafka does.
        """
        self._refuse_if_nothing_to_read()
        return await self._reads.read(request)

    async def give_back(self, records: list[Consumed]) -> None:
        """The backend went away before it could have these records of its last answer."""
        await self._reads.give_back(records)

    def stream(self, request: StreamRequest) -> AbstractAsyncContextManager[RecordStream]:
        """Records until the context ends. Records that are not acknowledged by then come again."""
        self._refuse_if_nothing_to_read()
        return self._reads.stream(request)

    async def acknowledge(self, asked: list[Consumption]) -> list[Commit]:
        """Commits the records of the stream up to these offsets, and opens its window. Fault if there is no stream."""
        return await self._committing(lambda consumer: consumer.acknowledge(asked))

    # offsets

    async def commit(self, asked: list[Consumption] | None, *, wait: bool) -> list[Commit]:
        """Commits the consumed records, or all given records."""
        return await self._committing(lambda consumer: consumer.commit(asked, wait=wait))

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        return await self._thread.call(lambda consumer: consumer.committed(partitions), OFFSETS_SECONDS + GRACE_SECONDS)

    async def move(self, seeks: list[Seek], *, within: bool = False) -> list[Position]:
        """Moves these partitions; waits for the join of the group. Fault if one of them is not assigned."""
        await self._joined()
        bound = 3 * ASK_SECONDS + SEEK_SECONDS + GRACE_SECONDS
        return await self._thread.call(lambda consumer: consumer.seek(seeks, within=within), bound)

    async def move_all(self, target: SeekTarget, *, within: bool = False) -> list[Position]:
        """Moves all assigned partitions among those of the target. Fault if none of them is assigned."""
        await self._joined()
        mine = await self.assignment()
        chosen = [
            Seek(one, target.to)
            for one in mine
            if target.topic in ("", one.topic) and target.partition in (None, one.partition)
        ]
        if not chosen:
            named = (
                f"{target.topic or 'any topic'}, {'any partition' if target.partition is None else target.partition}"
            )
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"Instance {self.id.instance} has no partition to seek in ({named}; it has: "
                f"{', '.join(map(str, mine)) or 'none'})",
            )
        return await self.move(chosen, within=within)

    # operators

    async def pause(self) -> None:
        """Gives nothing until it is resumed, and stays in its group."""
        if self.standing is Standing.GIVING:
            await self._thread.call(lambda consumer: consumer.pause())
            self.standing = Standing.PAUSED

    async def resume(self) -> None:
        """Gives records again, after a pause or a drain."""
        was, self.standing = self.standing, Standing.GIVING
        self._drain = None
        await self._thread.call(lambda consumer: consumer.resume())
        if was is Standing.DRAINED:
            await self._follow(self.interest)

    async def seek(self, target: SeekTarget) -> list[Position]:
        """Moves to another place; given records without a commit lose their effect.

        The new positions are committed, too: otherwise a restart before the backend's next commit would undo the seek.
        """
        positions = await self.move_all(target, within=True)
        # a commit names the next offset
        await self.commit([Consumption(one.partition, one.offset - 1) for one in positions], wait=True)
        return positions

    async def drain(self, timeout: float) -> bool:
        """Gives no more records, waits for the commit of the given records, and leaves the group.

        Whether all were committed.
        """
        if self.standing is Standing.DRAINED:
            return True
        self.standing = Standing.DRAINING
        mine = self._drain = object()
        await self._thread.call(lambda consumer: consumer.pause())
        if self.options.auto_commit:
            await self.commit(None, wait=True)
        await self._comes_true(lambda consumer: consumer.is_committed or self._drain is not mine, timeout)
        if self._drain is not mine:
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"Instance {self.id.instance} got another order while it drained: it is {self.standing.value}",
            )
        is_committed = await self._thread.call(lambda consumer: consumer.is_committed)
        self.standing = Standing.DRAINED
        await self._thread.call(lambda consumer: consumer.follow(NOTHING))
        return is_committed

    @property
    def last_status(self) -> InstanceStatus:
        """The status at the last request for it."""
        return self._last_status

    async def status(self) -> InstanceStatus:
        """The status of the instance; its last known status if its consumer is too busy to answer."""

        def look(consumer: GroupConsumer) -> InstanceStatus:
            state = {
                Standing.PAUSED: InstanceState.PAUSED,
                Standing.DRAINING: InstanceState.DRAINING,
                Standing.DRAINED: InstanceState.DRAINED,
            }.get(self.standing)
            if state is None:
                joined = InstanceState.READING if consumer.is_joined else InstanceState.JOINING
                state = joined if self.interest else InstanceState.IDLE
            return InstanceStatus(state, consumer.status(), time.time() - self.idle_seconds, consumer.problem)

        self._last_status = await self._thread.look(look) or self._last_status
        return self._last_status

    # life

    def interrupt(self) -> None:
        """A read that waits answers now; streams end."""
        self._reads.interrupt()

    async def close(self, timeout: float, because: Fault | None = None) -> None:
        """Leaves the group.

        After `timeout` seconds goes on without waiting: the thread finishes by itself. Later calls get the fault
        `because`; without it, the fault for an unknown instance.
        """
        self.interrupt()
        await self._thread.close(timeout, because)

    def touch(self) -> None:
        """The backend still uses it."""
        self._thread.touch()

    @property
    def is_idle(self) -> bool:
        """Whether the backend has not used it for so long that it is to be closed."""
        return self.idle_seconds > self._limits.idle_seconds

    @property
    def idle_seconds(self) -> float:
        """How long the backend has not used it."""
        return self._thread.idle_seconds

    def _refuse_if_assigned(self) -> None:
        if self.interest.partitions:
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"Instance {self.id.instance} has partitions assigned by hand; "
                "DELETE .../subscriptions before you subscribe",
            )

    def _refuse_if_nothing_to_read(self) -> None:
        if not self.interest:
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION,
                "Consumer is not subscribed to any topics; POST .../subscriptions, or .../assignments, first",
            )

    async def _follow(self, interest: Interest) -> None:
        self.interest = NOTHING  # and that is how it stays if the client refuses
        followed = NOTHING if self.standing is Standing.DRAINED else interest
        await self._thread.call(lambda consumer: consumer.follow(followed))
        self.interest = interest

    async def _joined(self) -> None:
        """Waits for the assignment by the group, if the instance needs one."""
        if self.interest.is_shared:
            await self._comes_true(lambda consumer: consumer.is_joined, JOIN_SECONDS)

    async def _comes_true(self, condition: Callable[[GroupConsumer], bool], timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not await self._thread.call(condition):
            if time.monotonic() > until or self._reads.are_interrupted:
                return False
            await self._thread.call(lambda consumer: consumer.serve())
        return True

    async def _committing(self, function: Callable[[GroupConsumer], list[Commit]]) -> list[Commit]:
        seconds = self._limits.commit_seconds
        late = Fault(
            FaultKind.FAILED_TO_COMMIT_OFFSETS,
            f"Failed to commit offsets: no answer from Kafka within {seconds:g} s; it may still happen",
        )
        commits = await self._thread.call(function, seconds, late)
        self._reads.window_moved()
        return commits
