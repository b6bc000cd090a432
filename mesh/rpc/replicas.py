"""Calls to a service of which there are several replicas: those of control, of which one leads.

Theory of operation
1. Every replica has a channel, which follows its name and reconnects. If there are several, their gRPC health is
   watched; only the replica that leads says SERVING.
2. A call goes to the replica that was the last to become SERVING. While none says so, calls go to the one before, which
   answers what any replica may answer and refuses the rest.
3. A replica that no longer leads ends its streams, and the caller begins the next one here. A replica that hangs is
   noticed by the keepalive of its channel; a caller that can't wait so long asks `moved`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mesh.rpc.cancellation import heed_cancellation
from mesh.rpc.server import open_channel

LOOK_AGAIN_S = 0.5
"""Between two attempts to watch a replica's health."""

log = structlog.get_logger(__name__)


class Replicas(grpc.aio.Channel):
    """A channel as stubs want it, to whichever replica leads. Make it within a running loop."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        if not addresses:
            raise ValueError("no address: name at least one replica as HOST:PORT")
        self.addresses = addresses
        self._channels = [open_channel(address) for address in addresses]
        self._chosen = 0
        self._moved = asyncio.Event()
        several = len(self._channels) > 1
        self._watching = [
            asyncio.get_running_loop().create_task(self._watch(number), name=f"health of {address}")
            for number, address in enumerate(addresses)
            if several
        ]

    @property
    def address(self) -> str:
        """The address to which calls go now."""
        return self.addresses[self._chosen]

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._each("unary_unary", *args, **kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._each("unary_stream", *args, **kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._each("stream_unary", *args, **kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._each("stream_stream", *args, **kwargs)

    def _each(self, kind: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """A method of a service: a callable for each channel, and each call by the chosen one."""
        methods = [getattr(channel, kind)(*args, **kwargs) for channel in self._channels]

        def call(*request: Any, **options: Any) -> Any:
            return methods[self._chosen](*request, **options)

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # as grpc has it
        return self._channels[self._chosen].get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channels[self._chosen].wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channels[self._chosen].channel_ready()

    async def moved(self) -> None:
        """Returns when calls go to another replica than now."""
        await self._moved.wait()

    async def __aenter__(self) -> Replicas:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Open calls are cancelled."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for channel in self._channels:
            await channel.close(grace)

    async def _watch(self, number: int) -> None:
        stub: Any = health_pb2_grpc.HealthStub(self._channels[number])
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for answer in stub.Watch(health_pb2.HealthCheckRequest()):
                    if answer.status == health_pb2.HealthCheckResponse.SERVING and number != self._chosen:
                        log.info("another replica leads", address=self.addresses[number], before=self.address)
                        self._chosen = number
                        self._moved.set()
                        self._moved = asyncio.Event()
            heed_cancellation()
            await asyncio.sleep(LOOK_AGAIN_S)
