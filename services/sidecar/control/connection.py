"""The connection to the leading replica of control: the time-out, the actor and the metrics of each call."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import grpc
import structlog

from mesh.rpc import events, instances, instances_grpc, replays, replays_grpc
from mesh.rpc.replicas import Replicas
from mesh.rpc.tls import RpcTls
from services.sidecar.state.claim import Incarnation
from services.sidecar.telemetry import metrics

ACTOR_METADATA = "x-mesh-actor"
CALL_SECONDS = 2.0
PLAN_SECONDS = 15.0
"""The time-out of a call for which control asks clusters first: a topic that was made just now has no leader yet."""
PAGE_SIZE = 1_000
MAX_PAGES = 100
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.NOT_FOUND,
}
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Connection:
    """The calls of a sidecar to control. Each method raises grpc.aio.AioRpcError if control does not answer."""

    def __init__(self, addresses: tuple[str, ...], sidecar: str, incarnation: Incarnation, tls: RpcTls | None) -> None:
        self.sidecar = sidecar
        self.incarnation = incarnation
        self._channel = Replicas(addresses, tls)
        self._stub = instances_grpc.InstanceServiceStub(self._channel)
        self._replays = replays_grpc.ReplayServiceStub(self._channel)
        self._who = ((ACTOR_METADATA, sidecar.encode("ascii", "replace").decode()),)  # for control's history
        self._bounds: dict[str, Any] = {"timeout": CALL_SECONDS, "metadata": self._who}

    async def beat(self, request: instances.BeatRequest) -> instances.BeatResponse:
        return await self._call("Beat", self._stub.Beat(request, **self._bounds))

    async def register(self, instance: events.ConsumerInstance) -> None:
        request = instances.RegisterInstanceRequest(instance=instance)
        await self._tell("RegisterInstance", self._stub.RegisterInstance(request, **self._bounds), instance.name)

    async def remove(self, name: str, cause: str) -> None:
        request = instances.RemoveInstanceRequest(name=name, sidecar=self.sidecar, cause=cause)
        await self._tell("RemoveInstance", self._stub.RemoveInstance(request, **self._bounds), name)

    async def known_instances(self) -> list[events.ConsumerInstance]:
        """The instances that control has for this sidecar."""
        found: list[events.ConsumerInstance] = []
        page_token = ""
        for _ in range(MAX_PAGES):
            request = instances.ListInstancesRequest(page_size=PAGE_SIZE, page_token=page_token, sidecar=self.sidecar)
            page = await self._call("ListInstances", self._stub.ListInstances(request, **self._bounds))
            # a control of an earlier release lists those of all sidecars
            found += [each for each in page.instances if each.sidecar == self.sidecar]
            page_token = page.next_page_token
            if not page_token:
                break
        return found

    async def describe(self, name: str) -> instances.DescribedInstance | None:
        """An instance as control describes it.

        None if control does not know it, or if control's release has no such call.
        """
        request = instances.DescribeInstanceRequest(name=name)
        try:
            return await self._call("DescribeInstance", self._stub.DescribeInstance(request, **self._bounds))
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
                return None
            raise

    async def orders(self) -> AsyncIterator[events.SidecarOrder]:
        """The operators' orders as they come; ends when control ends the stream."""
        request = instances.FollowOrdersRequest(sidecar=self.sidecar, incarnation=str(self.incarnation))
        async for order in self._stub.FollowOrders(request, metadata=self._who):
            yield order

    async def report(self, order: str, outcome: events.OrderOutcome) -> None:
        request = instances.ReportOrderRequest(name=order, sidecar=self.sidecar, outcome=outcome)
        await self._tell("ReportOrder", self._stub.ReportOrder(request, **self._bounds), order)

    @property
    def is_up(self) -> bool:
        """Whether the connection to control is ready now."""
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def open_replays(self) -> AsyncIterator[replays.Replay]:
        """The replays that this sidecar has to carry out, as they come; ends when control ends the stream."""
        request = replays.FollowReplaysRequest(member=self.sidecar, incarnation=str(self.incarnation))
        async for replay in self._replays.FollowReplays(request, metadata=self._who):
            yield replay

    async def start_replay(self, request: replays.StartReplayRequest) -> replays.Replay:
        return await self._call(
            "StartReplay", self._replays.StartReplay(request, **self._bounds | {"timeout": PLAN_SECONDS})
        )

    async def report_replay(self, request: replays.ReportReplayRequest) -> None:
        await self._call("ReportReplay", self._replays.ReportReplay(request, **self._bounds))

    async def close(self) -> None:
        await self._channel.close(grace=None)

    async def _tell(self, call_name: str, call: Awaitable[object], about: str) -> None:
        """Makes a call about one object.

        A refusal is logged and not raised: a repetition would not help, and other calls wait.
        """
        try:
            await self._call(call_name, call)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _REFUSALS:
                raise
            log.warning("control refuses", call=call_name, about=about, reason=error.details())

    async def _call(self, call_name: str, call: Awaitable[T]) -> T:
        try:
            answer = await call
        except grpc.aio.AioRpcError:
            metrics.control_calls.labels(call_name, "failed").inc()
            raise
        metrics.control_calls.labels(call_name, "ok").inc()
        return answer
