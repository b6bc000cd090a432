"""A large Produce on its way while it still comes from its client: its bytes go on as they arrive, and none is kept.

Theory of operation
1. The gateway chooses the road by the beginning of the request (`StraightWay.begun_in_part`). The broker's connection
   belongs to this client alone, and sends nothing else until the request ends.
2. If the client disconnects in the middle, the broker never gets the rest, and drops the part that it has. The broker
   answers the earlier requests first, then its connection ends. The request is stored nowhere.
3. If the broker's connection ends in the middle, or a hold loses its patience (`Hold`), the gateway reads and drops
   the rest of the request. It then answers as for a request that was never sent: no broker stores a part of a request.
4. The request has no deadline while it arrives. If nothing moves for too long, `ClientConnection` finds out whether
   the client or the broker stalls.
"""

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Protocol

from services.gateway.requests.plan import Unreachable

if TYPE_CHECKING:
    from services.gateway.downstream.straight import StraightProduce
    from services.gateway.upstream.connection import BrokerConnection


class Way(Protocol):
    """Takes the end of a request of one client."""

    def astray(self, produce: "StraightProduce", outcome: Unreachable) -> None: ...

    def settled(self, produce: "StraightProduce") -> None: ...

    def dropped(self, produce: "StraightProduce") -> None: ...

    def onward_came(self, size: int, missing: int) -> None: ...


class Onward:
    """See above. The passage of one request."""

    __slots__ = ("_connection", "_outcome", "_timeout_s", "_way", "produce")

    def __init__(self, way: Way, produce: "StraightProduce", connection: "BrokerConnection", timeout_s: float) -> None:
        """`timeout_s` is the time for the answer, from the end of the request on."""
        self._way = way
        self.produce = produce
        self._connection = connection
        self._timeout_s = timeout_s
        self._outcome: Unreachable | None = None
        """The reason why the request goes no further."""

    # --- for the client's connection -----------------------------------------------------------------------------

    def take(self, piece: memoryview, missing: int) -> None:
        self._way.onward_came(len(piece), missing)
        outcome = self._outcome
        if outcome is None:
            self._connection.pass_on_more(piece)
        if missing:
            return
        self.produce.midway = None
        if outcome is None:
            self._connection.end_passing_on(get_running_loop().time() + self._timeout_s)
        else:
            self._way.astray(self.produce, outcome)

    def cut(self, reason: str) -> None:
        self.produce.midway = None
        if self._outcome is None:
            self._connection.sever()
        self._way.dropped(self.produce)

    def stalled(self) -> None:
        """For too long nothing of the request was read, because a broker does not read its bytes. It may be another
        broker, which then misses its own deadlines."""
        if self._connection.congested:
            self._connection.give_up("takes no more of a request")

    # --- for others ----------------------------------------------------------------------------------------------

    def break_off(self) -> None:
        """The hold's patience is at its end."""
        if self.produce.midway is not self or self._outcome is not None:
            return
        self._connection.sever()
        fact = "the rest of a request did not come in time, and its topic moves"
        self.failed(Unreachable(self._connection.cluster, fact, never_sent=True))

    def failed(self, outcome: Unreachable) -> None:
        """The broker won't get all of the request."""
        self._outcome = outcome
        self._way.settled(self.produce)
