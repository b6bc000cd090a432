"""A large Produce on its way while it still comes from its client: its bytes go on as they arrive, none is kept.

Theory of operation
1. Its road was judged by its beginning (`StraightWay.begun_in_part`). The broker's connection is the client's own, and
   sends nothing else until the end.
2. If the client goes away in the middle, the broker never gets the rest: it drops what it has. What was sent to it
   before is answered first, then that connection ends. It is as if the request had never come.
3. If the broker's connection ends in the middle, or a hold loses its patience (`Hold`), the rest of the request is
   swallowed. Then it is answered as one that was never sent, for no broker stores a part of a request.
4. It has no deadline while it comes. Who lets nothing through for too long is told apart by `ClientConnection`.
"""

from asyncio import get_running_loop
from typing import TYPE_CHECKING, Protocol

from services.gateway.requests.plan import Unreachable

if TYPE_CHECKING:
    from services.gateway.downstream.straight import StraightProduce
    from services.gateway.upstream.connection import BrokerConnection


class Way(Protocol):
    """What becomes of the requests of one client."""

    def astray(self, produce: "StraightProduce", outcome: Unreachable) -> None: ...

    def settled(self, produce: "StraightProduce") -> None: ...

    def dropped(self, produce: "StraightProduce") -> None: ...

    def onward_came(self, size: int, missing: int) -> None: ...


class Onward:
    """See above. The passage of one request."""

    __slots__ = ("_connection", "_outcome", "_timeout_s", "_way", "produce")

    def __init__(self, way: Way, produce: "StraightProduce", connection: "BrokerConnection", timeout_s: float) -> None:
        """`timeout_s`: for the answer, from the end of the request on."""
        self._way = way
        self.produce = produce
        self._connection = connection
        self._timeout_s = timeout_s
        self._outcome: Unreachable | None = None
        """Why it goes no further."""

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
        """For too long nothing of it was read, for a broker does not take what it is sent: maybe another one, which
        misses the deadlines of its own."""
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
        """The broker won't have all of it."""
        self._outcome = outcome
        self._way.settled(self.produce)
