"""The sidecar order aggregate: an operator orders a sidecar to do something, and the sidecar reports the outcome, once.

The life of an order
1. It is open for the sidecar that holds its target. If another sidecar reports that it holds the instance, control
   hands the open orders over to that sidecar.
2. Until `expire_time` a sidecar may begin with the order. A connected sidecar also gets the time to carry it out, and a
   drain's own time. Then control gives the order up: nobody carried it out.
3. The first outcome stands, even if a sidecar reports another.
4. While control was away, no sidecar could report. So control gives up orders from that time only when the sidecars
   have had the time to connect again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from mesh import durations
from mesh.instance_names import INSTANCES
from mesh.rpc import events, instances
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.open_and_ended import OpenAndEnded
from services.control.domain.sidecars.commands import PIPELINES, SIDECARS, checked, is_time, named
from services.control.domain.sidecars.instances import NUL, Instances

ORDERS = "orders"
"""The collection, in resource names. The events of an order are in the stream of its target."""
KEPT = 1000
"""Ended orders in memory; older orders are in the log."""
MAX_OPEN = 1000
MAX_OPEN_OF_SIDECAR = 100
USUAL_EXPIRY_MS = 30_000
LONGEST_EXPIRY_MS = 86_400_000
LONGEST_WAIT_MS = 60_000
LONGEST_DESCRIPTION = 1000
LONGEST_DETAILS = 32 * 1024
"""Characters; enough for the levels of some hundred loggers."""
TIME_TO_CARRY_OUT = timedelta(seconds=35)
"""Beyond the order's own time, for a connected sidecar: it needs half a minute at most, and then has to report."""
TIME_OF_A_LOOK = timedelta(minutes=15)
"""The same for a job of a pipeline, which first ends its current batches."""
TIME_TO_BE_HEARD = timedelta(seconds=5)
"""The same for a silent sidecar: it may be about to connect again and report the outcome."""
TIME_TO_COME_BACK = timedelta(seconds=30)
"""The longest pause of sidecars before they try control again."""
MOST_NAMED = 20
"""The most names that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Orders(OpenAndEnded[events.SidecarOrder]):
    """The orders that control knows, by orders/{order}, as they were given; the last `KEPT` ones with an outcome."""

    kind = "order"

    def of_sidecar(self, sidecar: str) -> list[events.SidecarOrder]:
        """The orders that a sidecar has to carry out, in the order in which they were given."""
        return [order for order in self.open.values() if order.sidecar == sidecar]

    def newest_for(self, target: str, *, open_only: bool = False) -> list[events.SidecarOrder]:
        """The orders for one target, or all if none is named; the newest first."""
        return [each for each in self.newest(open_only=open_only) if target in ("", each.target)]


def fold_orders(orders: Orders, event: events.Event) -> Orders:
    """The orders after an event: the very same value if the event does not change them."""
    match event.WhichOneof("payload"):
        case "sidecar_ordered":
            order = event.sidecar_ordered.order
            return replace(orders, open={**orders.open, order.name: order})
        case "sidecar_order_ended":
            return _with_outcome(orders, event.sidecar_order_ended)
        case "sidecar_order_handed_over":
            handed = event.sidecar_order_handed_over
            moving = [order for order in orders.open.values() if order.name == handed.name]
            return _handed_over(orders, moving, handed.sidecar)
        case "consumer_instance_registered":  # of earlier releases: all open orders went with the instance
            instance = event.consumer_instance_registered.instance
            moving = [order for order in orders.open.values() if order.target == instance.name]
            return _handed_over(orders, moving, instance.sidecar)
        case _:
            return orders


def place(
    orders: Orders,
    known: Instances,
    sidecars: Collection[str],
    identifier: str,
    request: instances.PlaceOrderRequest,
    now: datetime,
    replay: str = "",
) -> events.SidecarOrdered:
    """The event for an order that can be given.

    `sidecars`: the sidecars and pipelines that control has heard of; `replay`: the replay that the order is part of.
    """
    sidecar = _holder(request.target, known, sidecars)
    command = checked(request.command, request.target)
    _check_kind(command, known.get(request.target))
    expiry_ms = durations.whole_ms(request.expire_after)
    _check_within("wait", durations.whole_ms(request.wait), LONGEST_WAIT_MS, "0 waits for nothing")
    _check_within("expire_after", expiry_ms, LONGEST_EXPIRY_MS, f"0 means {USUAL_EXPIRY_MS} ms")
    _check_room(orders, sidecar)
    order = events.SidecarOrder(
        name=f"{ORDERS}/{identifier}", target=request.target, sidecar=sidecar, command=command, replay=replay
    )
    order.create_time.FromDatetime(now)
    order.expire_time.FromDatetime(now + timedelta(milliseconds=expiry_ms or USUAL_EXPIRY_MS))
    return events.SidecarOrdered(order=order)


def reported(
    orders: Orders, name: str, sidecar: str, outcome: events.OrderOutcome, now: datetime
) -> events.SidecarOrderEnded | None:
    """The event of a sidecar's report on an order; None when the order has an outcome already."""
    order = orders.get(name)
    if order.sidecar != sidecar:
        raise NotAllowed(
            "ORDER_OF_ANOTHER", name, f"order {name!r} is for {named(order.sidecar)}; {sidecar!r} has no say in it"
        )
    if outcome.result not in (events.ORDER_RESULT_DONE, events.ORDER_RESULT_FAILED):
        raise InvalidField("outcome.result", "is what became of it: ORDER_RESULT_DONE or ORDER_RESULT_FAILED")
    if order.HasField("outcome"):
        return None
    return events.SidecarOrderEnded(name=name, sidecar=sidecar, outcome=_kept(outcome, now))


def to_hand_over(orders: Orders, known: Instances) -> list[events.SidecarOrderHandedOver]:
    """Open orders for instances that are now on another sidecar than when the order was given."""
    return [
        events.SidecarOrderHandedOver(name=order.name, sidecar=known[order.target].sidecar)
        for order in orders.open.values()
        if order.target in known and known[order.target].sidecar != order.sidecar
    ]


def can_begin(order: events.SidecarOrder, now: datetime) -> bool:
    return now < order.expire_time.ToDatetime(UTC)


def overdue(
    orders: Orders, now: datetime, leading_since: datetime, heard: Callable[[str], bool]
) -> list[events.SidecarOrder]:
    """Open orders that nobody will carry out any more. `heard`: whether a sidecar is connected."""
    return [
        order
        for order in orders.open.values()
        if not can_begin(order, now) and now >= _given_up_at(order, leading_since, heard=heard(order.sidecar))
    ]


def given_up(order: events.SidecarOrder, now: datetime, *, heard: bool) -> events.SidecarOrderEnded:
    """The event of an order that control gives up. `heard`: whether its sidecar is connected."""
    by = f"by {order.expire_time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S} UTC"
    silence = f"is there, and did not say {by} what it did" if heard else f"was not there {by}"
    outcome = events.OrderOutcome(
        result=events.ORDER_RESULT_EXPIRED, description=f"nobody carried it out: {named(order.sidecar)} {silence}"
    )
    outcome.time.FromDatetime(now)
    return events.SidecarOrderEnded(name=order.name, outcome=outcome)


def _with_outcome(orders: Orders, event: events.SidecarOrderEnded) -> Orders:
    known = orders.open.get(event.name)
    if known is None:
        return orders
    order = events.SidecarOrder()
    order.CopyFrom(known)
    order.outcome.CopyFrom(event.outcome)
    ended = {**orders.ended, order.name: order}
    while len(ended) > KEPT:
        del ended[next(iter(ended))]
    return Orders({name: each for name, each in orders.open.items() if name != order.name}, ended)


def _handed_over(orders: Orders, moving: Iterable[events.SidecarOrder], sidecar: str) -> Orders:
    moved = {}
    for order in moving:
        if order.sidecar != sidecar:
            moved[order.name] = events.SidecarOrder()
            moved[order.name].CopyFrom(order)
            moved[order.name].sidecar = sidecar
    return replace(orders, open={**orders.open, **moved}) if moved else orders


def _holder(target: str, known: Instances, sidecars: Collection[str]) -> str:
    """The sidecar or the pipeline that has to carry out an order for the target."""
    if target.startswith(INSTANCES):
        if target not in known:
            raise Unknown(
                target, f"no sidecar holds an instance {target!r}; `meshctl instances list` shows those there are"
            )
        return known[target].sidecar
    if target.startswith(PIPELINES) and target != PIPELINES:
        if target not in sidecars:
            heard = sorted(each.removeprefix(PIPELINES) for each in sidecars if each.startswith(PIPELINES))
            known_pipelines = ", ".join(heard[:MOST_NAMED]) or "none"
            text = f"no pipeline {target.removeprefix(PIPELINES)!r} has been heard of (known: {known_pipelines})"
            raise Unknown(target, text)
        return target
    if not target.startswith(SIDECARS) or target == SIDECARS:
        text = f"{target!r} is none of instances/GROUP.INSTANCE, members/SIDECAR and pipelines/PIPELINE"
        raise InvalidField("target", text)
    sidecar = target.removeprefix(SIDECARS)
    if sidecar not in sidecars:
        heard = [each for each in sorted(sidecars) if not each.startswith(PIPELINES)]
        known_sidecars = ", ".join(heard[:MOST_NAMED]) or "none"
        raise Unknown(target, f"no sidecar {sidecar!r} has been heard of (known: {known_sidecars})")
    return sidecar


def _check_kind(command: events.SidecarCommand, instance: events.ConsumerInstance | None) -> None:
    """Only reactive consumers take delivery settings: they alone deliver records by themselves."""
    if command.HasField("configure") and instance is not None and instance.kind != events.INSTANCE_KIND_REACTIVE:
        text = f"{instance.name!r} is no reactive consumer: its backend decides what it reads, and when"
        raise NotAllowed("NOT_REACTIVE", instance.name, text)


def _check_within(field: str, said: int, most: int, zero: str) -> None:
    if not 0 <= said <= most:
        raise InvalidField(field, f"{said} ms is not from 0 to {most} ms; {zero}")


def _check_room(orders: Orders, sidecar: str) -> None:
    waiting = len(orders.of_sidecar(sidecar))
    if waiting >= MAX_OPEN_OF_SIDECAR:
        text = f"{waiting} orders are open for {named(sidecar)}, and no more are possible"
        whose = sidecar if sidecar.startswith(PIPELINES) else f"{SIDECARS}{sidecar}"
        raise NotAllowed("TOO_MANY_ORDERS", whose, f"{text}; wait until they are done or expire")
    if len(orders.open) >= MAX_OPEN:
        text = f"{len(orders.open)} orders are open, and no more are possible; wait until some are done or expire"
        raise NotAllowed("TOO_MANY_ORDERS", ORDERS, text)


def _given_up_at(order: events.SidecarOrder, leading_since: datetime, *, heard: bool) -> datetime:
    waits = timedelta(milliseconds=durations.whole_ms(order.command.drain.timeout))
    if order.command.HasField("accept_loss"):
        waits = TIME_OF_A_LOOK
    usual = order.expire_time.ToDatetime(UTC) + (waits + TIME_TO_CARRY_OUT if heard else TIME_TO_BE_HEARD)
    if order.create_time.ToDatetime(UTC) >= leading_since:
        return usual
    return max(usual, leading_since + TIME_TO_COME_BACK)


def _kept(outcome: events.OrderOutcome, now: datetime) -> events.OrderOutcome:
    """The part of an outcome that goes into the log. Control never refuses an outcome for its size: it has happened."""
    kept = events.OrderOutcome(
        result=outcome.result,
        description=outcome.description.replace(NUL, "")[:LONGEST_DESCRIPTION],
        details_json=outcome.details_json,
    )
    if not kept.description and kept.result == events.ORDER_RESULT_FAILED:
        kept.description = "it is not said why"
    if problem := _problem_of_details(kept.details_json):
        kept.details_json = ""
        kept.description = f"{kept.description} (its details are left out: {problem})".strip()
    if outcome.time.seconds and is_time(outcome.time):
        kept.time.CopyFrom(outcome.time)
    else:
        kept.time.FromDatetime(now)
    return kept


def _problem_of_details(details: str) -> str:
    if len(details) > LONGEST_DETAILS:
        return f"{len(details)} characters are more than {LONGEST_DETAILS}"
    if NUL in details:
        return "a zero byte is no JSON"
    try:
        json.loads(details or "null")
    except (ValueError, RecursionError):
        return "they are no JSON"
    return ""
