"""The audit trail takes audit records from all parts of the sidecar, and has each target write them.

`record` appends to a queue per target and returns: the call never waits, from any thread. A policy decides if a target
does not keep up: records are dropped and counted, or the work waits (`room`) before it takes more.
"""

import asyncio
from collections.abc import Collection, Sequence

from services.sidecar.auditing.events import AuditRecord, AuditType
from services.sidecar.auditing.target_queue import TargetQueue


class AuditTrail:
    """The audit trail of one sidecar. Without targets it is off, and costs nothing."""

    def __init__(self, queues: Sequence[TargetQueue] = (), types: Collection[AuditType] = tuple(AuditType)) -> None:
        """`types`: whose records are written."""
        self._queues = tuple(queues)
        self._types = frozenset(types) if queues else frozenset()

    def wants(self, type_: AuditType) -> bool:
        """Whether it is worth making records of this type."""
        return type_ in self._types

    def start(self) -> None:
        for queue in self._queues:
            queue.start()

    def record(self, records: Sequence[AuditRecord]) -> bool:
        """Takes records of one type, from any thread, and returns at once.

        The result: whether all records will be written, as far as known; others are counted as lost.
        """
        if not records or records[0].type not in self._types:
            return True
        taken = [queue.add(records) for queue in self._queues]
        return all(taken)

    @property
    def is_full(self) -> bool:
        """Whether work that will be audited has to wait (never if audit drops records); for threads."""
        return any(queue.is_full for queue in self._queues)

    async def room(self, timeout: float) -> bool:
        """Waits until there is room, `timeout` seconds at most; whether there is."""
        if not self.is_full:
            return True
        try:
            async with asyncio.timeout(timeout):
                for queue in self._queues:
                    await queue.room()
        except TimeoutError:
            return False
        return True

    async def fault(self) -> str | None:
        """Why the work is held up; None when it is not."""
        return next(filter(None, (queue.fault for queue in self._queues)), None)

    async def stop(self, timeout: float) -> None:
        """Writes the queued records within `timeout` seconds; the rest is lost, and counted."""
        await asyncio.gather(*(asyncio.to_thread(queue.stop, timeout) for queue in self._queues))


OFF = AuditTrail()
"""Audits nothing."""
