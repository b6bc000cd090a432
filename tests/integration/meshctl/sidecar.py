"""A gRPC client that stands where a sidecar is: it holds an instance, follows its orders and says how they went."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc

from mesh.rpc import admin, events, instances, instances_grpc
from meshctl.failures import as_call

CALL = 30.0
INCARNATION = "1795305600000-x7Hq"


class Sidecar:
    """It does what it is told, and refuses to seek."""

    def __init__(self, address: str, name: str) -> None:
        self.name = name
        self._channel = grpc.insecure_channel(address)
        self._control = instances_grpc.InstanceServiceStub(self._channel)
        self._thread = ThreadPoolExecutor(1)
        self._orders = self._control.FollowOrders(instances.FollowOrdersRequest(sidecar=name, incarnation=INCARNATION))
        member = admin.Member(name=f"members/{name}", version="1.0", address="127.0.0.1:8084")
        self._control.Beat(instances.BeatRequest(member=member, incarnation=INCARNATION), timeout=CALL)
        self.holds()
        self._carried_out = self._thread.submit(self._carry_out)

    def holds(self, *, paused: bool = False) -> None:
        instance = events.ConsumerInstance(
            group=self.name, instance_id="one", sidecar=self.name, topics=["orders"], paused=paused
        )
        self._control.RegisterInstance(instances.RegisterInstanceRequest(instance=instance), timeout=CALL)

    def stops(self) -> None:
        self._orders.cancel()
        self._carried_out.result(CALL)
        self._thread.shutdown()
        self._channel.close()

    def _carry_out(self) -> None:
        try:
            for order in self._orders:
                request = instances.ReportOrderRequest(
                    name=order.name, sidecar=self.name, outcome=self._outcome(order.command)
                )
                self._control.ReportOrder(request, timeout=CALL)
        except grpc.RpcError as error:
            if as_call(error).code() is not grpc.StatusCode.CANCELLED:
                raise

    def _outcome(self, command: events.SidecarCommand) -> events.OrderOutcome:
        match command.WhichOneof("command"):
            case "pause":
                self.holds(paused=True)
                return events.OrderOutcome(result=events.ORDER_RESULT_DONE, description="it gives nothing")
            case "check_health":
                return events.OrderOutcome(result=events.ORDER_RESULT_DONE, details_json='{"ready": true}')
            case other:
                return events.OrderOutcome(result=events.ORDER_RESULT_FAILED, description=f"no {other} today")
