"""A consumer and the thread that it belongs to: every call on it is bounded, and counts as use or not."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import structlog
from confluent_kafka import KafkaException

from services.sidecar.consuming.group_consumer import GroupConsumer
from services.sidecar.consuming.instance_values import InstanceId
from services.sidecar.consuming.serial_thread import MAX_WAITING_CALLS, SerialThread, TooManyCallsError
from services.sidecar.faults import Fault, FaultKind

T = TypeVar("T")
GRACE_SECONDS = 5.0
"""The time that a call may wait beyond its own bound: for the call before it, or for a client that is being closed."""
IDLE_POLL_SECONDS = 0.2
"""The interval at which a consumer without reads serves its group."""

log = structlog.get_logger(__name__)


class ConsumerThread:
    """The consumer is there between `open` and `close`."""

    def __init__(self, id_: InstanceId) -> None:
        self._id = id_
        self._consumer: GroupConsumer | None = None
        self._closed = not_found(id_)
        self._open_calls = 0
        self._last_used = time.monotonic()
        self._thread = SerialThread(f"instance-{id_.instance}", self._keep_alive, IDLE_POLL_SECONDS)

    async def open(self, make: Callable[[], GroupConsumer]) -> None:
        """Makes the consumer on its thread. Fault when its configuration is refused."""

        def run() -> None:
            self._consumer = make()

        with self.in_use():
            await self._thread.call(run, GRACE_SECONDS)

    async def call(
        self, function: Callable[[GroupConsumer], T], timeout: float = GRACE_SECONDS, late: Fault | None = None
    ) -> T:
        """The result of a function of the consumer.

        Fault if too many calls wait, or if this call took too long. A call that took too long may still run; `late`
        replaces the usual fault for its caller.
        """
        with self.in_use():
            try:
                return await self._thread.call(lambda: self._run(function), timeout)
            except TooManyCallsError:
                raise self._busy() from None
            except TimeoutError:
                raise late or self._late(timeout) from None

    async def look(self, function: Callable[[GroupConsumer], T]) -> T | None:
        """Like `call`, but does not count as use; None if the thread is too busy to answer."""
        try:
            return await self._thread.call(lambda: self._run(function), GRACE_SECONDS)
        except (TimeoutError, TooManyCallsError):
            return None

    def post(self, function: Callable[[GroupConsumer], object]) -> None:
        """Has it done after all that waits, and does not wait for it."""

        def run() -> None:
            if self._consumer is not None:
                function(self._consumer)

        self._thread.post(run)

    async def close(self, timeout: float, because: Fault | None) -> None:
        """Leaves the group.

        After `timeout` seconds goes on without waiting: the thread finishes by itself. Later calls get the fault
        `because`; without it, the fault for an unknown instance.
        """
        self._closed = because or self._closed
        try:
            await self._thread.call(self._close, timeout)
        except (TimeoutError, TooManyCallsError):
            log.warning(
                "consumer instance closes slowly", group=self._id.group, instance=self._id.instance, seconds=timeout
            )
        finally:
            self._thread.end()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """A call of the backend goes on."""
        self._open_calls += 1
        try:
            yield
        finally:
            self._open_calls -= 1
            self.touch()

    def refuse_if_busy(self) -> None:
        """Fault when so many calls go on that another one had better not wait."""
        if self._open_calls >= MAX_WAITING_CALLS:
            raise self._busy()

    def touch(self, idle_seconds: float = 0.0) -> None:
        """Sets the time since the last use."""
        self._last_used = time.monotonic() - idle_seconds

    @property
    def idle_seconds(self) -> float:
        """The time since the last use."""
        return 0.0 if self._open_calls else time.monotonic() - self._last_used

    def _run(self, function: Callable[[GroupConsumer], T]) -> T:
        if self._consumer is None:  # closed while this call waited
            raise Fault(self._closed.kind, self._closed.description)
        return function(self._consumer)

    def _keep_alive(self) -> None:
        if self._consumer is not None:
            self._consumer.keep_alive()

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.warning("consumer instance did not close cleanly", instance=self._id.instance, reason=str(error))

    def _late(self, seconds: float) -> Fault:
        return Fault(
            FaultKind.CONSUMER_INSTANCE_BUSY,
            f"The consumer of instance {self._id.instance} did not answer within {seconds:g} s; try again later",
        )

    def _busy(self) -> Fault:
        return Fault(
            FaultKind.CONSUMER_INSTANCE_BUSY,
            f"Too many calls wait for instance {self._id.instance} of group {self._id.group}; "
            "wait for an answer before the next call, or use more instances",
        )


def not_found(id_: InstanceId) -> Fault:
    """The contract's own sentence."""
    return Fault(
        FaultKind.CONSUMER_INSTANCE_NOT_FOUND,
        f"Consumer instance not found for group {id_.group} and instance {id_.instance}",
    )
