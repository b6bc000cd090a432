"""Calls to a service of which there are several replicas: those of control, of which one leads.

Theory of operation
1. Every replica has a channel, which follows its name and reconnects. If there are several, their gRPC health is
   watched; only the replica that leads says SERVING.
2. A call goes to the replica that was the last to become SERVING. While none says so, calls go to the one before, which
   answers what any replica may answer and refuses the rest.
3. A replica that no longer leads ends its streams, and the caller begins the next one here. A replica that hangs is
   noticed by the keepalive of its channel; a caller that can't wait so long asks `moved`.
4. If a file of the certificate changes, later calls go by new channels. A call that runs ends on its old channel, which
   is closed when gRPC says that it is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mesh.rpc.cancellation import heed_cancellation
from mesh.rpc.channels import open_channel
from mesh.rpc.tls import RpcTls, RpcTlsError

LOOK_AGAIN_S = 0.5
"""Between two attempts to watch a replica's health."""
CHECK_FILES_S = 5.0
"""Between two checks whether a file of the certificate has changed."""

log = structlog.get_logger(__name__)


class Replicas(grpc.aio.Channel):
    """A channel as stubs want it, to whichever replica leads. Make it within a running loop."""

    def __init__(self, addresses: tuple[str, ...], tls: RpcTls | None = None) -> None:
        if not addresses:
            raise ValueError("no address: name at least one replica as HOST:PORT")
        self.addresses = addresses
        self._tls = tls
        self._channels = self._opened()
        self._former: list[grpc.aio.Channel] = []
        self._chosen = 0
        self._moved = asyncio.Event()
        self._watching = self._watched()
        self._following = None if tls is None else _task(self._follow_files(tls), "certificate of the channels")

    def _opened(self) -> list[grpc.aio.Channel]:
        return [open_channel(address, self._tls) for address in self.addresses]

    def _watched(self) -> list[asyncio.Task[None]]:
        """No task watches the health of a single replica."""
        several = len(self.addresses) > 1
        numbers = range(len(self.addresses)) if several else ()
        return [_task(self._watch(number), f"health of {self.addresses[number]}") for number in numbers]

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
        """A method of a service; each call goes by the channel that is chosen when the call begins."""

        def call(*request: Any, **options: Any) -> Any:
            method = getattr(self._channels[self._chosen], kind)(*args, **kwargs)
            return method(*request, **options)

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
        tasks = [*self._watching, *([] if self._following is None else [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in (*self._channels, *self._former):
            await channel.close(grace)

    async def _follow_files(self, tls: RpcTls) -> None:
        """Never ends by itself."""
        seen = tls.versions()
        while True:
            await asyncio.sleep(CHECK_FILES_S)
            for channel in [each for each in self._former if each.get_state() is grpc.ChannelConnectivity.IDLE]:
                self._former.remove(channel)
                await channel.close()
            if tls.versions() == seen:
                continue
            seen = tls.versions()
            try:
                opened = self._opened()
            except RpcTlsError as error:
                log.error("the certificate can't be loaded again, the last one goes on", reason=str(error))
                continue
            log.info("certificate loaded again", certificate=str(tls.certificate))
            self._former += self._channels
            self._channels = opened
            for task in self._watching:
                task.cancel()
            self._watching = self._watched()

    async def _watch(self, number: int) -> None:
        while True:
            stub: Any = health_pb2_grpc.HealthStub(self._channels[number])
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for answer in stub.Watch(health_pb2.HealthCheckRequest()):
                    if answer.status == health_pb2.HealthCheckResponse.SERVING and number != self._chosen:
                        log.info("another replica leads", address=self.addresses[number], before=self.address)
                        self._chosen = number
                        self._moved.set()
                        self._moved = asyncio.Event()
            heed_cancellation()
            await asyncio.sleep(LOOK_AGAIN_S)


def _task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)
