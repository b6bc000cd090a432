"""Follows the orders that operators give through control, has them carried out, and reports each outcome once.

1. Control sends each open order again whenever a sidecar begins to follow, so nothing is lost if control or the sidecar
   was away.
2. An outcome is on disk before control hears it. So a restarted sidecar does not carry out an order twice if control
   has not heard its outcome. If the process is killed before the outcome is on disk, the order is carried out twice;
   any order leads to the same state again.
3. If control does not take an outcome, the sidecar reports it again until control takes it or has given the order up.
"""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import structlog

from mesh.pauses import pause
from mesh.rpc import events
from mesh.rpc.cancellation import heed_cancellation
from services.sidecar.control.connection import Connection
from services.sidecar.control.orders import Orders
from services.sidecar.control.outcomes import Outcomes
from services.sidecar.telemetry import metrics

MAX_OPEN = 200
"""Orders at a time; control gives a sidecar half as many."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
REPORT_ATTEMPTS = 30
"""After so many attempts, the sidecar reports the outcome when control sends the order again."""

log = structlog.get_logger(__name__)


class OrderFollower:
    """The background task that has orders carried out."""

    def __init__(
        self, connection: Connection, orders: Orders, outcomes: Outcomes, superseded: Callable[[str], Awaitable[None]]
    ) -> None:
        self._connection = connection
        self._orders = orders
        self._outcomes = outcomes
        self._superseded = superseded
        self._open: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """For ever."""
        failures = 0
        while True:
            try:
                async for order in self._connection.orders():
                    failures = 0
                    self._take(order)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.ABORTED:
                    await self._superseded(error.details() or "a younger process of this sidecar follows its orders")
                    await asyncio.Event().wait()
                log.debug("orders cannot be followed", reason=error.details(), code=error.code().name)
            heed_cancellation()
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    async def close(self) -> None:
        """Unfinished orders stay open: control sends them to the next process that follows."""
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, order: events.SidecarOrder) -> None:
        if order.name in self._open:
            return
        if len(self._open) >= MAX_OPEN:
            log.warning("too many orders are open; this one waits until control gives it again", order=order.name)
            return
        task = asyncio.create_task(self._see_to(order), name=f"order {order.name}")
        self._open[order.name] = task
        metrics.open_orders.set(len(self._open))
        task.add_done_callback(lambda _: self._done(order.name))

    def _done(self, name: str) -> None:
        self._open.pop(name, None)
        metrics.open_orders.set(len(self._open))

    async def _see_to(self, order: events.SidecarOrder) -> None:
        outcome = self._outcomes.get(order.name)
        if outcome is None:
            outcome = await self._orders.carry_out(order)
            await self._outcomes.remember(order.name, outcome)
        for attempt in range(1, REPORT_ATTEMPTS + 1):
            try:
                await self._connection.report(order.name, outcome)
            except grpc.aio.AioRpcError as error:
                heed_cancellation()
                log.debug("an outcome can't be sent to control", order=order.name, reason=error.details())
                await asyncio.sleep(pause(attempt, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
            else:
                return
