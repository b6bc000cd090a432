"""The routers that a gateway knows, and a connection to one of them as soon as there is one to be had.

They are tried in turn, beginning behind the one that was watched last. One that refuses makes way for the next at once;
one that does not answer (its machine is gone, its process hangs) has `HEAD_START_S` before the next is tried beside it,
and the first that answers is taken. So one router that is away costs milliseconds, in whichever way it is away.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

HEAD_START_S = 0.3
CONNECT_TIMEOUT_S = 5.0
OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),
)
"""A router whose machine is gone is noticed within 15 s. No channel waits out what another one had to wait."""


class NoRouterError(ConnectionError):
    """None can be reached, each with its reason."""


@dataclass(frozen=True, slots=True)
class Router:
    """One that is connected."""

    address: str
    channel: grpc.aio.Channel


class Routers:
    """See above."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._order = deque(addresses)

    def __len__(self) -> int:
        return len(self._order)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Router]:
        """The next one that answers; NoRouterError when all have refused, or not answered in time."""
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
        try:
            while waiting or attempts:
                if waiting:
                    address = waiting.popleft()
                    attempts[asyncio.create_task(_connect(address), name=f"connect {address}")] = address
                head_start = HEAD_START_S if waiting else None
                done, _ = await asyncio.wait(attempts, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    if attempt.exception() is None:
                        taken = attempt.result()
                        return taken
                    reasons.append(f"{attempts.pop(attempt)}: {attempt.exception()}")
        finally:
            for attempt in attempts:
                attempt.cancel()
            for outcome in await asyncio.gather(*attempts, return_exceptions=True):
                if isinstance(outcome, Router) and outcome is not taken:
                    await outcome.channel.close()
        raise NoRouterError("; ".join(reasons))


async def _connect(address: str) -> Router:
    channel = grpc.aio.insecure_channel(address, options=OPTIONS)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await _ready(channel)
    except BaseException as error:
        await channel.close()
        if isinstance(error, TimeoutError):
            raise ConnectionError(f"no answer within {CONNECT_TIMEOUT_S:g} s") from None
        raise
    return Router(address, channel)


async def _ready(channel: grpc.aio.Channel) -> None:
    """Until the channel is up; ConnectionError at the first refusal, where `channel_ready` would go on trying."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise ConnectionError("the connection was refused")
        await channel.wait_for_state_change(state)
        state = channel.get_state()
