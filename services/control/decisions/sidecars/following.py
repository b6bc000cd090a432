"""The sidecars that follow their orders, and the calls that wait for outcomes. Both read the log of all replicas.

Theory of operation
1. A follower has no queue: it has a place in the open orders, and remembers the orders that it got. A slow follower
   costs nothing.
2. `run` reads each growth of the log once, and wakes the followers whose orders have changed.
3. A sidecar has one follower. Another follower takes its place in two cases. It may be of the same process: then the
   first connection has died, and nobody has noticed yet. Or it is of a younger process: then the older process's
   follower ends with ABORTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client import Gauge

from mesh.rpc import events
from services.control.decisions.members.members import MAX_SIDECARS
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Unavailable
from services.control.domain.sidecars.incarnations import Incarnation
from services.control.domain.sidecars.orders import Orders, can_begin
from services.control.store.journal import Journal

MAX_FOLLOWERS = MAX_SIDECARS
"""At one replica."""

followers_gauge = Gauge("kafka_mesh_control_order_followers", "Sidecars that follow their orders here.")


@dataclass(eq=False, slots=True)
class _Follower:
    """One open stream of a sidecar."""

    woken: asyncio.Event = field(default_factory=asyncio.Event)


class OrderFollowing:
    """Sends orders to sidecars, and outcomes to the calls that wait for them."""

    def __init__(
        self, journal: Journal, sidecars: Sidecars, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._journal = journal
        self._sidecars = sidecars
        self._clock = clock
        self._followers: dict[str, _Follower] = {}
        sidecars.on_other_process = self._wake

    async def run(self) -> None:
        """Runs for ever."""
        known = Orders()
        while True:
            view = self._journal.view
            if view.orders is not known:
                for sidecar in {order.sidecar for order in view.orders.open.values()}:
                    self._wake(sidecar)
                known = view.orders
            await self._journal.grown_beyond(view.position)

    async def follow(self, sidecar: str, incarnation: Incarnation) -> AsyncIterator[events.SidecarOrder]:
        """The open orders of a sidecar, then each new order.

        Ends when another follower of the sidecar takes its place; with Conflict if that is of a younger process.
        """
        self._sidecars.require_current(sidecar, incarnation)
        follower = self._take_place(sidecar)
        given: set[str] = set()
        try:
            while self._followers.get(sidecar) is follower:
                follower.woken.clear()
                self._journal.require_leading()
                self._sidecars.require_current(sidecar, incarnation)
                mine = self._journal.view.orders.of_sidecar(sidecar)
                given &= {order.name for order in mine}
                for order in mine:
                    if order.name not in given and can_begin(order, self._clock()):
                        given.add(order.name)
                        yield order
                await follower.woken.wait()
            self._sidecars.require_current(sidecar, incarnation)
        finally:
            if self._followers.get(sidecar) is follower:
                del self._followers[sidecar]
            followers_gauge.set(len(self._followers))

    def lost_the_lead(self) -> None:
        """Ends all streams, so that sidecars go to another replica."""
        for follower in self._followers.values():
            follower.woken.set()

    async def outcome(self, order: events.SidecarOrder, seconds: float) -> events.SidecarOrder:
        """The order at its end, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while order.name in self._journal.view.orders.open:
                    await self._journal.grown_beyond(self._journal.view.position)
        except TimeoutError:
            pass
        orders = self._journal.view.orders
        return orders.open.get(order.name) or orders.ended.get(order.name) or order

    def _take_place(self, sidecar: str) -> _Follower:
        before = self._followers.get(sidecar)
        if before is None and len(self._followers) >= MAX_FOLLOWERS:
            raise Unavailable("TOO_MANY_FOLLOWERS", f"{MAX_FOLLOWERS} sidecars follow their orders here: retry later")
        follower = self._followers[sidecar] = _Follower()
        followers_gauge.set(len(self._followers))
        if before is not None:
            before.woken.set()
        return follower

    def _wake(self, sidecar: str) -> None:
        follower = self._followers.get(sidecar)
        if follower is not None:
            follower.woken.set()
