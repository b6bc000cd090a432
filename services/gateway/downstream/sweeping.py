"""The gateway's own work: it finishes transactions, aborts abandoned parts, and deletes shadow topics without a topic.

See `requests.transactions.sweep`, `requests.transactions.abandoned` and `requests.groups.shadow_sweep`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from services.gateway import metrics
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.mesh import Mesh
from services.gateway.requests.groups.shadow_sweep import Orphans, sweep_shadows
from services.gateway.requests.memory import Session
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Answer, Command, MeshView, NoAnswer, Plan
from services.gateway.requests.transactions.abandoned import Looked, abort_abandoned
from services.gateway.requests.transactions.sweep import Undone, sweep
from services.gateway.upstream.lanes import Lanes

DECISIONS_PAUSE_S: Final = 5.0
ABANDONED_PAUSE_S: Final = 10.0
SHADOWS_PAUSE_S: Final = 60.0
CLIENT_ID: Final = "kafka-mesh-gateway"

T = TypeVar("T")


class Sweeping:
    """The sweep of one gateway process."""

    def __init__(self, mesh: Mesh, advertised: Advertised) -> None:
        self._mesh = mesh
        self._works_for_all = mesh.siblings is None or mesh.siblings.is_first
        self._advertised = advertised
        self._session = Session(client_id=CLIENT_ID)
        self._lanes = Lanes()
        self._undone: Undone = {}
        self._looked: Looked = {}
        self._orphans: Orphans = {}

    async def run(self) -> None:
        """Sweep until cancelled. Each worker finishes decisions, at its start too; one worker does the rest for all."""
        try:
            async with asyncio.TaskGroup() as work:
                work.create_task(self._every(DECISIONS_PAUSE_S, self._finish_decisions, at_start=True))
                if self._works_for_all:
                    work.create_task(self._every(ABANDONED_PAUSE_S, self._abort_abandoned))
                    work.create_task(self._every(SHADOWS_PAUSE_S, self._delete_shadows))
        finally:
            self._lanes.close("the gateway stops")

    async def _every(self, pause_s: float, work: Callable[[], Awaitable[None]], *, at_start: bool = False) -> None:
        if not at_start:
            await asyncio.sleep(pause_s)
        while True:
            if len(self._mesh.table.clusters) > 1:
                await work()
            await asyncio.sleep(pause_s)

    async def _finish_decisions(self) -> None:
        self._undone = await self._next(sweep, self._undone)
        metrics.undone_transactions.set(len(self._undone))
        sight, now = self._mesh.memory.sight, asyncio.get_running_loop().time()
        metrics.longest_held_seconds.set(sight.longest_held(now))

    async def _abort_abandoned(self) -> None:
        self._looked = await self._next(abort_abandoned, self._looked)
        metrics.long_open_parts.set(len(self._looked))

    async def _delete_shadows(self) -> None:
        self._orphans = await self._next(sweep_shadows, self._orphans)

    async def _next(self, work: Callable[[T, MeshView], Generator[Command, Any, T]], before: T) -> T:
        """The result of the work, which goes on from its last result; the last result if the work fails."""
        after = before

        def plan(view: MeshView) -> Plan:
            nonlocal after
            after = yield from work(before, view)
            return NoAnswer()

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
        return after
