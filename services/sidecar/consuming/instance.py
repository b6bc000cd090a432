"""One consumer instance: a consumer, the thread that it lives on, and bounds for every call."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaException

from services.sidecar.consuming.group_consumer import OFFSETS_SECONDS, GroupConsumer, ReadLimits
from services.sidecar.consuming.records import (
    Commit,
    Consumed,
    Consumption,
    InstanceId,
    InstanceOptions,
    Partition,
    ReadRequest,
)
from services.sidecar.consuming.serial import SerialThread, TooManyCallsError
from services.sidecar.faults import Fault, FaultKind

T = TypeVar("T")
GRACE_SECONDS = 5.0
"""What a call may take beyond its own bound: another call that runs before it, a client that is being closed."""
ANSWER_SECONDS = 1.0
"""A read ends so much before its caller gives up: records that nobody takes would be lost to the instance."""
IDLE_POLL_SECONDS = 0.2
"""How often an instance that nobody reads from serves its group."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """Bounds, in the unit that each name ends in."""

    max_instances: int
    idle_seconds: float
    commit_seconds: float
    read: ReadLimits = field(default_factory=lambda: ReadLimits(linger_seconds=0.01, max_records=500))


class ConsumerInstance:
    """One consumer and the thread that it lives on. Calls are served one after the other."""

    def __init__(self, id_: InstanceId, options: InstanceOptions, limits: InstanceLimits) -> None:
        self.id = id_
        self.options = options
        self.topics: tuple[str, ...] = ()
        """What it was asked to read, for control."""
        self._limits = limits
        self._consumer: GroupConsumer | None = None
        self._open_calls = 0
        self._last_used = time.monotonic()
        self._thread = SerialThread(f"instance-{id_.instance}", self._keep_alive, IDLE_POLL_SECONDS)

    async def open(self, properties: dict[str, Any]) -> None:
        """Makes the consumer. Fault when its configuration is refused."""

        def make() -> None:
            self._consumer = GroupConsumer(properties, self.options, self._limits.read)

        await self._call(make, GRACE_SECONDS)

    async def subscribe(self, topics: tuple[str, ...]) -> None:
        await self._on_consumer(lambda consumer: consumer.subscribe(topics), GRACE_SECONDS)
        self.topics = topics

    async def subscribe_pattern(self, pattern: str) -> None:
        await self._on_consumer(lambda consumer: consumer.subscribe_pattern(pattern), GRACE_SECONDS)
        self.topics = (f"^{pattern}$",)

    async def unsubscribe(self) -> None:
        await self._on_consumer(lambda consumer: consumer.unsubscribe(), GRACE_SECONDS)
        self.topics = ()

    async def subscription(self) -> tuple[str, ...]:
        return await self._on_consumer(lambda consumer: consumer.subscription(), GRACE_SECONDS)

    async def assignment(self) -> list[Partition]:
        return await self._on_consumer(lambda consumer: consumer.assignment(), GRACE_SECONDS)

    async def read(self, request: ReadRequest) -> list[Consumed]:
        """Records; Fault when nothing can be read. Answers in bounded time, whatever Kafka does."""
        bound = max(request.timeout or 0, self.options.read_timeout) + GRACE_SECONDS
        not_after = time.monotonic() + bound - ANSWER_SECONDS
        return await self._on_consumer(lambda consumer: consumer.read(request, not_after), bound)

    async def give_back(self, records: list[Consumed]) -> None:
        """The backend went away before it could have these records of its last read."""
        if not await self._on_consumer(lambda consumer: consumer.give_back(records), GRACE_SECONDS):
            log.warning("records did not reach the backend", instance=self.id.instance, records=len(records))

    async def commit(self, asked: list[Consumption] | None, *, wait: bool) -> list[Commit]:
        """Commits what was consumed, or all that was read."""
        try:
            return await self._on_consumer(
                lambda consumer: consumer.commit(asked, wait=wait), self._limits.commit_seconds
            )
        except TimeoutError:
            raise Fault(
                FaultKind.FAILED_TO_COMMIT_OFFSETS,
                f"Failed to commit offsets: no answer from Kafka within {self._limits.commit_seconds:g} s; "
                "it may still happen",
            ) from None

    async def committed(self, partitions: list[Partition]) -> list[Commit]:
        return await self._on_consumer(lambda consumer: consumer.committed(partitions), OFFSETS_SECONDS + GRACE_SECONDS)

    def interrupt(self) -> None:
        """A read that waits answers now."""
        if self._consumer is not None:
            self._consumer.interrupt()

    async def close(self, timeout: float) -> None:
        """Leaves the group. After `timeout` seconds goes on without waiting: the thread finishes by itself."""
        self.interrupt()
        try:
            await self._call(self._close, timeout)
        except (TimeoutError, TooManyCallsError):
            log.warning(
                "consumer instance closes slowly", group=self.id.group, instance=self.id.instance, seconds=timeout
            )
        finally:
            self._thread.end()

    def touch(self) -> None:
        """The backend still uses it."""
        self._last_used = time.monotonic()

    def is_idle(self, now: float) -> bool:
        return not self._open_calls and now - self._last_used > self._limits.idle_seconds

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.warning("consumer instance did not close cleanly", instance=self.id.instance, reason=str(error))

    def _keep_alive(self) -> None:
        if self._consumer is not None:
            self._consumer.keep_alive()

    async def _on_consumer(self, function: Callable[[GroupConsumer], T], timeout: float) -> T:
        def run() -> T:
            if self._consumer is None:  # closed while this call waited
                raise not_found(self.id)
            return function(self._consumer)

        try:
            return await self._call(run, timeout)
        except TooManyCallsError:
            raise Fault(
                FaultKind.CONSUMER_INSTANCE_BUSY,
                f"Too many calls wait for instance {self.id.instance} of group {self.id.group}; "
                "wait for an answer before the next call, or use more instances",
            ) from None

    async def _call(self, function: Callable[[], T], timeout: float) -> T:
        self._open_calls += 1
        try:
            return await self._thread.call(function, timeout)
        finally:
            self._open_calls -= 1
            self.touch()


def not_found(id_: InstanceId) -> Fault:
    """The contract's own sentence."""
    return Fault(
        FaultKind.CONSUMER_INSTANCE_NOT_FOUND,
        f"Consumer instance not found for group {id_.group} and instance {id_.instance}",
    )
