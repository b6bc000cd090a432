"""Control as a server that the test holds: it remembers what it was told, gives orders, and can be away."""

import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from mesh import durations
from mesh.rpc import admin, events, instances, instances_grpc, subscriptions
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until


class HeldControl(instances_grpc.InstanceServiceServicer):
    """Can be stopped and started on the same port."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_block(1)}"
        self.known: dict[str, events.ConsumerInstance] = {}
        self.removed: dict[str, str] = {}
        self.members: list[admin.Member] = []
        self.beat_times: list[float] = []
        """When each beat came, on the monotonic clock."""
        self.incarnations: list[str] = []
        self.statuses: dict[str, instances.InstanceStatus] = {}
        self.actors: set[str] = set()
        self.subscriptions: subscriptions.SubscriptionsOfSidecar | None = None
        """Those that it declares; None for a control of an earlier release."""
        self.reports: dict[str, subscriptions.SubscriptionReport] = {}
        self.next_beat_ms = 0
        """When the sidecar shall beat again; 0 for a control of an earlier release."""
        self.refused = ""
        self.younger = ""
        """An incarnation that others have to give way to."""
        self.open: dict[str, events.SidecarOrder] = {}
        self.outcomes: dict[str, list[events.OrderOutcome]] = {}
        self.takes_reports = True
        self.refused_reports: dict[str, events.OrderOutcome] = {}
        self._server: grpc.Server | None = None
        self._followers: list[queue.SimpleQueue[events.SidecarOrder | None]] = []

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(8))
        instances_grpc.add_InstanceServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            for follower in self._followers:
                follower.put(None)
            self._server.stop(None).wait()
            self._server = None

    def place(self, name: str, target: str, command: events.SidecarCommand) -> str:
        """Gives an order; its name."""
        order = events.SidecarOrder(name=f"orders/{name}", target=target, sidecar="sidecar-test", command=command)
        self.open[order.name] = order
        for follower in self._followers:
            follower.put(order)
        return order.name

    def order(self, name: str, target: str, command: events.SidecarCommand) -> events.OrderOutcome:
        """Gives an order, and waits for its outcome."""
        order = self.place(name, target, command)
        wait_until(lambda: order in self.outcomes, f"{order} has an outcome")
        return self.outcomes[order][0]

    def RegisterInstance(self, request: instances.RegisterInstanceRequest, context: Any) -> events.ConsumerInstance:
        if request.instance.instance_id == self.refused:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "held by another sidecar")
        self.actors.add(str(dict(context.invocation_metadata()).get("x-mesh-actor")))
        name = f"instances/{request.instance.group}.{request.instance.instance_id}"
        self.known[name] = request.instance
        return request.instance

    def RemoveInstance(
        self, request: instances.RemoveInstanceRequest, context: Any
    ) -> instances.RemoveInstanceResponse:
        self.known.pop(request.name, None)
        self.removed[request.name] = request.cause
        return instances.RemoveInstanceResponse()

    def ListInstances(self, request: instances.ListInstancesRequest, context: Any) -> instances.ListInstancesResponse:
        return instances.ListInstancesResponse(instances=self.known.values())

    def DescribeInstance(self, request: instances.DescribeInstanceRequest, context: Any) -> instances.DescribedInstance:
        if request.name not in self.known:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such instance")
        return instances.DescribedInstance(instance=self.known[request.name], sidecar_alive=True)

    def Beat(self, request: instances.BeatRequest, context: Any) -> instances.BeatResponse:
        self.members.append(request.member)
        self.beat_times.append(time.monotonic())
        self.incarnations.append(request.incarnation)
        self.statuses.update({status.name: status for status in request.instances})
        self.reports = {report.name: report for report in request.subscriptions}
        response = instances.BeatResponse(superseded=bool(self.younger) and request.incarnation != self.younger)
        response.next_beat.CopyFrom(durations.of_ms(self.next_beat_ms))
        if self.subscriptions is not None and self.subscriptions.digest != request.subscriptions_digest:
            response.subscriptions.CopyFrom(self.subscriptions)
        return response

    def FollowOrders(self, request: instances.FollowOrdersRequest, context: Any) -> Iterator[events.SidecarOrder]:
        if self.younger and request.incarnation != self.younger:
            context.abort(grpc.StatusCode.ABORTED, "a younger process of sidecar 'sidecar-test' is there")
        mine: queue.SimpleQueue[events.SidecarOrder | None] = queue.SimpleQueue()
        self._followers.append(mine)
        context.add_callback(lambda: mine.put(None))
        yield from list(self.open.values())
        while (order := mine.get()) is not None:
            yield order

    def ReportOrder(self, request: instances.ReportOrderRequest, context: Any) -> instances.ReportOrderResponse:
        if not self.takes_reports:
            self.refused_reports[request.name] = request.outcome
            context.abort(grpc.StatusCode.UNAVAILABLE, "the database is away")
        self.open.pop(request.name, None)
        self.outcomes.setdefault(request.name, []).append(request.outcome)
        return instances.ReportOrderResponse()

    def PlaceOrder(self, request: instances.PlaceOrderRequest, context: Any) -> events.SidecarOrder:
        raise NotImplementedError("operators give orders to the test: see `place`")

    def GetOrder(self, request: instances.GetOrderRequest, context: Any) -> events.SidecarOrder:
        raise NotImplementedError

    def ListOrders(self, request: instances.ListOrdersRequest, context: Any) -> instances.ListOrdersResponse:
        raise NotImplementedError
