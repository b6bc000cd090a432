"""The gateway's own work: it finishes transactions, and deletes shadow topics without a topic.

See `requests.transactions.sweep` and `requests.groups.shadow_sweep`.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from services.gateway import metrics
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.mesh import Mesh
from services.gateway.requests.groups.shadow_sweep import Orphans, sweep_shadows
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Answer, MeshView, NoAnswer, Plan
from services.gateway.requests.transactions.sweep import Undone, sweep
from services.gateway.upstream.lanes import Lanes

PAUSE_S: Final = 5.0
SHADOWS_PAUSE_S: Final = 60.0
CLIENT_ID: Final = "kafka-mesh-gateway"


class Sweeping:
    """The sweep of one gateway process."""

    def __init__(self, mesh: Mesh, advertised: Advertised) -> None:
        self._mesh = mesh
        self._advertised = advertised
        self._session = Session(client_id=CLIENT_ID)
        self._lanes = Lanes()
        self._undone: Undone = {}
        self._orphans: Orphans = {}
        self._shadows_at = math.inf

    async def run(self) -> None:
        """Sweep until cancelled. The first look for shadows waits as later ones do: none is due at the start."""
        self._shadows_at = asyncio.get_running_loop().time()
        try:
            while True:
                if len(self._mesh.table.clusters) > 1:
                    await self._transactions()
                    await self._shadows()
                await asyncio.sleep(PAUSE_S)
        finally:
            self._lanes.close("the gateway stops")

    async def _transactions(self) -> None:
        def plan(view: MeshView) -> Plan:
            self._undone = yield from sweep(self._undone, view)
            return NoAnswer()

        await self._carry_out(plan)
        metrics.undone_transactions.set(len(self._undone))
        sight, now = self._mesh.memory.sight, asyncio.get_running_loop().time()
        metrics.longest_held_seconds.set(sight.longest_held(now))

    async def _shadows(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._shadows_at < SHADOWS_PAUSE_S:
            return
        self._shadows_at = now

        def plan(view: MeshView) -> Plan:
            self._orphans = yield from sweep_shadows(self._orphans, view)
            return NoAnswer()

        await self._carry_out(plan)

    async def _carry_out(self, plan: Callable[[MeshView], Plan]) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        view = self._mesh.tables.view_of(self._mesh.table)

        def done(_: Exchange, __: Answer) -> None:
            if not ended.done():
                ended.set_result(None)

        clusters, conversions = self._mesh.clusters, self._mesh.conversions
        begun = plan(self._mesh.view(self._session, self._advertised, view))
        exchange = Exchange(begun, clusters, conversions, self._lanes, CLIENT_ID, done, view.names)
        exchange.start()
        try:
            await ended
        finally:
            exchange.abandon()
