"""The consumer instances of this sidecar: made, found, closed when idle, never more than the bound."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from services.sidecar import metrics
from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.instance import GRACE_SECONDS, ConsumerInstance, InstanceLimits, not_found
from services.sidecar.consuming.records import EndCause, InstanceId, InstanceOptions
from services.sidecar.faults import Fault, FaultKind

REAP_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Instances:
    """All instances. `on_change` is called when one was made, subscribed or closed."""

    def __init__(self, sidecar: str, properties: dict[str, Any], limits: InstanceLimits) -> None:
        self._sidecar = sidecar
        self._properties = properties
        self._limits = limits
        self._instances: dict[InstanceId, ConsumerInstance] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.on_end: Callable[[InstanceId, EndCause], None] = lambda _id, _cause: None

    def __iter__(self) -> Iterator[ConsumerInstance]:
        return iter(tuple(self._instances.values()))

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, id_: InstanceId) -> ConsumerInstance:
        """The instance; Fault when there is none. Counts as use."""
        instance = self._instances.get(id_)
        if instance is None:
            raise not_found(id_)
        instance.touch()
        return instance

    async def create(self, group: str, name: str | None, options: InstanceOptions) -> ConsumerInstance:
        """A new instance. Fault when the name is taken, the bound reached, or the configuration refused."""
        id_ = InstanceId(group, name or f"rest-consumer-{self._sidecar}-{uuid.uuid4()}")
        if id_ in self._instances:
            raise Fault(
                FaultKind.CONSUMER_ALREADY_EXISTS,
                f"Consumer already exists with id ConsumerInstanceId{{group='{id_.group}', instance='{id_.instance}'}}",
            )
        if len(self._instances) >= self._limits.max_instances:
            raise Fault(
                FaultKind.TOO_MANY_CONSUMER_INSTANCES,
                f"This sidecar holds {len(self._instances)} instances, its bound (max_instances); "
                "delete one that is not used",
            )
        instance = self._instances[id_] = ConsumerInstance(id_, options, self._limits)
        metrics.instances.set(len(self._instances))
        try:
            await instance.open(instance_properties(self._properties, id_, options))
        except BaseException:
            await self._end(instance, EndCause.FAILED)
            raise
        self.on_change()
        return instance

    async def delete(self, id_: InstanceId) -> None:
        """Closes an instance. Fault when there is none."""
        await self._end(self.get(id_), EndCause.DELETED)

    async def reap(self) -> None:
        """Closes instances that nobody uses, for ever."""
        while True:
            await asyncio.sleep(REAP_SECONDS)
            now = time.monotonic()
            await asyncio.gather(*(self._end(one, EndCause.IDLE) for one in self if one.is_idle(now)))

    def interrupt(self) -> None:
        """Reads that wait answer now: the sidecar stops."""
        for instance in self:
            instance.interrupt()

    async def close(self) -> None:
        """Closes all."""
        await asyncio.gather(*(self._end(one, EndCause.STOPPED) for one in self))

    async def _end(self, instance: ConsumerInstance, cause: EndCause) -> None:
        if self._instances.pop(instance.id, None) is None:
            return
        metrics.instances.set(len(self._instances))
        metrics.instance_ends.labels(cause.name.lower()).inc()
        log.info("consumer instance ends", group=instance.id.group, instance=instance.id.instance, cause=cause.value)
        self.on_end(instance.id, cause)
        await instance.close(GRACE_SECONDS)
