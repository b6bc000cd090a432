"""A wake-up that coalesces, and readiness made of it."""

from __future__ import annotations

import asyncio

from mesh.lifecycle import Lifecycle
from mesh.rpc.server import RpcServer


class Change:
    """Wakes one waiter whenever something changed; several changes before it looks are one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def note(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()


class Readiness:
    """Whether the router has the whole log; told to /ready at once, and to gRPC health by `mirror`."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._change = Change()

    def ready(self) -> None:
        self._lifecycle.ready()
        self._change.note()

    def not_ready(self, reason: str) -> None:
        self._lifecycle.not_ready(reason)
        self._change.note()

    async def mirror(self, server: RpcServer) -> None:
        """Keeps gRPC health in step; until cancelled."""
        while True:
            await self._change.wait()
            await server.set_serving(self._lifecycle.is_ready)
