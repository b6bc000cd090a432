"""The sink of batches: the path of each record at the backend, the number of calls at a time, and the calls."""

from mesh.record_expressions import InvalidExpressionError
from services.sidecar.delivering.batch import Batch, Deliverable, Settlement
from services.sidecar.delivering.deliverer import Deliverer, Target
from services.sidecar.delivering.routing import ContentRouting
from services.sidecar.faults import invalid
from services.sidecar.reactive.options import Delivery


class BatchSink:
    """The backend beside this sidecar; its configuration holds for all that deliver to that backend."""

    def __init__(self, target: Target, deliverer: Deliverer) -> None:
        """`target`: the target that the deliverer calls."""
        self._target = target
        self._deliverer = deliverer

    def configure(self, delivery: Delivery) -> None:
        """Changes later calls. Fault when the delivery is not understood; then nothing has changed."""
        try:
            self._target.routing = ContentRouting(delivery.filter, delivery.routes)
        except InvalidExpressionError as error:
            raise invalid("/delivery", str(error)) from None
        backend = self._target.backend
        backend.url = delivery.backend_url.rstrip("/")
        backend.path = delivery.backend_path
        backend.slots.resize(delivery.max_concurrency)

    def path(self, record: Deliverable) -> str | None:
        """The path of a record, empty for the usual path; None if the backend must not get the record."""
        return self._target.path(record)

    async def deliver(self, batch: Batch) -> Settlement:
        """Returns when each record has its last verdict."""
        return await self._deliverer.deliver(batch)

    async def fault(self) -> str | None:
        """The reason why the backend takes no records now; None while it takes them."""
        return await self._target.fault()

    async def stop(self, timeout: float) -> None:
        """Begins no more calls; calls on their way have `timeout` seconds to end."""
        await self._deliverer.stop(timeout)
