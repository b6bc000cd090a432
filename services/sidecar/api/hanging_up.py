"""Callers that hang up while their request is being served."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

CHUNK_BYTES = 64 * 1024
"""The size of the pieces of an answer.

Before each piece, the server waits until the caller has taken most of the last one.
"""

T = TypeVar("T")

TURNS = 4
"""The turns of the event loop between a failed write and the message that reports it: transport, server, watcher."""


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
    """The caller who waits for the answer."""

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


class WatchedResponse(Response):
    """An answer with records.

    It reports whether the caller was there to the last byte; bytes in the buffers of the caller's machine count as
    taken.
    """

    def __init__(
        self,
        body: bytes,
        media_type: str,
        *,
        given: Callable[[], Awaitable[None]],
        lost: Callable[[], Awaitable[None]],
    ) -> None:
        """One of `given` and `lost` is called when the answer is over."""
        super().__init__(body, media_type=media_type)
        self._given = given
        self._lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_over = False
        try:
            async with caller(receive) as reader:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                for start in range(0, len(self.body), CHUNK_BYTES):
                    piece = self.body[start : start + CHUNK_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if reader.is_gone:
                        return
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                is_over = not reader.is_gone
            if is_over:
                await send({"type": "http.response.body", "body": b""})
        finally:
            await (self._given() if is_over else self._lost())
