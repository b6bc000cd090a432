"""A client that sends what the test wants, when it wants, and reads frames back."""

import asyncio
from typing import TypeVar, cast

from services.gateway.wire.codec import decode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_response_header
from services.gateway.wire.schema import Struct, spec_of

M = TypeVar("M", bound=Struct)
ANSWER_S = 150.0


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._expected: list[tuple[int, int]] = []
        """(correlation id, version) of what was sent, in order."""

    @classmethod
    async def connect(cls, port: int) -> "RawClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    def send(self, message: Struct, version: int, *, answered: bool = True, client_id: str | None = "raw") -> None:
        self._next_id += 1
        self.send_bytes(encode_request(message, version, self._next_id, client_id))
        if answered:
            self._expected.append((self._next_id, version))

    def expect(self, version: int) -> None:
        """An answer to a request that is sent as bytes, with `last_id`."""
        self._next_id += 1
        self._expected.append((self._next_id, version))

    @property
    def last_id(self) -> int:
        return self._next_id

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def written(self) -> None:
        """What was sent has left, and may be read by itself."""
        await self._writer.drain()
        await asyncio.sleep(0)

    async def answer(self, cls: type[M]) -> M:
        """The next answer, which must be that to the oldest unanswered request."""
        correlation_id, version = self._expected.pop(0)
        frame = await self.frame()
        key = spec_of(cls).api_key
        assert key is not None
        header = parse_response_header(frame, 0, len(frame), key, version)
        assert header.correlation_id == correlation_id, "answers must come in the order of the requests"
        return decode(cls, version, frame, header.body_offset)

    async def frame(self) -> bytes:
        async with asyncio.timeout(ANSWER_S):
            size = int.from_bytes(await self._reader.readexactly(SIZE_BYTES), "big")
            return await self._reader.readexactly(size)

    async def ask(self, message: Struct, version: int, cls: type[M], *, client_id: str | None = "raw") -> M:
        self.send(message, version, client_id=client_id)
        return await self.answer(cls)

    async def closed(self) -> bytes:
        """Wait until the gateway closes; what it sent before."""
        async with asyncio.timeout(ANSWER_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    def pause(self) -> None:
        """Take nothing from the socket."""
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.ReadTransport:
        return cast(asyncio.ReadTransport, self._writer.transport)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Be gone, with whatever is on its way."""
        self._writer.transport.abort()
