"""The Kafka client of a reactive consumer, on a thread of its own, which hands records to the event loop.

1. The thread waits in the client's own poll, so each record goes to the loop as soon as it arrives. The group is served
   at any speed of the backend: a slow backend never costs the consumer its partitions.
2. The held records of each partition are bounded (`PartitionShares`). If a partition fills its share, only that
   partition is paused.
3. A revoked partition is let go when the loop has finished with it, in bounded time, and its offset is committed. A
   lost partition is dropped without a commit.
4. The client belongs to its thread alone: a call from another thread would wait for the poll, and would hold up all of
   Python meanwhile. So calls of the loop run between two polls, which are short while records are held.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

import structlog
from confluent_kafka import KafkaException, TopicPartition

from services.sidecar.consuming.instance_values import Interest, PartitionStatus
from services.sidecar.consuming.membership import Membership
from services.sidecar.consuming.partition_lag import PartitionLag
from services.sidecar.consuming.partition_reader import raw_record
from services.sidecar.consuming.positions import Position, Seek
from services.sidecar.consuming.progress import Progress
from services.sidecar.consuming.seeking import positions_of, within_ends
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.reactive.partition_shares import PartitionShares
from services.sidecar.records import Commit, Partition, RawRecord
from services.sidecar.telemetry import metrics

POLL_SECONDS = 0.1
BUSY_POLL_SECONDS = 0.01
"""The wait of one poll while records are held, and so the longest wait of a call from the loop."""
MAX_FETCHED = 500
"""Records that one turn takes from the client."""
GRACE_SECONDS = 5.0
"""The time that a call may take beyond its own bound."""
SEEK_SECONDS = 5.0
"""The longest time until a new partition can be sought."""
ASK_SECONDS = 20.0
"""The bound of a call that sends several requests to Kafka."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Listener(Protocol):
    """The receiver of records and partition changes; all methods run on the event loop, in the order of the events."""

    def assigned(self, partitions: set[Partition]) -> None: ...

    def arrived(self, records: list[RawRecord]) -> None: ...

    async def finish(self, partitions: set[Partition]) -> Mapping[Partition, int]:
        """Ends the batches of these partitions, in bounded time, and forgets the partitions. The offsets to commit."""

    def lost(self, partitions: set[Partition]) -> None: ...

    def commit_ended(self, commits: list[Commit]) -> None:
        """A commit has ended; Kafka has taken these offsets."""

    def broke(self, reason: str) -> None:
        """The client cannot go on."""


class PollingConsumer:
    """One client and its thread, from `open` to `close`; it cannot be opened again."""

    def __init__(
        self, name: str, shares: PartitionShares, listener: Listener, finish_seconds: float, subscription: str = ""
    ) -> None:
        """`finish_seconds`: the longest time of `Listener.finish`."""
        self._shares = shares
        self._listener = listener
        self._finish_seconds = finish_seconds
        self._loop = asyncio.get_running_loop()
        # SimpleQueue has no bound of its own, but there are no more calls than operators and batches
        self._calls: queue.SimpleQueue[tuple[Future[Any] | None, Callable[[Membership], Any]]] = queue.SimpleQueue()
        self._membership: Membership | None = None
        self._partition_lag: PartitionLag | None = None
        self.progress = Progress()
        """The progress of each partition; the settled records count as given."""
        self._fetched: dict[Partition, int] = {}
        self._is_known = False
        self._is_ending = False
        self._turned_at = time.monotonic()
        self._held_records = metrics.reactive_held_records.labels(subscription)
        self._held_bytes = metrics.reactive_held_bytes.labels(subscription)
        context = contextvars.copy_context()  # log lines of the thread name the subscription, too
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=f"reactive-{name}", daemon=True)

    def open(self, properties: Mapping[str, Any]) -> None:
        """Makes the client, which has joined no group yet. Fault when its configuration is refused."""
        self._membership = Membership(
            dict(properties),
            self._begin,
            self._on_committed,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        self._partition_lag = PartitionLag(self._membership, self.progress)
        self._thread.start()

    @property
    def silent_seconds(self) -> float:
        """The time since the thread's last turn."""
        return time.monotonic() - self._turned_at

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_joined(self) -> bool:
        """Whether the group has assigned partitions to the consumer, or has assigned none."""
        return self._is_known and not self._is_ending

    async def follow(self, interest: Interest) -> None:
        """Reads these topics from now on, and no others. Fault when the client refuses them."""
        await self._call(lambda membership: membership.follow(interest))

    async def rest(self) -> None:
        """Pauses all partitions until `wake`."""
        await self._call(lambda membership: membership.rest())

    async def wake(self) -> None:
        """Resumes all partitions but those whose share is full."""
        await self._call(self._wake)

    async def positions(self, seeks: list[Seek]) -> list[Position]:
        """The offsets of the seeks, none behind the log's end; nothing is sought yet. Fault if Kafka is silent."""
        return await self._call(
            lambda membership: within_ends(positions_of(seeks, membership.client), membership.client), ASK_SECONDS
        )

    async def seek(self, positions: list[Position]) -> None:
        """Seeks partitions to these positions, and commits the positions. `Listener.assigned` gets the partitions anew.

        The loop must have forgotten the partitions before. Fault when a partition cannot be sought; then the positions
        of all of them are unknown.
        """
        await self._call(lambda membership: self._sought(membership, positions), ASK_SECONDS)

    async def status(self) -> tuple[tuple[PartitionStatus, ...], str]:
        """The status of each partition, and the consumer's problem."""

        def run(membership: Membership) -> tuple[tuple[PartitionStatus, ...], str]:
            assert self._partition_lag is not None
            return self._partition_lag.status(), membership.problem

        return await self._call(run)

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        """The committed offsets of the group; partitions without a commit are left out."""
        return await self._call(lambda membership: membership.committed(partitions, GRACE_SECONDS), ASK_SECONDS)

    async def commit_now(self, offsets: Mapping[Partition, int]) -> None:
        """Commits offsets, and returns when they are committed. Fault when Kafka refuses."""
        await self._call(lambda membership: membership.commit(_positions(offsets), wait=True), ASK_SECONDS)

    def freed(self, partition: Partition, records: int, size: int) -> None:
        """Notes that the loop holds so many records and bytes of a partition less."""

        def run(membership: Membership) -> None:
            if self._shares.freed(partition, records, size):
                self._resume(membership, [partition])

        self._post(run)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Hands a commit over; its result goes to `Listener.commit_ended`."""

        def run(membership: Membership) -> None:
            try:
                membership.commit(_positions(offsets), wait=False)
            except Fault as refused:
                log.debug("a commit was not taken", reason=refused.description)
                self._tell(self._listener.commit_ended, [])

        self._post(run)

    async def group_metadata(self) -> Any:
        """The consumer's group metadata, for a transaction that commits its offsets."""
        return await self._call(lambda membership: membership.client.consumer_group_metadata())

    async def close(self, timeout: float) -> None:
        """Leaves the group, after `Listener.finish` for its partitions. Waits for that `timeout` seconds at most."""
        if self._membership is None or not self._thread.is_alive():
            return
        closed = self._called(lambda membership: membership.close(), timeout)
        self._is_ending = True
        try:
            await closed
        except (TimeoutError, KafkaException, RuntimeError) as problem:
            log.warning("the reactive consumer did not close cleanly", reason=str(problem) or "not in time")

    async def _call(self, function: Callable[[Membership], T], timeout: float = GRACE_SECONDS) -> T:
        """The result of a function, run on the client's thread. Fault when the thread has ended, or is too busy."""
        if not self._thread.is_alive() or self._is_ending:
            raise Fault(FaultKind.CONSUMER_INSTANCE_BUSY, "the reactive consumer is not connected now; try again later")
        try:
            return await self._called(function, timeout)
        except TimeoutError:
            raise Fault(
                FaultKind.CONSUMER_INSTANCE_BUSY,
                f"the reactive consumer did not do it within {timeout:g} s, and may still do it",
            ) from None

    def _post(self, function: Callable[[Membership], None]) -> None:
        """Has the thread run a function, and does not wait for the result."""
        if not self._is_ending:
            self._calls.put((None, function))

    def _called(self, function: Callable[[Membership], T], timeout: float) -> Awaitable[T]:
        future: Future[T] = Future()
        self._calls.put((future, function))
        return asyncio.wait_for(asyncio.wrap_future(future), timeout + POLL_SECONDS)

    # on the thread

    def _run(self) -> None:
        assert self._membership is not None
        try:
            while not self._serve_calls(self._membership):
                self._turned_at = time.monotonic()
                self._held_records.set(self._shares.records)
                self._held_bytes.set(self._shares.size)
                self._is_known = self._membership.assigned_at is not None or self._has_name(self._membership)
                self._fetch(self._membership)
                if self._membership.has_failed and (fault := self._membership.fault()) is not None:
                    log.warning("the reactive consumer cannot read", reason=fault.description)
                    if self._membership.is_broken:
                        self._give_up(self._membership, fault.description)
                        return
        except Exception as error:
            log.exception("the reactive consumer failed")
            self._give_up(self._membership, str(error) or type(error).__name__)

    def _has_name(self, membership: Membership) -> bool:
        """Whether the client has a member id. In the newer protocol, the client does not report an empty assignment, so
        the member id shows that the consumer has joined."""
        return membership.is_of_brokers_group and membership.interest.is_shared and bool(membership.client.memberid())

    def _give_up(self, membership: Membership, reason: str) -> None:
        self._is_ending = True
        self._tell(self._listener.broke, reason)
        with contextlib.suppress(KafkaException, RuntimeError):
            membership.close()

    def _serve_calls(self, membership: Membership) -> bool:
        """Runs the calls that wait. Whether the client was closed."""
        while True:
            try:
                future, function = self._calls.get_nowait()
            except queue.Empty:
                return self._is_ending and self._calls.empty()
            if future is None:
                function(membership)
                continue
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(membership))
            except Exception as error:  # noqa: BLE001  # the caller that awaits the result gets it
                future.set_exception(error)

    def _fetch(self, membership: Membership) -> None:
        """Takes the first message as soon as it arrives, and all messages that came with it."""
        first = membership.poll(BUSY_POLL_SECONDS if self._shares.records else POLL_SECONDS)
        if first is None:
            return
        messages = [first, *membership.consume(MAX_FETCHED - 1, 0)]
        records = [raw_record(message) for message in messages]
        self._fetched.update((Partition(one.topic, one.partition), one.offset + 1) for one in records)
        self._take_in(membership, records)
        self._tell(self._listener.arrived, records)

    def _take_in(self, membership: Membership, records: list[RawRecord]) -> None:
        loads: dict[Partition, list[int]] = defaultdict(lambda: [0, 0])
        for record in records:
            load = loads[Partition(record.topic, record.partition)]
            load[0] += 1
            load[1] += record.size
        self._pause(membership, {one for one, load in loads.items() if self._shares.took(one, load[0], load[1])})

    def _pause(self, membership: Membership, partitions: set[Partition]) -> None:
        if partitions:
            try:
                membership.client.pause([TopicPartition(*one) for one in partitions])
            except KafkaException as error:
                log.debug("partitions cannot be paused", error=str(error))  # they went meanwhile

    def _resume(self, membership: Membership, partitions: list[Partition]) -> None:
        if not membership.rests:
            try:
                membership.client.resume([TopicPartition(*one) for one in partitions])
            except KafkaException as error:
                log.debug("partitions cannot be resumed", error=str(error))  # they went meanwhile

    def _wake(self, membership: Membership) -> None:
        membership.wake()
        self._pause(membership, self._shares.resting)

    def _sought(self, membership: Membership, positions: list[Position]) -> None:
        moved = {one.partition for one in positions}
        rested = membership.rests
        membership.wake()  # a paused partition would go on at its old position
        if membership.has_fresh(moved):
            membership.begin(positions, self._fetched)
            self._begin_at(positions)
        else:
            for position in positions:
                self._seek(membership, position)
                self._begin_at([position])  # before the next partition, for which the client may have to fetch more
        if rested:
            membership.rest()
        else:
            self._resume(membership, list(moved))
            self._pause(membership, self._shares.resting)
        membership.commit(_positions({one.partition: one.offset for one in positions}), wait=True)

    def _seek(self, membership: Membership, position: Position) -> None:
        until = time.monotonic() + SEEK_SECONDS
        while not membership.seek(position):
            if time.monotonic() > until:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"Partition {position.partition} cannot be sought yet; seek again later",
                )
            self._fetch(membership)

    def _begin_at(self, positions: list[Position]) -> None:
        self._begin({one.partition for one in positions})
        self._fetched.update((one.partition, one.offset) for one in positions)
        self.progress.given.update((one.partition, one.offset) for one in positions)

    def _begin(self, partitions: set[Partition]) -> None:
        """Prepares partitions that are new, or begin at another offset."""
        self._shares.open(partitions)
        self._forget(partitions)
        self._tell(self._listener.assigned, partitions)

    def _forget(self, partitions: set[Partition]) -> None:
        self.progress.forget(partitions)
        for partition in partitions:
            self._fetched.pop(partition, None)
        if self._partition_lag is not None:
            self._partition_lag.changed()

    def _on_revoked(self, partitions: set[Partition]) -> None:
        finishing = asyncio.run_coroutine_threadsafe(self._finish(partitions), self._loop)
        try:
            offsets = finishing.result(self._finish_seconds + GRACE_SECONDS)
        except (TimeoutError, CancelledError):
            finishing.cancel()
            log.error("revoked partitions are let go unfinished", partitions=len(partitions))
            offsets = {}
        self._shares.close(partitions)
        self._forget(partitions)
        if offsets and self._membership is not None:
            try:
                self._membership.commit(_positions(offsets), wait=True)
            except Fault as refused:  # the new owners of the partitions get these records again
                log.warning("offsets of revoked partitions are not committed", reason=refused.description)

    def _on_lost(self, partitions: set[Partition]) -> None:
        self._shares.close(partitions)
        self._forget(partitions)
        log.warning("partitions were lost: another member has them already", partitions=sorted(map(str, partitions)))
        self._tell(self._listener.lost, partitions)

    def _on_committed(self, commits: list[Commit]) -> None:
        self.progress.commits(commits)
        self._tell(self._listener.commit_ended, commits)

    async def _finish(self, partitions: set[Partition]) -> Mapping[Partition, int]:
        return await self._listener.finish(partitions)

    def _tell(self, function: Callable[..., None], *args: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)


def _positions(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition, offset) for partition, offset in offsets.items()]
