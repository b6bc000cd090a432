"""The connection to the leading control: time-outs of calls, the member's name, the state of the connection."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence

import grpc

from mesh.rpc import events, instances, instances_grpc, pipelines, pipelines_grpc, replays, replays_grpc
from mesh.rpc.replicas import Replicas
from mesh.rpc.tls import RpcTls
from services.pipeline.serving import metrics

ACTOR_METADATA = "x-mesh-actor"
CALL_SECONDS = 5.0


def incarnation() -> str:
    """An identifier of this process: milliseconds since the epoch, and a random part."""
    return f"{time.time_ns() // 1_000_000}-{secrets.token_urlsafe(6)}"


class ControlLink:
    """The calls of this member to control. Each method raises grpc.aio.AioRpcError if control does not answer."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        member: str,
        destinations: Sequence[str],
        *,
        max_running: int,
        tls: RpcTls | None = None,
    ) -> None:
        """`max_running`: replays that control may assign to this member at once; others wait there, for any member."""
        self.member = member
        self._incarnation = incarnation()
        self._destinations = destinations
        self._max_running = max_running
        self._channel = Replicas(addresses, tls)
        self._stub = replays_grpc.ReplayServiceStub(self._channel)
        self._instances = instances_grpc.InstanceServiceStub(self._channel)
        self._pipelines = pipelines_grpc.PipelineServiceStub(self._channel)
        self._who = ((ACTOR_METADATA, member),)
        self._following: grpc.aio.UnaryStreamCall[replays.FollowReplaysRequest, replays.Replay] | None = None

    @property
    def is_following(self) -> bool:
        """Whether control can send replays to this member, as far as is known."""
        is_open = self._following is not None and not self._following.done()
        is_following = is_open and self._channel.get_state() is grpc.ChannelConnectivity.READY
        metrics.following.set(is_following)
        return is_following

    async def open_replays(self) -> AsyncIterator[replays.Replay]:
        """The replays that control assigns to this member, as they arrive; ends when control ends the stream."""
        request = replays.FollowReplaysRequest(
            member=self.member,
            incarnation=self._incarnation,
            destinations=self._destinations,
            max_running=self._max_running,
        )
        self._following = self._stub.FollowReplays(request, metadata=self._who)
        try:
            async for replay in self._following:
                yield replay
        finally:
            self._following.cancel()
            self._following = None

    async def report(self, request: replays.ReportReplayRequest) -> None:
        await self._stub.ReportReplay(request, timeout=CALL_SECONDS, metadata=self._who)

    @property
    def listener(self) -> str:
        """The name of this member as a receiver of orders."""
        return f"pipelines/{self.member}"

    async def report_jobs(self, jobs: Iterable[pipelines.JobStatus]) -> None:
        """Reports the state of all continuous jobs of this member."""
        request = pipelines.ReportJobsRequest(pipeline=self.member, incarnation=self._incarnation, jobs=jobs)
        await self._pipelines.ReportJobs(request, timeout=CALL_SECONDS, metadata=self._who)

    async def open_orders(self) -> AsyncIterator[events.SidecarOrder]:
        """The operators' orders for this member, as they arrive; ends when control ends the stream."""
        request = instances.FollowOrdersRequest(sidecar=self.listener, incarnation=self._incarnation)
        call = self._instances.FollowOrders(request, metadata=self._who)
        try:
            async for order in call:
                yield order
        finally:
            call.cancel()

    async def report_order(self, name: str, outcome: events.OrderOutcome) -> None:
        request = instances.ReportOrderRequest(name=name, sidecar=self.listener, outcome=outcome)
        await self._instances.ReportOrder(request, timeout=CALL_SECONDS, metadata=self._who)

    async def close(self) -> None:
        await self._channel.close(grace=None)
