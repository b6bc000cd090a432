"""The way to the control that leads: a bound for each call, who speaks, and whether control can reach this member."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence

import grpc

from mesh.rpc import replays, replays_grpc
from mesh.rpc.replicas import Replicas
from services.pipeline.serving import metrics

ACTOR_METADATA = "x-mesh-actor"
CALL_SECONDS = 5.0


def incarnation() -> str:
    """Of a process that begins now: its milliseconds since the epoch, and what tells it from one of that moment."""
    return f"{time.time_ns() // 1_000_000}-{secrets.token_urlsafe(6)}"


class ControlLink:
    """What this member says to control. Each method raises grpc.aio.AioRpcError when control does not answer it."""

    def __init__(
        self, addresses: tuple[str, ...], member: str, destinations: Sequence[str], *, max_running: int
    ) -> None:
        """`max_running`: replays that control may give this member at a time; others wait there, for any member."""
        self.member = member
        self._incarnation = incarnation()
        self._destinations = destinations
        self._max_running = max_running
        self._channel = Replicas(addresses)
        self._stub = replays_grpc.ReplayServiceStub(self._channel)
        self._who = ((ACTOR_METADATA, member),)
        self._following: grpc.aio.UnaryStreamCall[replays.FollowReplaysRequest, replays.Replay] | None = None

    @property
    def is_following(self) -> bool:
        """Whether control can tell this member what to carry out, as far as anybody knows."""
        is_open = self._following is not None and not self._following.done()
        is_following = is_open and self._channel.get_state() is grpc.ChannelConnectivity.READY
        metrics.following.set(is_following)
        return is_following

    async def open_replays(self) -> AsyncIterator[replays.Replay]:
        """What this member has to carry out, as it comes; ends when control ends it."""
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

    async def close(self) -> None:
        await self._channel.close(grace=None)
