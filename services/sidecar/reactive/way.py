"""The way of batches to the backend: which path a record takes, how many calls there are at a time, who makes them."""

from typing import Protocol

from mesh.record_expressions import InvalidExpressionError
from services.sidecar.delivering.backend import Backend, BackendAccess
from services.sidecar.delivering.deliverer import Deliverer, Target
from services.sidecar.delivering.records import Batch, Deliverable, Settlement
from services.sidecar.delivering.routing import ContentRouting
from services.sidecar.faults import invalid
from services.sidecar.reactive.options import Delivery
from services.sidecar.reactive.slots import Slots


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


class BoundedBackend(Backend):
    """A backend that has so many calls at a time, at most. A batch that waits to be repeated holds up no other."""

    def __init__(self, access: BackendAccess, slots: Slots) -> None:
        super().__init__(access)
        self.slots = slots

    async def call(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        async with self.slots:
            return await super().call(path, body, headers)


class BackendWay:
    """To the backend beside this sidecar."""

    def __init__(self, target: Target, backend: BoundedBackend, deliverer: Deliverer) -> None:
        """`target` is who the deliverer calls, by `backend`."""
        self._target = target
        self._backend = backend
        self._deliverer = deliverer
        self._routing = ContentRouting()

    def configure(self, delivery: Delivery) -> None:
        try:
            self._routing = ContentRouting(delivery.filter, delivery.routes)
        except InvalidExpressionError as error:
            raise invalid("/delivery", str(error)) from None
        self._backend.url = delivery.backend_url.rstrip("/")
        self._backend.path = delivery.backend_path
        self._backend.slots.resize(delivery.max_concurrency)

    def path(self, record: Deliverable) -> str | None:
        return self._routing(record)

    async def deliver(self, batch: Batch) -> Settlement:
        return await self._deliverer.deliver(batch)

    async def fault(self) -> str | None:
        return await self._target.fault()

    async def stop(self, timeout: float) -> None:
        await self._deliverer.stop(timeout)
