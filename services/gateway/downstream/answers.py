"""The gateway's messages to one router, in order: each waits until what it tells of is true on disk."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import structlog

from mesh.rpc import admin, discovery

log = structlog.get_logger(__name__)

MAX_QUEUED = 1000


class _Answer(NamedTuple):
    """A message to the router, and the event before which it must not be sent."""

    message: discovery.WatchRequest
    after: asyncio.Event | None


class Answers:
    """Messages go in by `add` and its kin, and come out of `sent`. A new watch has new answers."""

    def __init__(self) -> None:
        self.has_sent_goodbye = False
        self._queue: asyncio.Queue[_Answer | None] = asyncio.Queue(MAX_QUEUED)
        """None ends the answers to a router: otherwise gRPC would wait for more when the router is gone."""

    def add(self, message: discovery.WatchRequest, after: asyncio.Event | None = None) -> None:
        """Sends the message behind all earlier ones, and not before the event `after`."""
        self._put(_Answer(message, after))

    def ack(self, revision: int, phase: admin.MemberPhase.ValueType, after: asyncio.Event | None = None) -> None:
        self.add(discovery.WatchRequest(ack=discovery.Ack(revision=revision, phase=phase)), after)

    def nack(self, revision: int, reason: str) -> None:
        log.error("order refused", revision=revision, reason=reason)
        self.add(discovery.WatchRequest(nack=discovery.Nack(revision=revision, reason=reason)))

    def end(self) -> None:
        self._put(None)

    async def sent(self, hello: discovery.Hello) -> AsyncIterator[discovery.WatchRequest]:
        """The messages of a watch, beginning with `hello`, as gRPC takes them."""
        yield discovery.WatchRequest(hello=hello)
        while (answer := await self._queue.get()) is not None:
            if answer.after is not None:
                await answer.after.wait()
            self.has_sent_goodbye = answer.message.HasField("goodbye")
            yield answer.message

    def _put(self, answer: _Answer | None) -> None:
        try:
            self._queue.put_nowait(answer)
        except asyncio.QueueFull:
            log.error("a router takes no answers", waiting=self._queue.qsize())
