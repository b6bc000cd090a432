"""A reactive consumer as one instance: it reads, posts to its backend, and carries out the orders of operators.

The consumer has one session after the other: if a client of Kafka cannot go on, a new client replaces it after a pause.
An order of an operator holds at once and for all later sessions. The order is on disk before the operator gets the
answer, so a restart finds the order again.

Control and orders need only the public part. Its state is in `id`, `interest`, `delivery`, `standing`, `options` and
`on_change`. Its methods are `pause`, `resume`, `seek`, `drain`, `configure` and `status`; they raise Fault when they
cannot be done.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import structlog

from mesh.pauses import pause
from services.sidecar.consuming.instance_values import (
    InstanceState,
    InstanceStatus,
    Interest,
    PartitionStatus,
    Standing,
)
from services.sidecar.consuming.positions import Position, SeekTarget
from services.sidecar.delivering.writing import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.reactive.batch_processor import BatchProcessor
from services.sidecar.reactive.batch_sink import BatchSink
from services.sidecar.reactive.kept_orders import NOTHING_ORDERED, KeptOrders
from services.sidecar.reactive.options import Change, Delivery, ReactiveOptions
from services.sidecar.reactive.session import Session
from services.sidecar.records import Commit, Partition, RawRecord
from services.sidecar.telemetry import metrics, topic_metrics

JOIN_SECONDS = 30.0
"""The longest wait of a seek for the consumer to join its group."""
STATUS_EVERY_SECONDS = 5.0
"""The time between two measurements of the lag, if nobody asks for the status."""
WATCHDOG_SECONDS = 120.0
"""A thread that is silent for so long will not recover. Kafka's client may need a minute for one commit."""

log = structlog.get_logger(__name__)


class Settling(Protocol):
    """The part of settling outcomes that concerns the whole consumer."""

    @property
    def problem(self) -> str:
        """The reason why outcomes cannot be settled; empty if they can."""

    async def check(self, session: Session) -> None:
        """Returns when outcomes can be settled as the settings want. Fault when they cannot."""

    async def close(self) -> None: ...


class ReactiveConsumer:
    """The reactive consumer of one subscription."""

    def __init__(
        self,
        options: ReactiveOptions,
        properties: Mapping[str, Any],
        processor: BatchProcessor,
        sink: BatchSink,
        settling: Settling,
        *,
        name: str = "",
        kept: KeptOrders = NOTHING_ORDERED,
        keep: Callable[[KeptOrders], Awaitable[None]] | None = None,
    ) -> None:
        """`name`: the subscription's, for metrics. `kept` has the orders from the process before this one; `keep`
        returns when new orders are on disk. Fault when a delivery is not understood.
        """
        self.id = options.id
        self._name = name
        self.options = options
        self.standing = kept.standing
        self.on_change: Callable[[], None] = lambda: None
        """Called when the state differs from the state that control knows."""
        self._properties = properties
        self._processor = processor
        self._sink = sink
        self._settling = settling
        self._change = kept.change
        self._keep = keep
        self._lock = asyncio.Lock()
        """Orders wait for each other; a drain that waits for the backend lets other orders pass."""
        self._draining: object | None = None
        sink.configure(self.delivery)
        self._session: Session | None = None
        self._problem = "it has not begun yet"
        self._can_deliver = False
        self._life: asyncio.Task[None] | None = None
        self._last_status = InstanceStatus(InstanceState.JOINING, (), time.time(), self._problem)

    @property
    def interest(self) -> Interest:
        """The topics or the pattern that the consumer reads."""
        return self._change.interest or self.options.interest

    @property
    def delivery(self) -> Delivery:
        """The present delivery settings."""
        return self._change.applied_to(self.options.delivery)

    @property
    def last_status(self) -> InstanceStatus:
        """The status at the last time that somebody asked for it."""
        return self._last_status

    @property
    def session(self) -> Session | None:
        """The present session."""
        return self._session

    # start and end

    def start(self, ready: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Reads once `ready` returns; the task never ends by itself."""
        topic_metrics.group_lag.add(self._lag)
        self._life = asyncio.create_task(self._live(ready), name="reactive")
        return self._life

    async def close(self, patience: float) -> None:
        """Takes no more records, waits for batches on the way, commits, leaves the group: all in bounded time."""
        topic_metrics.group_lag.remove(self._lag)
        session, self._session = self._session, None
        if session is not None:
            await session.end(patience)
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self._sink.stop(0)
        await self._settling.close()

    async def fault(self) -> str | None:
        """The reason why records do not get to the backend; None if they do, or an operator has stopped them."""
        if self.standing is not Standing.GIVING:
            return None
        if self._problem or self._session is None:
            return f"the reactive consumer does not deliver: {self._problem or 'it stops'}"
        if not self._session.is_joined:
            return f"the reactive consumer has not joined group {self.id.group} yet"
        return await self._sink.fault() or self._settling.problem or next(iter(self._processor.problems.values()), None)

    def liveness_fault(self) -> str | None:
        """The fault that only a restart can cure; None without such a fault."""
        session = self._session
        if session is None or session.silent_seconds < WATCHDOG_SECONDS + self.options.finish_seconds:
            return None
        return f"the thread of the reactive consumer hangs since {session.silent_seconds:.0f} s; restart this sidecar"

    # operators

    async def pause(self) -> None:
        """Takes no more records until `resume`, and stays in the group; batches on their way end."""
        async with self._lock:
            if self.standing is Standing.GIVING:
                await self._stand(Standing.PAUSED)  # first: if the client is too busy to rest, an operator can resume
                if self._session is not None:
                    await self._session.rest()

    async def resume(self) -> None:
        """Takes records again, after a pause or a drain."""
        async with self._lock:
            was = self.standing
            self._draining = None
            if self._session is not None and was is not Standing.GIVING:
                if was is Standing.DRAINED:
                    await self._session.follow(self.interest)
                await self._session.wake()
            await self._stand(Standing.GIVING)
            if (
                self._session is not None and self._can_deliver
            ):  # else `_watch`, which checks the standing, lets the session deliver
                self._session.deliver()

    async def seek(self, target: SeekTarget) -> list[Position]:
        """Seeks the consumer's partitions that the target names. The new offsets are committed, and the batches of
        these partitions are dropped.
        """
        async with self._lock:
            session = self._present()
            await session.has_partitions(0 if self.standing is Standing.DRAINED else JOIN_SECONDS)
            return await session.seek(target)

    async def drain(self, seconds: float) -> bool:
        """Takes no more records, waits for batches on their way, commits, and leaves the group until `resume`.

        Whether the offsets of all taken records were committed. Fault when another order comes meanwhile.
        """
        if self.standing is Standing.DRAINED:
            return True
        mine = self._draining = object()
        await self._stand(Standing.DRAINING)
        is_done = self._session is None or await self._session.quiet(seconds)
        async with self._lock:
            if self._draining is not mine:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"{self.id.group}.{self.id.instance} got another order while it drained: "
                    f"it is {self.standing.value}",
                )
            if self._session is not None:
                is_done = await self._session.leave() and is_done
            await self._stand(Standing.DRAINED)
        return is_done

    async def configure(self, change: Change) -> None:
        """Changes the topics or the delivery from now on; batches on their way end with the old delivery."""
        async with self._lock:
            self._refuse(change)
            before, read = self._change, self.interest
            self._sink.configure(change.applied_to(self.delivery))
            self._change = before.followed_by(change)
            if self._session is not None:
                if self.interest != read and self.standing is not Standing.DRAINED:
                    try:
                        await self._session.follow(self.interest)
                    except Fault:
                        self._change = before
                        self._sink.configure(self.delivery)
                        raise
                self._session.configure(self.delivery)
            await self._written()

    async def status(self) -> InstanceStatus:
        """The present status; the last known status, if the client is too busy to answer."""
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

    # for transactions: the consumer's group metadata, and the committed offsets of the group

    async def group_metadata(self) -> Any:
        return await self._present().group_metadata()

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        return await self._present().committed(partitions)

    # sessions

    async def _live(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Runs one session after the other, for ever."""
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
        """Runs one session, and returns the reason of its end. Fault when the session could not begin."""
        session = self._session = Session(
            self.options, self.delivery, self._process, self._processor.forget, self._name
        )
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
        """Lets batches begin when they can be settled; then measures the lag from time to time."""
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

    async def _process(self, partition: Partition, records: list[RawRecord]) -> int:
        return await self._processor.process(partition, records, self._sink)

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
        """Returns when the orders are on disk, or the log has the reason of the failure."""
        if self._keep is not None:
            await self._keep(KeptOrders(self.standing, self._change))
        self.on_change()

    def _lag(self) -> Iterable[tuple[str, str, int]]:
        return [(self.id.group, one.partition.topic, one.lag) for one in self._last_status.partitions]
