"""The routers that a gateway knows, and a connection to one of them as soon as there is one to be had.

The gateway tries the routers in turn, beginning behind the router that it watched last. If a router refuses, the
gateway tries the next at once. If a router does not answer (its machine is gone, its process hangs), the gateway tries
the next beside it after `HEAD_START_S`, and takes the first that answers. So an absent router costs milliseconds,
however it is absent.

A router whose gRPC health says NOT_SERVING (it still reads the log, or its home cluster does not answer) is taken when
there is no better one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mesh.rpc.channels import open_channel
from mesh.rpc.tls import RpcTls, RpcTlsError

HEAD_START_S = 0.3
CONNECT_TIMEOUT_S = 5.0


class NoRouterError(ConnectionError):
    """No router can be reached; the message gives the reason for each."""


@dataclass(frozen=True, slots=True)
class Router:
    """A router that is connected."""

    address: str
    channel: grpc.aio.Channel
    serves: bool = True
    """Whether it knows the log as it is now."""


class Routers:
    """See above."""

    def __init__(self, addresses: tuple[str, ...], tls: RpcTls | None = None) -> None:
        self._order = deque(addresses)
        self._tls = tls

    def __len__(self) -> int:
        return len(self._order)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Router]:
        """The next router that answers; NoRouterError if all have refused, or none has answered in time."""
        router = await self._first()
        self._order.rotate(-1 - self._order.index(router.address))
        try:
            yield router
        finally:
            await router.channel.close()

    async def _first(self) -> Router:
        waiting, reasons = deque(self._order), list[str]()
        attempts: dict[asyncio.Task[Router], str] = {}
        taken: Router | None = None
        behind: list[Router] = []
        try:
            while waiting or attempts:
                if waiting:
                    address = waiting.popleft()
                    attempts[asyncio.create_task(_connect(address, self._tls), name=f"connect {address}")] = address
                head_start = HEAD_START_S if waiting else None
                done, _ = await asyncio.wait(attempts, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    address = attempts.pop(attempt)
                    if attempt.exception() is not None:
                        reasons.append(f"{address}: {attempt.exception()}")
                    elif attempt.result().serves:
                        taken = attempt.result()
                        return taken
                    else:
                        behind.append(attempt.result())
            if behind:
                taken = behind[0]
                return taken
        finally:
            for attempt in attempts:
                attempt.cancel()
            found = await asyncio.gather(*attempts, return_exceptions=True)
            for outcome in (*found, *behind):
                if isinstance(outcome, Router) and outcome is not taken:
                    await outcome.channel.close()
        raise NoRouterError("; ".join(reasons))


async def _connect(address: str, tls: RpcTls | None) -> Router:
    try:
        channel = open_channel(address, tls)
    except RpcTlsError as error:
        raise ConnectionError(str(error)) from None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _ready(channel)
            serves = await _serves(channel)
    except BaseException as error:
        await channel.close()
        if isinstance(error, TimeoutError):
            raise ConnectionError(f"no answer within {CONNECT_TIMEOUT_S:g} s") from None
        raise
    return Router(address, channel, serves)


async def _serves(channel: grpc.aio.Channel) -> bool:
    try:
        health: Any = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest())
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def _ready(channel: grpc.aio.Channel) -> None:
    """Wait until the channel is up; ConnectionError at the first refusal, where `channel_ready` would go on trying."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise ConnectionError("the connection was refused")
        await channel.wait_for_state_change(state)
        state = channel.get_state()
