"""The consumer instances of this sidecar: made, found, closed when idle, never more than the bound.

Survival of restarts

1. The properties that an instance keeps are on disk before its backend gets the answer (`changed`, `create`, `delete`).
   A failed write stops no call: the sidecar logs the failure, and writes again at the next change or the next tick of
   `watch`.
2. A start brings instances back without waiting for Kafka (`restore`), before anyone can ask for them. An instance that
   cannot be opened stays in the file for the next start.
3. The end of the process is not the end of an instance. Only its backend, its idleness or an operator ends it.
4. If a younger process of the same name replaces this process, this process closes its instances, writes nothing more,
   and reports that to each caller (`give_up`).
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import structlog

from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.consumer_thread import GRACE_SECONDS, not_found
from services.sidecar.consuming.instance import ConsumerInstance, InstanceLimits
from services.sidecar.consuming.instance_store import KeptInstance, Ledger, Source, encoded
from services.sidecar.consuming.instance_values import EndCause, InstanceId, InstanceOptions, InstanceStatus
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.state.state_file import StateFile, StateWriter
from services.sidecar.telemetry import metrics

WATCH_SECONDS = 1.0
"""The interval between two checks of the idleness and status of all instances."""
STATUS_SECONDS = 1.0
"""The time-out for the status of instances; slower instances are left out."""
MOST_CLOCK_SECONDS = 30.0
"""The longest interval between two saves of idle times.

The usual interval is a tenth of the time-out of idle instances.
"""

log = structlog.get_logger(__name__)


class Instances:
    """All instances. `on_change` is called if an instance is new, changed or ended; `ledger` names the instance."""

    def __init__(
        self,
        sidecar: str,
        properties: dict[str, Any],
        limits: InstanceLimits,
        file: StateFile | None = None,
        reader: RecordReader | None = None,
    ) -> None:
        """`file`: where instances outlive the process, if they do. `reader`: for formats with schemas, if there are."""
        self._sidecar = sidecar
        self._properties = properties
        self._limits = limits
        self._reader = reader or RecordReader()
        self._instances: dict[InstanceId, ConsumerInstance] = {}
        self._opening: set[InstanceId] = set()
        self._unopened: dict[InstanceId, KeptInstance] = {}
        self._writer = None if file is None else StateWriter(file, self._encoded)
        self._successor = ""
        self.ledger = Ledger()
        self.on_change: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[ConsumerInstance]:
        return iter(tuple(self._instances.values()))

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, id_: InstanceId) -> bool:
        return id_ in self._instances

    @property
    def is_superseded(self) -> bool:
        """Whether a younger process of this sidecar's name holds the instances."""
        return bool(self._successor)

    @property
    def fault(self) -> str | None:
        """Why there are no instances here, and will be none; None when there may be."""
        return self._successor or None

    def get(self, id_: InstanceId) -> ConsumerInstance:
        """The instance; Fault when there is none. Counts as use."""
        self._refuse_if_superseded()
        instance = self._instances.get(id_)
        if instance is None:
            raise not_found(id_)
        instance.touch()
        return instance

    async def create(self, group: str, name: str | None, options: InstanceOptions) -> ConsumerInstance:
        """A new instance. Fault when the name is taken, the bound reached, or the configuration refused."""
        self._refuse_if_superseded()
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
        instance = await self._open(KeptInstance(id_, options))
        await self.changed(instance)
        return instance

    async def changed(self, instance: ConsumerInstance) -> None:
        """An instance reads other things, or stands otherwise, than before. Returns when that is on disk."""
        if self._instances.get(instance.id) is instance:
            self.ledger.changed(instance.id)
            await self._told()

    async def delete(self, id_: InstanceId, cause: EndCause = EndCause.DELETED) -> None:
        """Closes an instance. Fault when there is none."""
        await self._end(self.get(id_), cause)

    async def restore(self, found: Iterable[tuple[KeptInstance, Source]]) -> None:
        """Brings missing instances back, without waiting for Kafka or control."""
        missing = [(kept, source) for kept, source in found if kept.id not in self._instances]
        await asyncio.gather(*(self._bring_back(kept, source) for kept, source in missing))
        await self._told()

    async def watch(self) -> None:
        """Closes idle instances, asks the others for their status, and saves their idle times; without end."""
        clock_seconds = min(self._limits.idle_seconds / 10, MOST_CLOCK_SECONDS)
        written_at = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            await asyncio.gather(*(self._end(one, EndCause.IDLE) for one in self if one.is_idle))
            await self.statuses()
            if self._writer is not None and self._instances and now - written_at >= clock_seconds:
                written_at = now
                self._writer.soon()

    async def statuses(self) -> dict[InstanceId, InstanceStatus]:
        """The statuses of the instances that answer in time."""
        asked = {asyncio.ensure_future(each.status()): each.id for each in self}
        if not asked:
            return {}
        done, late = await asyncio.wait(asked, timeout=STATUS_SECONDS)
        for each in late:
            each.cancel()
        return {asked[each]: each.result() for each in done if each.exception() is None}

    def interrupt(self) -> None:
        """Reads that wait answer now: the sidecar stops."""
        for instance in self:
            instance.interrupt()

    async def give_up(self, reason: str) -> None:
        """A younger process holds the instances from now on."""
        if self.is_superseded:
            return
        self._successor = f"{reason}; it holds the instances, and this process serves none any more"
        log.error("this process is superseded", reason=reason, instances=len(self))
        metrics.superseded.set(1)
        await self.close()

    async def close(self) -> None:
        """Closes all instances for this process; no instance ends by that."""
        if self._writer is not None:
            if not self.is_superseded:
                await self._writer.written()
            self._writer.close()
        instances, self._instances = tuple(self), {}
        metrics.instances.set(0)
        because = self._superseded() if self.is_superseded else None
        await asyncio.gather(*(instance.close(GRACE_SECONDS, because) for instance in instances))

    def told(self, id_: InstanceId) -> None:
        """Notes that control knows the present state of the instance."""
        if id_ not in self.ledger.told:
            self.ledger.told.add(id_)
            if self._writer is not None:
                self._writer.soon()

    async def _open(self, kept: KeptInstance) -> ConsumerInstance:
        """An instance with its client. Fault when its configuration is refused, and then it is not there."""
        instance = self._instances[kept.id] = ConsumerInstance(kept.id, kept.options, self._limits, self._reader)
        self._opening.add(kept.id)
        metrics.instances.set(len(self._instances))
        try:
            await instance.open(instance_properties(self._properties, kept.id, kept.options))
            await instance.restore(kept.interest, kept.standing, kept.idle_seconds)
        except BaseException:
            self._instances.pop(kept.id, None)
            metrics.instances.set(len(self._instances))
            metrics.instance_ends.labels(EndCause.FAILED.name.lower()).inc()
            await instance.close(GRACE_SECONDS)
            raise
        finally:
            self._opening.discard(kept.id)
        self._unopened.pop(kept.id, None)
        return instance

    async def _bring_back(self, kept: KeptInstance, source: Source) -> None:
        try:
            await self._open(kept)
        except (Fault, TimeoutError) as problem:
            self._unopened[kept.id] = kept
            log.error(
                "consumer instance cannot be opened again; the next start tries it again",
                group=kept.id.group,
                instance=kept.id.instance,
                reason=str(problem),
            )
            return
        metrics.restored_instances.labels(source.value).inc()
        log.info("consumer instance is there again", group=kept.id.group, instance=kept.id.instance, by=source.value)

    async def _end(self, instance: ConsumerInstance, cause: EndCause) -> None:
        if self._instances.pop(instance.id, None) is None:
            return
        metrics.instances.set(len(self._instances))
        metrics.instance_ends.labels(cause.name.lower()).inc()
        log.info("consumer instance ends", group=instance.id.group, instance=instance.id.instance, cause=cause.value)
        self.ledger.end(instance.id, cause)
        await asyncio.gather(self._told(), instance.close(GRACE_SECONDS))

    async def _told(self) -> None:
        """Saves the present state, or logs the reason of a failure; control gets the state when it is available."""
        self.on_change()
        if self._writer is not None:
            await self._writer.written()

    def _encoded(self) -> bytes:
        kept = [
            KeptInstance(each.id, each.options, each.interest, each.standing, each.idle_seconds)
            for each in self
            if each.id not in self._opening
        ]
        return encoded([*kept, *self._unopened.values()], self.ledger)

    def _refuse_if_superseded(self) -> None:
        if self.is_superseded:
            raise self._superseded()

    def _superseded(self) -> Fault:
        return Fault(FaultKind.SIDECAR_SUPERSEDED, f"{self._successor}; call the younger one")
