"""The way of batches to the backend: which path a record takes, how many calls there are at a time, who makes them."""

from typing import Protocol

from mesh.record_expressions import InvalidExpressionError
from services.sidecar.delivering.deliverer import Deliverer, Target
from services.sidecar.delivering.records import Batch, Deliverable, Settlement
from services.sidecar.delivering.routing import ContentRouting
from services.sidecar.faults import invalid
from services.sidecar.reactive.options import Delivery


class Way(Protocol):
    """Gets batches to the backend."""

    def configure(self, delivery: Delivery) -> None:
        """For calls from now on. Fault when it is not understood; then nothing has changed."""

    def path(self, record: Deliverable) -> str | None:
        """Where a record goes, empty for the usual path; None where it does not concern the backend."""

    async def deliver(self, batch: Batch) -> Settlement:
        """Returns when each record has its last verdict."""

    async def fault(self) -> str | None:
        """Why the backend takes nothing now; None while it does."""

    async def stop(self, timeout: float) -> None:
        """No call begins any more; those on their way have so many seconds."""


class BackendWay:
    """To the backend beside this sidecar: what is configured counts for all who deliver to it."""

    def __init__(self, target: Target, deliverer: Deliverer) -> None:
        """`target` is who the deliverer calls."""
        self._target = target
        self._deliverer = deliverer

    def configure(self, delivery: Delivery) -> None:
        try:
            self._target.routing = ContentRouting(delivery.filter, delivery.routes)
        except InvalidExpressionError as error:
            raise invalid("/delivery", str(error)) from None
        backend = self._target.backend
        backend.url = delivery.backend_url.rstrip("/")
        backend.path = delivery.backend_path
        backend.slots.resize(delivery.max_concurrency)

    def path(self, record: Deliverable) -> str | None:
        return self._target.path(record)

    async def deliver(self, batch: Batch) -> Settlement:
        return await self._deliverer.deliver(batch)

    async def fault(self) -> str | None:
        return await self._target.fault()

    async def stop(self, timeout: float) -> None:
        await self._deliverer.stop(timeout)
