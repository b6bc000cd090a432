"""The counters of the traffic of all clients of a gateway."""

from collections.abc import Callable
from dataclasses import dataclass

from mesh.traffic.counting import Counts, Key
from services.gateway.requests.traffic.receipts import ClientReceipts
from services.gateway.requests.traffic.tally import Tally


@dataclass(frozen=True, slots=True)
class ClientTraffic:
    """Calls are counted by `calls`."""

    counts: Counts
    clock: Callable[[], float]
    """Seconds."""
    receipts: ClientReceipts | None = None
    """None: no topic has receipts."""

    def __post_init__(self) -> None:
        self.counts.new_tally = Tally

    def of(self, who: Key) -> Tally:
        """The tally of a combination, to add to until it has ended."""
        return self.counts.of(who)  # type: ignore[return-value]  # of the kind that is set above
