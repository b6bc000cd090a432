"""A broker that says what the test tells it to, on a real socket, one request at a time as brokers do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.table import HANDLERS
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.frames import SIZE_BYTES, RequestHeader, encode_response, parse_request_header
from services.gateway.wire.messages import (
    ApiVersionsResponse,
    ListTransactionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from services.gateway.wire.messages.api_versions import ApiVersion
from services.gateway.wire.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from services.gateway.wire.schema import Kind, Struct, message_of

BROKER_ID = 1
Reply = Struct | bytes | None
"""A message, a whole frame, or no answer at all."""
Script = Callable[[RequestHeader, Any], Reply | Awaitable[Reply]]


@dataclass
class ScriptedBroker:
    """Answers ApiVersions and Metadata by itself, everything else by its scripts (API key -> function)."""

    topics: Mapping[str, int]
    """Topic -> partitions."""
    scripts: dict[int, Script] = field(default_factory=dict)
    versions: dict[int, VersionRange] = field(
        default_factory=lambda: {key: handler.versions for key, handler in HANDLERS.items()}
    )
    received: list[tuple[RequestHeader, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    """Of what was received, as it came."""
    port: int = 0
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        self._server = await asyncio.start_server(accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self.connections):
            writer.transport.abort()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        self._server = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, api_key: int) -> list[Any]:
        return [message for header, message in self.received if header.api_key == api_key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
                frame = await reader.readexactly(size)
                header = parse_request_header(frame, 0, size)
                spec = message_of(header.api_key, Kind.REQUEST)
                assert spec is not None, f"api key {header.api_key} has no message"
                message = decode(spec.cls, header.api_version, frame, header.body_offset)
                self.received.append((header, message))
                self.bodies.append(frame[header.body_offset :])
                reply = await self._reply(header, message)
                if isinstance(reply, Struct):
                    reply = encode_response(reply, header.api_version, header.correlation_id)
                if reply is not None:
                    writer.write(reply)
                    await writer.drain()
        self.connections.discard(writer)
        writer.close()

    async def _reply(self, header: RequestHeader, message: Any) -> Reply:
        script = self.scripts.get(header.api_key)
        if script is not None:
            reply = script(header, message)
            return await reply if isinstance(reply, Awaitable) else reply
        if header.api_key == ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_keys=[ApiVersion(k, low, high) for k, (low, high) in self.versions.items()])
        if header.api_key == ApiKey.LIST_TRANSACTIONS:  # the gateway asks every few seconds, whatever a test is about
            return ListTransactionsResponse()
        assert header.api_key == ApiKey.METADATA, f"no script for api key {header.api_key}"
        return self.metadata(message)

    def metadata(self, message: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if message.topics is None else [t.name or "" for t in message.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(BROKER_ID, "127.0.0.1", self.port)],
            controller_id=BROKER_ID,
            topics=[self._topic(name) for name in names],
        )

    def tell_of_no_brokers(self) -> None:
        """Answer Metadata as a broker does that has stood still for longer than its session, and wakes."""

        def answer(_header: RequestHeader, request: MetadataRequest) -> MetadataResponse:
            topics = self.metadata(request).topics
            return MetadataResponse(brokers=[], cluster_id="c", controller_id=-1, topics=topics)

        self.scripts[ApiKey.METADATA] = answer

    def _topic(self, name: str) -> MetadataResponseTopic:
        count = self.topics.get(name)
        if count is None:
            return MetadataResponseTopic(3, name)
        partitions = [MetadataResponsePartition(0, n, BROKER_ID, 0, [BROKER_ID], [BROKER_ID]) for n in range(count)]
        return MetadataResponseTopic(0, name, name.encode().ljust(16), False, partitions)


@asynccontextmanager
async def broker(topics: Mapping[str, int], scripts: dict[int, Script] | None = None):  # type: ignore[no-untyped-def]
    """A running ScriptedBroker."""
    scripted = ScriptedBroker(topics, scripts or {})
    await scripted.start()
    try:
        yield scripted
    finally:
        await scripted.stop()


METADATA_ALONE: dict[int, VersionRange] = {
    ApiKey.API_VERSIONS: VersionRange(0, 3),
    ApiKey.METADATA: VersionRange(0, 12),
}
"""The `versions` of a broker that a client of librdkafka asks for Metadata, and for nothing else."""


def once_each(*replies: Reply) -> Script:
    """A script that gives these replies, one for each request."""
    left: Iterator[Reply] = iter(replies)
    return lambda header, message: next(left)
