"""The reactive consumer as one instance: it reads, posts to its backend, and does what operators order.

Its life is a row of sessions: a client of Kafka that cannot go on makes way for a new one, after a pause. What
operators order counts at once and for all sessions to come; it is on disk before they hear of it, so a restart finds it
again.

For control and orders there is nothing else to know than the public part: `id`, `interest`, `delivery`, `standing`,
`options`, `on_change`; `pause`, `resume`, `seek`, `drain`, `configure`, `status`, which raise Fault when they cannot be
done.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import structlog

from mesh.pauses import pause
from services.sidecar import metrics, topic_metrics
from services.sidecar.consuming.records import (
    Commit,
    InstanceState,
    InstanceStatus,
    Interest,
    Partition,
    PartitionStatus,
    Position,
    SeekTarget,
    Standing,
)
from services.sidecar.delivering.records import RawRecord
from services.sidecar.delivering.writing import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.reactive.courier import Courier
from services.sidecar.reactive.kept import NOTHING_ORDERED, Kept
from services.sidecar.reactive.options import Change, Delivery, ReactiveOptions
from services.sidecar.reactive.session import Session
from services.sidecar.reactive.way import Way

JOIN_SECONDS = 30.0
"""How long a seek waits for the group to be joined."""
STATUS_EVERY_SECONDS = 5.0
"""How often lag is looked at when nobody asks."""
WATCHDOG_SECONDS = 120.0
"""A thread that has not been seen for so long does not come back. Kafka's client may need a minute for one commit."""

log = structlog.get_logger(__name__)


class Settling(Protocol):
    """How outcomes are made durable, as far as it concerns the whole consumer."""

    @property
    def problem(self) -> str:
        """What hinders it; empty if nothing does."""

    async def check(self, session: Session) -> None:
        """Returns when it is known that outcomes can be settled as it is wanted. Fault when they cannot."""

    async def close(self) -> None: ...


class ReactiveConsumer:
    """One for a sidecar."""

    def __init__(
        self,
        options: ReactiveOptions,
        properties: Mapping[str, Any],
        courier: Courier,
        way: Way,
        settling: Settling,
        *,
        kept: Kept = NOTHING_ORDERED,
        keep: Callable[[Kept], Awaitable[None]] | None = None,
    ) -> None:
        """`kept` is what the process before this one was told; `keep` returns when what is told now is on disk. Fault
        when a delivery is not understood.
        """
        self.id = options.id
        self.options = options
        self.standing = kept.standing
        self.on_change: Callable[[], None] = lambda: None
        """Called when it is not as control knows it any more."""
        self._properties = properties
        self._courier = courier
        self._way = way
        self._settling = settling
        self._change = kept.change
        self._keep = keep
        self._turn = asyncio.Lock()
        """Orders wait for each other; a drain, while it waits for the backend, lets others pass."""
        self._draining: object | None = None
        way.configure(self.delivery)
        self._session: Session | None = None
        self._problem = "it has not begun yet"
        self._can_deliver = False
        self._life: asyncio.Task[None] | None = None
        self._last_status = InstanceStatus(InstanceState.JOINING, (), time.time(), self._problem)

    @property
    def interest(self) -> Interest:
        """What it reads."""
        return self._change.interest or self.options.interest

    @property
    def delivery(self) -> Delivery:
        """How it delivers."""
        return self._change.applied_to(self.options.delivery)

    @property
    def session(self) -> Session | None:
        """The present one."""
        return self._session

    # its life

    def start(self, ready: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Reads once `ready` returns; the task never ends by itself."""
        topic_metrics.group_lag.add(self._lag)
        self._life = asyncio.create_task(self._live(ready), name="reactive")
        return self._life

    async def close(self, patience: float) -> None:
        """Takes nothing more, lets what is on its way end, commits, leaves the group: all of it in bounded time."""
        topic_metrics.group_lag.remove(self._lag)
        session, self._session = self._session, None
        if session is not None:
            await session.end(patience)
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self._way.stop(0)
        await self._settling.close()

    async def fault(self) -> str | None:
        """Why records do not get to the backend; None when they do, or an operator does not want them to."""
        if self.standing is not Standing.GIVING:
            return None
        if self._problem or self._session is None:
            return f"the reactive consumer does not deliver: {self._problem or 'it stops'}"
        if not self._session.is_joined:
            return f"the reactive consumer has not joined group {self.id.group} yet"
        return await self._way.fault() or self._settling.problem or next(iter(self._courier.problems.values()), None)

    def liveness_fault(self) -> str | None:
        """What only a restart can cure."""
        session = self._session
        if session is None or session.silent_seconds < WATCHDOG_SECONDS + self.options.finish_seconds:
            return None
        return f"the thread of the reactive consumer hangs since {session.silent_seconds:.0f} s; restart this sidecar"

    # operators

    async def pause(self) -> None:
        """Takes nothing more until it is resumed, and stays in its group; what is on its way ends."""
        async with self._turn:
            if self.standing is Standing.GIVING:
                await self._stand(Standing.PAUSED)  # first: if the client is too busy to rest, it can be resumed
                if self._session is not None:
                    await self._session.rest()

    async def resume(self) -> None:
        """Goes on, after a pause or a drain."""
        async with self._turn:
            was = self.standing
            self._draining = None
            if self._session is not None and was is not Standing.GIVING:
                if was is Standing.DRAINED:
                    await self._session.follow(self.interest)
                await self._session.wake()
            await self._stand(Standing.GIVING)
            if (
                self._session is not None and self._can_deliver
            ):  # else `_watch` has it deliver, which sees how it stands
                self._session.deliver()

    async def seek(self, target: SeekTarget) -> list[Position]:
        """Goes on elsewhere, in all partitions that it has, of those that the target names. That is committed, and
        whatever was on its way there does not matter any more.
        """
        async with self._turn:
            session = self._present()
            await session.has_partitions(0 if self.standing is Standing.DRAINED else JOIN_SECONDS)
            return await session.seek(target)

    async def drain(self, seconds: float) -> bool:
        """Takes nothing more, waits for what is on its way, commits, and leaves its group until it is resumed.

        Whether all that it took was committed. Fault when it is told otherwise meanwhile.
        """
        if self.standing is Standing.DRAINED:
            return True
        mine = self._draining = object()
        await self._stand(Standing.DRAINING)
        is_done = self._session is None or await self._session.quiet(seconds)
        async with self._turn:
            if self._draining is not mine:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"{self.id.group}.{self.id.instance} was told otherwise while it drained: "
                    f"it is {self.standing.value}",
                )
            if self._session is not None:
                is_done = await self._session.leave() and is_done
            await self._stand(Standing.DRAINED)
        return is_done

    async def configure(self, change: Change) -> None:
        """Reads or delivers otherwise from now on; batches on their way end as they began."""
        async with self._turn:
            self._refuse(change)
            before, read = self._change, self.interest
            self._way.configure(change.applied_to(self.delivery))
            self._change = before.followed_by(change)
            if self._session is not None:
                if self.interest != read and self.standing is not Standing.DRAINED:
                    try:
                        await self._session.follow(self.interest)
                    except Fault:
                        self._change = before
                        self._way.configure(self.delivery)
                        raise
                self._session.configure(self.delivery)
            await self._written()

    async def status(self) -> InstanceStatus:
        """How it does; what it said last, if its consumer is too busy to say."""
        partitions: tuple[PartitionStatus, ...] = ()
        problem = self._problem
        if self._session is not None:
            try:
                partitions, hindered = await self._session.status()
            except Fault:
                return self._last_status
            problem = hindered or await self.fault() or ""
        self._last_status = InstanceStatus(self._state(), partitions, time.time(), problem)
        return self._last_status

    # for transactions: who it is in its group, and what that has committed

    async def group_metadata(self) -> Any:
        return await self._present().group_metadata()

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        return await self._present().committed(partitions)

    # how it goes on

    async def _live(self, ready: Callable[[], Awaitable[None]]) -> None:
        """One session after the other, for ever."""
        self._problem = "it waits for its backend"
        await ready()
        failures = 0
        while True:
            began = time.monotonic()
            try:
                self._problem = await self._one_session()
            except Fault as refused:
                self._problem = refused.description
            failures = 1 if time.monotonic() - began > WATCHDOG_SECONDS else failures + 1
            metrics.reactive_restarts.inc()
            log.warning("the reactive consumer begins anew", reason=self._problem)
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    async def _one_session(self) -> str:
        """Why it ended. Fault when it did not even begin."""
        session = self._session = Session(self.options, self.delivery, self._carry, self._courier.forget)
        watching: asyncio.Task[None] | None = None
        try:
            stays = self.standing not in (Standing.DRAINED, Standing.DRAINING)
            await session.begin(
                self._properties, self.interest if stays else Interest(), rests=self.standing is not Standing.GIVING
            )
            watching = asyncio.create_task(self._watch(session), name="reactive session")
            watching.add_done_callback(lambda _: session.broke("who looks after it failed"))
            return await session.broken
        finally:
            self._can_deliver = False
            if watching is not None:
                watching.cancel()
            if self._session is session:
                self._session = None
                await session.end(0)

    async def _watch(self, session: Session) -> None:
        """Has batches begin once it is known that they can be settled; then looks after the lag."""
        failures = 0
        while not self._can_deliver:
            try:
                await self._settling.check(session)
                self._can_deliver = True
            except Fault as refused:
                if self._problem != refused.description:
                    log.error("the reactive consumer does not deliver", reason=refused.description)
                self._problem = refused.description
                failures += 1
                await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
        self._problem = ""
        if self.standing is Standing.GIVING:
            session.deliver()
        while True:
            await self.status()
            await asyncio.sleep(STATUS_EVERY_SECONDS)

    async def _carry(self, partition: Partition, records: list[RawRecord]) -> int:
        return await self._courier.carry(partition, records, self._way)

    def _present(self) -> Session:
        if self._session is None:
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                f"{self.id.group}.{self.id.instance} is not connected now ({self._problem or 'it stops'}); "
                "try again later",
            )
        return self._session

    def _state(self) -> InstanceState:
        match self.standing:
            case Standing.PAUSED:
                return InstanceState.PAUSED
            case Standing.DRAINING:
                return InstanceState.DRAINING
            case Standing.DRAINED:
                return InstanceState.DRAINED
        is_joined = self._session is not None and self._session.is_joined
        return InstanceState.READING if is_joined else InstanceState.JOINING

    def _refuse(self, change: Change) -> None:
        if unknown := change.delivery.keys() - {each.name for each in fields(Delivery)}:
            raise invalid("/delivery", f"there is no {', '.join(sorted(unknown))}")
        url = change.delivery.get("backend_url")
        if url is not None and not self.options.allows_backend(url):
            hosts = ", ".join(sorted(self.options.backend_hosts)) or "none"
            way_out = f"name the host in backend_hosts of this sidecar (now {hosts})"
            raise invalid("/delivery/backend_url", f"{url} is neither this machine nor backend_url's host; {way_out}")
        if self.options.exactly_once and change.delivery.get("order_by_key"):
            raise invalid("/delivery/order_by_key", "is not possible while reactive_exactly_once is on")
        try:
            re.compile(change.pattern)
        except re.error as error:
            raise invalid("/topic_pattern", f"{change.pattern!r} is none: {error}") from None

    async def _stand(self, standing: Standing) -> None:
        self.standing = standing
        await self._written()

    async def _written(self) -> None:
        """What was ordered is on disk, or the log says why not."""
        if self._keep is not None:
            await self._keep(Kept(self.standing, self._change))
        self.on_change()

    def _lag(self) -> Iterable[tuple[str, str, int]]:
        return [(self.id.group, one.partition.topic, one.lag) for one in self._last_status.partitions]
