"""Thousands of light gateways in one process, over the real discovery protocol: each watches a router, and answers each
order at once. A member reads of an order only its kind and its revision, so that the figures are those of the router.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any
from uuid import uuid4

import grpc.aio

from mesh.routing.codec import TABLE_FORMAT
from mesh.routing.table_bytes import REVISION_BYTES, revision_of
from mesh.rpc import admin, discovery
from mesh.rpc.channels import open_channel

PER_CHANNEL = 20
"""Watches that share a connection: this process has to hold all of them."""
AT_A_TIME = 50
"""Members that connect at the same time."""
LARGE = 1_000
"""Bytes; a larger order has a table, or a delta of many rules, and is not parsed."""
_KINDS = discovery.WatchResponse.DESCRIPTOR.fields_by_number
_TYPE_BITS = 3
_MORE = 0x80


class LightMembers:
    """See above."""

    def __init__(self, router: str, number: int, *, reads_deltas: bool) -> None:
        self.arrivals: dict[int, list[float]] = {}
        """The times, in seconds since 1970, at which the table of each revision arrived."""
        self.received_bytes = 0
        self.kinds: Counter[str] = Counter()
        self._router = router
        self._number = number
        self._reads_deltas = reads_deltas
        self._ending = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = 0

    async def __aenter__(self) -> LightMembers:
        gate = asyncio.Semaphore(AT_A_TIME)
        for first in range(0, self._number, PER_CHANNEL):
            channel = open_channel(self._router)
            self._ending.push_async_callback(channel.close)
            for number in range(first, min(first + PER_CHANNEL, self._number)):
                self._tasks.append(asyncio.create_task(self._follow(channel, f"light-{number}", gate)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ending.aclose()

    def arrived(self, revision: int) -> int:
        """How many members have this table."""
        return len(self.arrivals.get(revision, ()))

    async def _follow(self, channel: grpc.aio.Channel, name: str, gate: asyncio.Semaphore) -> None:
        answers: asyncio.Queue[discovery.WatchRequest] = asyncio.Queue()
        await answers.put(discovery.WatchRequest(hello=self._hello(name)))

        async def sent() -> AsyncIterator[discovery.WatchRequest]:
            while True:
                yield await answers.get()

        watch: Any = channel.stream_stream(
            "/mesh.v1.DiscoveryService/Watch",
            request_serializer=discovery.WatchRequest.SerializeToString,
            response_deserializer=None,
        )
        async with gate:
            call = watch(sent())
            first = await call.read()
        self.connected += 1
        order = first
        while isinstance(order, bytes):
            self.received_bytes += len(order)
            kind, revision = told(order)
            self.kinds[kind] += 1
            if kind != "release":
                self.arrivals.setdefault(revision, []).append(time.time())
                phase = admin.MEMBER_PHASE_HELD if kind == "hold" else admin.MEMBER_PHASE_APPLIED
                await answers.put(discovery.WatchRequest(ack=discovery.Ack(revision=revision, phase=phase)))
            order = await call.read()

    def _hello(self, name: str) -> discovery.Hello:
        member = admin.Member(
            name=f"members/{name}",
            kind=admin.MEMBER_KIND_GATEWAY,
            version="1",
            address="127.0.0.1:1",
            table_format=TABLE_FORMAT,
            process=uuid4().hex,
        )
        return discovery.Hello(member=member, reads_deltas=self._reads_deltas)


def told(order: bytes) -> tuple[str, int]:
    """The kind of an order, and its revision."""
    if len(order) < LARGE:
        message = discovery.WatchResponse.FromString(order)
        kind = message.WhichOneof("kind")
        assert kind is not None
        body = getattr(message, kind)
        if kind in ("hold", "canary"):
            body = body.delta if body.HasField("delta") else body.table
        return kind, body.revision
    place = 1
    while order[place] & _MORE:
        place += 1
    field = _KINDS[order[0] >> _TYPE_BITS].name
    assert field in ("apply", "apply_delta"), f"a light member reads no large {field}"
    return field, revision_of(order[place + 1 : place + 1 + REVISION_BYTES])
