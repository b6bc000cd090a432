"""Records of jobs on their way to the backend: shown in the reactive consumer's formats, delivered by its engine."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from services.sidecar.consuming.records import Partition
from services.sidecar.delivering.reading import RecordShower
from services.sidecar.delivering.records import Batch, Deliverable, RawRecord, Settlement, Verdict
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.schemas.schema import RegistryUnavailableError


class Delivers(Protocol):
    """Has a batch processed, whatever that takes."""

    async def deliver(self, batch: Batch) -> Settlement: ...


class ShownDelivery:
    """Delivers records as they are in Kafka; see `destinations.Deliver`."""

    def __init__(self, shower: RecordShower, deliverer: Delivers) -> None:
        self._shower = shower
        self._deliverer = deliverer

    async def __call__(self, records: Sequence[RawRecord], path: str) -> Settlement:
        """One verdict for each; one that does not fit its format never reaches the backend.

        Fault while the schema registry cannot be asked.
        """
        partition = Partition(records[0].topic, records[0].partition)
        try:
            shown = await asyncio.to_thread(self._shower.shown, records)
        except RegistryUnavailableError as error:
            raise Fault(FaultKind.SCHEMA_REGISTRY_UNAVAILABLE, f"{partition} cannot be read now: {error}") from None
        unreadable = [one for one in shown if isinstance(one, Verdict)]
        readable = tuple(one for one in shown if isinstance(one, Deliverable))
        if not readable:
            return Settlement(partition, tuple(unreadable))
        settlement = await self._deliverer.deliver(Batch(partition, readable, path))
        verdicts = sorted([*unreadable, *settlement.verdicts], key=lambda one: one.record.offset)
        return Settlement(partition, tuple(verdicts), settlement.replies)
