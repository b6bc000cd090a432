"""Records as they come, in one endless answer: server-sent events, or a line of JSON for each record.

How a stream goes
1. The sidecar writes a batch when its records are there, and asks for the next batch when the caller has taken this
   one. A slow caller holds up only its own stream. If a caller takes nothing for `max_call_ms` (see `limits`), the
   sidecar ends the stream.
2. A quiet stream shows a sign of life: a comment, or an empty line.
3. The last event (`error`) or the last line (`{"error": ...}`) gives the reason for the end, in the shape of every
   error. If the sidecar stops, the answer ends in order; the caller comes back with the id of the last event.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.sidecar.api.hanging_up import Caller, caller
from services.sidecar.api.status import status_response
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.consuming.instance import ConsumerInstance
from services.sidecar.consuming.instance_values import HeaderShape
from services.sidecar.consuming.record_stream import RecordStream
from services.sidecar.consuming.record_text import record_lines
from services.sidecar.faults import Fault
from services.sidecar.formats import cloud_event
from services.sidecar.records import Consumed
from services.sidecar.telemetry.traffic import SidecarTraffic

AUDIT_ROOM_SECONDS = 10.0
"""How long a stream that waits for room in the audit trail is quiet before it shows that it lives."""
RETRY_MS = 1_000
"""When a client of server-sent events comes back after its stream ended."""

log = structlog.get_logger(__name__)


class Framing(Protocol):
    """The form in which a stream shows records, signs of life and errors."""

    content_type: str
    opening: bytes
    sign_of_life: bytes

    def records(self, records: list[Consumed], stream: RecordStream, headers: HeaderShape) -> Iterator[bytes]: ...

    def error(self, fault: Fault) -> bytes: ...


class _ServerSentEvents:
    content_type = "text/event-stream; charset=utf-8"
    opening = b"retry: %d\n\n" % RETRY_MS
    sign_of_life = b": still here\n\n"

    def records(self, records: list[Consumed], stream: RecordStream, headers: HeaderShape) -> Iterator[bytes]:
        for record, line in zip(records, record_lines(records, headers), strict=True):
            yield b"id: %b\ndata: %b\n\n" % (stream.cursor_after(record).encode("ascii"), line)

    def error(self, fault: Fault) -> bytes:
        return b"event: error\ndata: %b\n\n" % _text(fault)


class _Lines:
    content_type = "application/x-ndjson"
    opening = b""
    sign_of_life = b"\n"

    def records(self, records: list[Consumed], stream: RecordStream, headers: HeaderShape) -> Iterator[bytes]:
        for line in record_lines(records, headers):
            yield line + b"\n"

    def error(self, fault: Fault) -> bytes:
        return b'{"error":%b}\n' % _text(fault)


def _text(fault: Fault) -> bytes:
    return bytes(status_response(fault).body)


class AnswerKind(Enum):
    """The form of the answer that a reader requests by the media type in `Accept`."""

    ARRAY = "application/json"
    EVENTS = "text/event-stream"
    LINES = "application/x-ndjson"
    CLOUD_EVENTS = cloud_event.JSON_BATCH

    @classmethod
    def of(cls, request: Request) -> "AnswerKind":
        """The first kind that the request accepts; the array if the request states none."""
        for accepted in request.headers.get("accept", "").split(","):
            media_type = accepted.partition(";")[0].strip().lower()
            for kind in cls:
                if kind.value == media_type:
                    return kind
        return cls.ARRAY

    @property
    def is_stream(self) -> bool:
        return self in (AnswerKind.EVENTS, AnswerKind.LINES)

    @property
    def framing(self) -> Framing:
        return _ServerSentEvents() if self is AnswerKind.EVENTS else _Lines()


class RecordStreamResponse(Response):
    """The answer. It ends the stream, which `context` holds open."""

    def __init__(
        self,
        instance: ConsumerInstance,
        stream: RecordStream,
        context: contextlib.AsyncExitStack,
        *,
        framing: Framing,
        headers: HeaderShape,
        stall_seconds: float,
        check: Callable[[list[Consumed]], None],
        audit: ActiveAudit,
        traffic: SidecarTraffic,
    ) -> None:
        """`check` raises a Fault if the reader may not have these records, or no further records."""
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.headers["content-type"] = framing.content_type
        self._instance = instance
        self._stream = stream
        self._context = context
        self._framing = framing
        self._shape = headers
        self._stall_seconds = stall_seconds
        self._check = check
        self._audit = audit
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._context, caller(receive) as reader:
            try:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._put(send, self._framing.opening)
                await self._follow(reader, send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            except TimeoutError:
                log.warning(
                    "the reader of a stream takes nothing; its stream ends",
                    instance=self._instance.id.instance,
                    seconds=self._stall_seconds,
                )

    async def _follow(self, reader: Caller, send: Send) -> None:
        while True:
            try:
                batch = await reader.waits_for(self._next())
                self._check(batch or [])
            except Fault as fault:
                return await self._put(send, self._framing.error(fault))
            if batch is None:  # the reader is gone, or the stream is over
                return None
            frames = b"".join(self._framing.records(batch, self._stream, self._shape))
            await self._put(send, frames or self._framing.sign_of_life)
            if reader.is_gone:
                if batch and self._stream.unacknowledged is None:
                    await self._instance.give_back(batch)
                return None
            self._audit.given(batch)
            if batch:
                self._traffic.consumed(batch, None)  # a stream waits by design: its batches have no time of their own

    async def _next(self) -> list[Consumed] | None:
        """Nothing while there is no room to audit it."""
        return await self._stream.next() if await self._audit.room(AUDIT_ROOM_SECONDS) else []

    async def _put(self, send: Send, frames: bytes) -> None:
        async with asyncio.timeout(self._stall_seconds):
            await send({"type": "http.response.body", "body": frames, "more_body": True})
