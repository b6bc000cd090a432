"""InstanceService: the reports of sidecars about their consumer instances, and the orders of operators to sidecars."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from mesh import durations
from mesh.instance_names import INSTANCES
from mesh.rpc import events, instances, instances_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, time_left
from services.control.decisions.answers import stored_response
from services.control.decisions.members.members import MAX_SIDECARS, Members, short
from services.control.decisions.sidecars.instances import InstanceDecisions
from services.control.decisions.sidecars.orders import SidecarOrders
from services.control.decisions.sidecars.subscriptions import SubscriptionDecisions
from services.control.domain.errors import InvalidField, Unavailable, Unknown
from services.control.domain.open_and_ended import newest_first
from services.control.domain.sidecars.incarnations import EARLIER_RELEASE, incarnation_of
from services.control.domain.sidecars.orders import ORDERS
from services.control.store.journal import Journal
from services.control.store.reports import Reports

MOST_ORDERS_DESCRIBED = 10


class InstanceService(instances_grpc.InstanceServiceServicer):
    """See InstanceService in instances.proto."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        orders: SidecarOrders,
        members: Members,
        subscriptions: SubscriptionDecisions,
    ) -> None:
        self._journal = journal
        self._reports = reports
        self._decisions = InstanceDecisions(journal, reports, orders)
        self._orders = orders
        self._members = members
        self._subscriptions = subscriptions
        self._sidecars = orders.sidecars

    async def RegisterInstance(
        self, request: instances.RegisterInstanceRequest, context: Any
    ) -> events.ConsumerInstance:
        self._journal.require_loaded()
        return await self._decisions.register(request.instance, caller(request))

    async def RemoveInstance(
        self, request: instances.RemoveInstanceRequest, context: Any
    ) -> instances.RemoveInstanceResponse:
        self._journal.require_loaded()
        _check_instance(request.name)
        await self._decisions.remove(request.name, request.sidecar, caller(request, reason=request.cause))
        return instances.RemoveInstanceResponse()

    async def ListInstances(
        self, request: instances.ListInstancesRequest, context: Any
    ) -> instances.ListInstancesResponse:
        self._journal.require_loaded()
        known, sidecar = self._reports.known.instances, short(request.sidecar)
        names = sorted(
            name for name, each in known.items() if sidecar in ("", each.sidecar) and request.group in ("", each.group)
        )
        listing = f"instances {sidecar} {request.group}".strip()
        page, token = pages.cut(listing, names, names, request.page_size, request.page_token)
        heard = [self._sidecars.status_of(known[name]) for name in page]
        return instances.ListInstancesResponse(
            instances=[known[name] for name in page],
            next_page_token=token,
            statuses=[each.status for each in heard if each is not None],
        )

    async def DescribeInstance(
        self, request: instances.DescribeInstanceRequest, context: Any
    ) -> instances.DescribedInstance:
        self._journal.require_loaded()
        _check_instance(request.name)
        instance = self._reports.known.instances.get(request.name)
        if instance is None:
            raise Unknown(request.name, f"no sidecar holds an instance {request.name!r}")
        heard = self._sidecars.status_of(instance)
        described = instances.DescribedInstance(
            instance=instance,
            status=None if heard is None else heard.status,
            sidecar_alive=self._sidecars.is_alive(instance.sidecar),
            orders=self._journal.view.orders.newest_for(request.name)[:MOST_ORDERS_DESCRIBED],
        )
        if heard is not None:
            described.status_time.FromDatetime(heard.time)
        return described

    async def Beat(self, request: instances.BeatRequest, context: Any) -> instances.BeatResponse:
        if not request.member.name:
            raise InvalidField("member.name", "is required")
        self._journal.require_leading()
        sidecar = short(request.member.name)
        incarnation = incarnation_of(request.incarnation) if request.incarnation else EARLIER_RELEASE
        if not self._sidecars.hear(sidecar, incarnation):
            return instances.BeatResponse(superseded=True)
        if not self._members.beat(request.member):
            raise Unavailable("TOO_MANY_MEMBERS", f"control shows at most {MAX_SIDECARS} sidecars")
        self._sidecars.report(sidecar, request.instances)
        self._sidecars.report_subscriptions(sidecar, request.subscriptions)
        next_beat_ms = self._sidecars.next_beat_ms
        if not request.takes_subscriptions:
            return instances.BeatResponse(next_beat=durations.of_ms(next_beat_ms))
        news = self._subscriptions.news_for(sidecar, request.subscriptions_digest)
        return instances.BeatResponse(subscriptions=news, next_beat=durations.of_ms(next_beat_ms))

    async def PlaceOrder(self, request: instances.PlaceOrderRequest, context: Any) -> events.SidecarOrder:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        placing = self._orders.place(request, who, lambda order: stored_response(who, order))
        order = await once(events.SidecarOrder, placing)
        return await self._orders.following.outcome(order, min(durations.whole_ms(request.wait) / 1000, time_left()))

    async def GetOrder(self, request: instances.GetOrderRequest, context: Any) -> events.SidecarOrder:
        self._journal.require_loaded()
        shapes.id_of(ORDERS, request.name)
        return self._journal.view.orders.get(request.name)

    async def ListOrders(self, request: instances.ListOrdersRequest, context: Any) -> instances.ListOrdersResponse:
        self._journal.require_loaded()
        found = self._journal.view.orders.newest_for(request.target, open_only=request.open_only)
        listing = f"orders {request.target} {request.open_only}"
        page, token = pages.cut(
            listing, found, [newest_first(each) for each in found], request.page_size, request.page_token
        )
        return instances.ListOrdersResponse(orders=page, next_page_token=token)

    async def FollowOrders(
        self, request: instances.FollowOrdersRequest, context: Any
    ) -> AsyncIterator[events.SidecarOrder]:
        self._journal.require_loaded()
        sidecar, incarnation = short(request.sidecar), incarnation_of(request.incarnation)
        if not sidecar:
            raise InvalidField("sidecar", "is required")
        self._sidecars.hear(sidecar, incarnation)  # an older process is refused below
        async for order in self._orders.following.follow(sidecar, incarnation):
            yield order

    async def ReportOrder(self, request: instances.ReportOrderRequest, context: Any) -> instances.ReportOrderResponse:
        self._journal.require_loaded()
        shapes.id_of(ORDERS, request.name)
        await self._orders.report(request.name, short(request.sidecar), request.outcome, caller(request))
        return instances.ReportOrderResponse()


def _check_instance(name: str) -> None:
    if not name.startswith(INSTANCES):
        raise InvalidField("name", f"{name!r} is not a resource name of the form instances/GROUP.INSTANCE")
