"""Callers that hang up while their request is being served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


@contextlib.asynccontextmanager
async def caller(receive: Receive) -> AsyncIterator["Caller"]:
    """Watches whether the caller is there, once the request is read."""
    watching = asyncio.create_task(_gone(receive), name="caller")
    try:
        yield Caller(watching)
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class Caller:
    """Whoever waits for the answer."""

    def __init__(self, watching: "asyncio.Task[None]") -> None:
        self._watching = watching

    @property
    def is_gone(self) -> bool:
        return self._watching.done()

    async def waits_for(self, work: Awaitable[T]) -> T | None:
        """The result of the work; None when the caller is gone first: then the work is cancelled."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._watching}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
