"""Commands about sidecars: an order is an event, and so is its outcome.

The leading control gives up orders that nobody carries out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from mesh.rpc import events, instances
from services.control.decisions.leading import looks
from services.control.decisions.short_ids import new_id
from services.control.decisions.sidecars.following import OrderFollowing
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Conflict, Refusal
from services.control.domain.reports import Reported
from services.control.domain.sidecars import orders as sidecar_orders
from services.control.domain.sidecars.instances import removed
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.store.reports import Reports

LOOK_EVERY = 1.0
"""Seconds between two checks for orders that nobody carries out."""

Answer = Callable[[events.SidecarOrder], StoredAnswer | None]
"""The answer to store for a request_id, given the order."""

log = structlog.get_logger(__name__)
ended_total = Counter("kafka_mesh_control_sidecar_orders_total", "Orders to sidecars that came to an end.", ["outcome"])


class SidecarOrders:
    """Places orders, takes outcomes, and gives up overdue orders."""

    def __init__(self, journal: Journal, reports: Reports) -> None:
        self.sidecars = Sidecars(lambda: reports.known.instances)
        self.following = OrderFollowing(journal, self.sidecars)
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._reports = reports
        self._leading_since = self.clock()

    def began_to_lead(self) -> None:
        """Marks the beginning of the lead: from now on, sidecars can report outcomes of orders."""
        self._leading_since = self.clock()

    async def place(
        self, request: instances.PlaceOrderRequest, caller: Caller, answer: Answer, replay: str = ""
    ) -> events.SidecarOrder:
        """The open order; `replay`: the replay that the order is part of."""
        view = await self._journal.first_time(caller)
        known, orders = self._reports.known.instances, view.orders
        identifier = new_id(sidecar_orders.ORDERS, orders.open, orders.ended)
        event = sidecar_orders.place(
            orders, known, self.sidecars.listeners(), identifier, request, self.clock(), replay
        )
        target = event.order.target
        [new] = await self._journal.append(
            [Draft(target, event)],
            caller,
            view,
            rests_on=lambda _view: self._holder_of(target),
            answer=lambda new, _: answer(new[0].sidecar_ordered.order),
        )
        return new.sidecar_ordered.order

    async def report(self, name: str, sidecar: str, outcome: events.OrderOutcome, caller: Caller) -> None:
        """Takes a sidecar's report about an order; the first outcome stands."""
        view = await self._journal.first_time(caller)
        event = sidecar_orders.reported(view.orders, name, sidecar, outcome, self.clock())
        if event is not None:
            await self._end(view, view.orders.get(name), event, caller)

    async def hand_over(self) -> None:
        """Gives open orders to the sidecars that now hold their instances."""
        for event in sidecar_orders.to_hand_over(self._journal.view.orders, self._reports.known.instances):
            view = self._journal.view
            order = view.orders.open.get(event.name)
            if order is None:
                continue
            why = f"{event.sidecar} holds the consumer now, and not {order.sidecar}"
            with suppress(Conflict):  # the order has just come to its end, or the next check tries again
                await self._journal.append(
                    [Draft(order.target, event)],
                    Caller(CONTROL, why),
                    view,
                    rests_on=lambda view, name=event.name: view.orders.open.get(name),  # type: ignore[misc]
                )

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            try:
                await self.hand_over()
            except (Refusal, StoreUnavailableError, TimeoutError) as error:
                log.info("orders are handed over later", reason=str(error))
            view, now = self._journal.view, self.clock()
            for order in sidecar_orders.overdue(view.orders, now, self._leading_since, self.sidecars.is_alive):
                try:
                    await self._give_up(view, order)
                except (Refusal, StoreUnavailableError, TimeoutError) as error:
                    log.info(
                        "control ends an overdue order later, as this attempt failed",
                        order=order.name,
                        reason=str(error),
                    )

    async def _give_up(self, view: MeshView, order: events.SidecarOrder) -> None:
        """Ends an order without success. If its sidecar is gone, an order to remove an instance still takes effect."""
        heard = self.sidecars.is_alive(order.sidecar)
        event = sidecar_orders.given_up(order, self.clock(), heard=heard)
        if order.command.HasField("remove") and not heard and self._holder_of(order.target) == order.sidecar:
            event.outcome.description += "; control has forgotten the instance, until a sidecar tells of it again"
            cause = f"by order, while {order.sidecar} was not there"
            await self._reports.add(order.target, CONTROL, lambda known: _removal(known, order, cause))
        await self._end(view, order, event, Caller(CONTROL, "nobody carried it out in time"))

    async def _end(
        self, view: MeshView, order: events.SidecarOrder, event: events.SidecarOrderEnded, caller: Caller
    ) -> None:
        try:
            await self._journal.append(
                [Draft(order.target, event)], caller, view, rests_on=lambda view: view.orders.open.get(order.name)
            )
        except Conflict:
            if order.name not in self._journal.view.orders.open:
                return  # another caller has just ended the order
            raise
        label = events.OrderResult.Name(event.outcome.result).removeprefix("ORDER_RESULT_").lower()
        ended_total.labels(label).inc()
        log.info("an order came to its end", order=order.name, target=order.target, outcome=label)

    def _holder_of(self, target: str) -> str:
        instance = self._reports.known.instances.get(target)
        return "" if instance is None else instance.sidecar


def _removal(known: Reported, order: events.SidecarOrder, cause: str) -> events.ConsumerInstanceRemoved | None:
    """The removal of the order's instance; None if another sidecar holds the instance now."""
    instance = known.instances.get(order.target)
    return None if instance is None or instance.sidecar != order.sidecar else removed(order.target, cause)
