"""Reads the logs of transactions, at the start and now and then; see `requests.transactions.sweep`."""

import asyncio
from typing import Final

from services.gateway import metrics
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.mesh import Mesh
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Answer, NoAnswer, Plan
from services.gateway.requests.transactions.sweep import Undone, sweep
from services.gateway.upstream.lanes import Lanes

PAUSE_S: Final = 5.0
CLIENT_ID: Final = "kafka-mesh-gateway"


class Sweeping:
    """The sweep of one gateway process."""

    def __init__(self, mesh: Mesh, advertised: Advertised) -> None:
        self._mesh = mesh
        self._advertised = advertised
        self._session = Session(client_id=CLIENT_ID)
        self._lanes = Lanes()
        self._undone: Undone = {}

    async def run(self) -> None:
        """Sweep until cancelled."""
        try:
            while True:
                if len(self._mesh.table.clusters) > 1:
                    await self._once()
                await asyncio.sleep(PAUSE_S)
        finally:
            self._lanes.close("the gateway stops")

    async def _once(self) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        view = self._mesh.tables.view_of(self._mesh.table)

        def done(_: Exchange, __: Answer) -> None:
            if not ended.done():
                ended.set_result(None)

        def plan() -> Plan:
            self._undone = yield from sweep(self._undone, self._mesh.view(self._session, self._advertised, view))
            return NoAnswer()

        clusters, conversions = self._mesh.clusters, self._mesh.conversions
        exchange = Exchange(plan(), clusters, conversions, self._lanes, CLIENT_ID, done, view.names)
        exchange.start()
        try:
            await ended
        finally:
            exchange.abandon()
        metrics.undone_transactions.set(len(self._undone))
        sight, now = self._mesh.memory.sight, asyncio.get_running_loop().time()
        metrics.longest_held_seconds.set(sight.longest_held(now))
