"""The counters of the traffic of all clients of a gateway."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.traffic.counting import Counts
from services.gateway.requests.traffic.receipts import ClientReceipts


@dataclass(frozen=True, slots=True)
class ClientTraffic:
    """Calls are counted by `calls`."""

    counts: Counts
    clock: Callable[[], float]
    """Seconds."""
    receipts: ClientReceipts | None = None
    """None: no topic has receipts."""
