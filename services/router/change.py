"""A wake-up that coalesces changes, and readiness, which uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
    """Whether the router has the whole log. /ready shows it at once; `mirror` passes it to gRPC health.

    A router whose home cluster does not answer is *cut off*: it may not know the last decisions. Its gRPC health is
    NOT_SERVING and its watches end, so that gateways connect to a router that knows more. The answer of /ready does not
    change: if all routers are cut off, each of them still gives gateways the table that it has.
    """

    def __init__(self, lifecycle: Lifecycle, on_cut_off: Callable[[str], None]) -> None:
        """`on_cut_off` hears the reason, again and again while the home cluster does not answer."""
        self.cut_off_reason = ""
        self._lifecycle = lifecycle
        self._on_cut_off = on_cut_off
        self._change = Change()

    def cut_off(self, reason: str) -> None:
        self.cut_off_reason = reason
        self._change.note()
        self._on_cut_off(reason)

    def in_touch(self) -> None:
        self.cut_off_reason = ""
        self._change.note()

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
            await server.set_serving(self._lifecycle.is_ready and not self.cut_off_reason)
