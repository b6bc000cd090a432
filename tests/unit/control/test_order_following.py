"""Who follows orders is given what is open, then what comes, once; in the order in which it was given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.rpc import events
from services.control.decisions.sidecars import following as order_following
from services.control.decisions.sidecars.following import OrderFollowing
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.domain.errors import Conflict, Unavailable
from services.control.domain.sidecars.incarnations import incarnation_of
from services.control.domain.sidecars.orders import Orders, fold_orders

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ELDER, YOUNGER = incarnation_of("1795305600000-zzzz"), incarnation_of("1795305600001-aaaa")


class GrowingLog:
    """As much of a journal as followers see: orders 1, 2, 3, ..., and the end of some."""

    def __init__(self) -> None:
        self.view: Any = SimpleNamespace(position=0, orders=Orders())
        self._grown = asyncio.Condition()
        self.leads = True

    def require_leading(self) -> None:
        if not self.leads:
            raise Unavailable("NOT_WRITABLE", "another replica leads")

    async def order(self, sidecar: str = "s1", expires: datetime = NOON + timedelta(minutes=1)) -> str:
        order = events.SidecarOrder(name=f"orders/{self.view.position + 1}", sidecar=sidecar)
        order.expire_time.FromDatetime(expires)
        await self._grow(events.Event(sidecar_ordered=events.SidecarOrdered(order=order)))
        return order.name

    async def end(self, name: str) -> None:
        await self._grow(events.Event(sidecar_order_ended=events.SidecarOrderEnded(name=name)))

    async def grown_beyond(self, position: int) -> None:
        async with self._grown:
            await self._grown.wait_for(lambda: self.view.position > position)

    async def _grow(self, event: events.Event) -> None:
        async with self._grown:
            orders = fold_orders(self.view.orders, event)
            self.view = SimpleNamespace(position=self.view.position + 1, orders=orders)
            self._grown.notify_all()


@pytest.fixture
def log() -> GrowingLog:
    return GrowingLog()


@pytest.fixture
def sidecars() -> Sidecars:
    return Sidecars(dict)


@pytest.fixture
async def following(log: GrowingLog, sidecars: Sidecars) -> AsyncIterator[OrderFollowing]:
    made = OrderFollowing(log, sidecars, lambda: NOON)  # type: ignore[arg-type]  # as much of it as is needed
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()


async def next_of(stream: AsyncIterator[events.SidecarOrder]) -> str:
    async with asyncio.timeout(10):
        return (await anext(stream)).name


async def test_what_is_open_comes_first_then_what_is_new(following: OrderFollowing, log: GrowingLog) -> None:
    open_ = [await log.order(), await log.order()]
    await log.order("s2")
    stream = following.follow("s1", ELDER)
    assert [await next_of(stream), await next_of(stream)] == open_
    waiting = asyncio.create_task(next_of(stream))
    await log.order("s2")
    await log.end(open_[0])
    assert [*await asyncio.gather(waiting, log.order())] == ["orders/6", "orders/6"]


async def test_what_no_one_may_begin_any_more_is_not_given(following: OrderFollowing, log: GrowingLog) -> None:
    await log.order(expires=NOON)
    fresh = await log.order()
    assert await next_of(following.follow("s1", ELDER)) == fresh


async def test_a_younger_process_takes_over_with_all_that_is_open(
    following: OrderFollowing, log: GrowingLog, sidecars: Sidecars
) -> None:
    order = await log.order()
    sidecars.hear("s1", ELDER)
    elder = following.follow("s1", ELDER)
    assert await next_of(elder) == order
    sidecars.hear("s1", YOUNGER)
    with pytest.raises(Conflict, match="younger process"):
        await next_of(elder)
    with pytest.raises(Conflict, match="younger process"):
        await next_of(following.follow("s1", ELDER))
    assert await next_of(following.follow("s1", YOUNGER)) == order


async def test_a_process_that_connects_again_ends_its_first_stream_in_order(
    following: OrderFollowing, log: GrowingLog
) -> None:
    order = await log.order()
    first, second = following.follow("s1", ELDER), following.follow("s1", ELDER)
    assert await next_of(first) == order
    ending = asyncio.create_task(next_of(first))
    assert await next_of(second) == order
    with pytest.raises(StopAsyncIteration):
        await ending


async def test_a_control_that_lost_the_lead_sends_its_followers_to_another_replica(
    following: OrderFollowing, log: GrowingLog
) -> None:
    await log.order()
    stream = following.follow("s1", ELDER)
    await next_of(stream)
    waiting = asyncio.create_task(next_of(stream))
    log.leads = False
    following.lost_the_lead()
    with pytest.raises(Unavailable, match="another replica leads"):
        await waiting


async def test_followers_are_bounded_and_make_room_when_they_go(
    following: OrderFollowing, log: GrowingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_following, "MAX_FOLLOWERS", 1)
    await log.order("s1")
    await log.order("s2")
    first = following.follow("s1", ELDER)
    await next_of(first)
    with pytest.raises(Unavailable, match="1 sidecars follow their orders here"):
        await next_of(following.follow("s2", ELDER))
    await first.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert await next_of(following.follow("s2", ELDER)) == "orders/2"


async def test_who_waits_for_an_outcome_has_it_as_soon_as_it_is_there(
    following: OrderFollowing, log: GrowingLog
) -> None:
    name = await log.order()
    order = log.view.orders.open[name]
    assert not (await following.outcome(order, 0)).HasField("outcome")
    waiting = asyncio.create_task(following.outcome(order, 60))
    await log.order()
    await log.end(order.name)
    async with asyncio.timeout(10):
        assert (await waiting).HasField("outcome")
