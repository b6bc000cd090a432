"""The way of a client's change to control: one call of a router, within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc.aio
import structlog

from mesh.rpc import kafka_changes, kafka_changes_grpc
from services.gateway import metrics
from services.gateway.downstream.routers import NoRouterError, Routers
from services.gateway.requests.plan import Change, NotChanged

ANSWER_S: Final = 15.0
"""The bound of one change, connections included; Kafka's tools wait for 30 s or longer."""
MOST_AT_ONCE: Final = 16

log = structlog.get_logger(__name__)

Done = Callable[[kafka_changes.KafkaChangeResponse | NotChanged], None]


class ControlChanges:
    """`submit`, and `stop` in the end."""

    def __init__(self, routers: Routers) -> None:
        self._routers = routers
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, change: Change, done: Done) -> None:
        """Calls `done` later, with control's answer or the reason why there is none."""
        task = asyncio.get_running_loop().create_task(self._carry(change, done), name="change by a client")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _carry(self, change: Change, done: Done) -> None:
        outcome: kafka_changes.KafkaChangeResponse | NotChanged
        if len(self._running) > MOST_AT_ONCE:
            outcome = NotChanged("RESOURCE_EXHAUSTED", f"{MOST_AT_ONCE} changes wait for control already; try again")
        else:
            outcome = await self._outcome(change.request)
        kind = change.request.WhichOneof("change") or ""
        code = outcome.status if isinstance(outcome, NotChanged) else "OK"
        metrics.control_changes.labels(kind, code).inc()
        if isinstance(outcome, NotChanged):
            log.info(
                "a client's change was not made", principal=change.request.principal, kind=kind, reason=outcome.reason
            )
        done(outcome)

    async def _outcome(
        self, request: kafka_changes.KafkaChangeRequest
    ) -> kafka_changes.KafkaChangeResponse | NotChanged:
        try:
            async with asyncio.timeout(ANSWER_S), self._routers.connected() as router:
                stub: Any = kafka_changes_grpc.GatewayChangeServiceStub(router.channel)
                answer: kafka_changes.KafkaChangeResponse = await stub.ChangeByGateway(request, timeout=ANSWER_S)
                return answer
        except NoRouterError as error:
            return NotChanged("UNAVAILABLE", f"no router can be reached, so control hears of no change: {error}")
        except TimeoutError:
            return NotChanged("DEADLINE_EXCEEDED", f"control has not answered within {ANSWER_S:g} s")
        except grpc.aio.AioRpcError as error:
            return NotChanged(error.code().name, error.details() or "control gives no reason")
