"""`POST /producers/{topic}` with `application/x-ndjson`: a record on each line, for as long as the caller likes.

Results come back line by line, in order, while the caller still sends. The first line may set how keys and values are
written (`{"keyFormat": ..., "valueSchemaId": ...}`: the members of a produce request without `records`); it has no
result. A line that is no record gets an error with its number and is not written; the next line goes on.

Reading and answering run side by side, with a bounded number of batches between them. If a caller does not take its
results, or sends faster than Kafka takes records, the sidecar stops reading lines: each batch waits for admission. A
caller that leaves ends the stream; records that Kafka's client has by then are written.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from services.sidecar.api.authentication import caller_of
from services.sidecar.api.contract import Operation, operation_of, parameters
from services.sidecar.api.lines import Lines
from services.sidecar.api.produce_answers import outcome, produce_answer
from services.sidecar.api.produce_requests import HeaderPolicy, produce_request, record_request
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.formats import json_text
from services.sidecar.producing.headers import HeaderWriter
from services.sidecar.producing.produce_request import RecordRequest
from services.sidecar.producing.producer import NotAccepted, RecordProducer
from services.sidecar.producing.serializing import BatchEncoder, Serialized, Serializer
from services.sidecar.records import DeliveryError, Outgoing, WriteOutcome
from services.sidecar.telemetry import metrics

NDJSON = "application/x-ndjson"
MAX_WAITING_BATCHES = 16
"""The most batches of one stream between reading and answering. A batch is one read of the body, 64 KiB at most."""
BAD_LINE = 40002
"""`errorCode` of a line that is no record; the original has the number, and never used it."""
_FORMATS = ("keyFormat", "valueFormat")
_NOTHING = object()

Row = dict[str, object]
"""The result of one line."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds, in the unit that each name ends in."""

    max_streams: int
    max_line_bytes: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines that came together. A line's result is a row that is known already, or the next outcome from Kafka."""

    numbers: Sequence[int]
    rows: Sequence[Row | None]
    acknowledged: "asyncio.Future[list[WriteOutcome]] | None"


def sends_lines(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON


class ProduceStreams:
    """All requests that send line by line."""

    def __init__(
        self, producer: RecordProducer, serializer: Serializer, headers: HeaderPolicy, limits: StreamLimits
    ) -> None:
        self._producer = producer
        self._serializer = serializer
        self._headers = headers
        self._limits = limits
        self._open: set[_Stream] = set()

    async def open(self, request: Request) -> Response:
        """The answer, which reads the request while it is being sent."""
        if len(self._open) >= self._limits.max_streams:
            raise Fault(
                FaultKind.TOO_MANY_PRODUCE_STREAMS,
                f"{len(self._open)} requests send line by line already (max_produce_streams); try again later",
            )
        try:
            await self._producer.check(request.path_params["topic"])
        except NotAccepted as refused:
            return produce_answer([refused.why], Serialized([]))
        headers = HeaderWriter(self._headers.of(request))
        stream = _Stream(request, self._producer, self._serializer, headers, self._limits)
        return _StreamResponse(stream, self._open)

    def interrupt(self) -> None:
        """Called when the sidecar stops: streams take no more lines, answer their open lines, and end."""
        for stream in self._open:
            stream.interrupt()


class _StreamResponse(Response):
    """Runs the stream."""

    def __init__(self, stream: "_Stream", streams: "set[_Stream]") -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self._stream = stream
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.add(self._stream)
        metrics.produce_streams.set(len(self._streams))
        reading = asyncio.create_task(self._stream.read(), name="produce-stream")
        try:
            await self._stream.begun  # until here a fault is answered as any other
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for rows in self._stream.rows():
                await send({"type": "http.response.body", "body": rows, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            self._streams.discard(self._stream)
            metrics.produce_streams.set(len(self._streams))


class _Stream:
    """One request that sends records line by line."""

    def __init__(
        self,
        request: Request,
        producer: RecordProducer,
        serializer: Serializer,
        headers: HeaderWriter,
        limits: StreamLimits,
    ) -> None:
        self._topic: str = request.path_params["topic"]
        self._caller = caller_of(request)
        self._operation: Operation = operation_of(request)
        self._chunks = request.stream()
        self._formats = {name: value for name, value in parameters(request).items() if name in _FORMATS}
        self._producer = producer
        self._serializer = serializer
        self._headers = headers
        self._limits = limits
        self._lines = Lines(limits.max_line_bytes)
        self._line_number = 0
        self._encoder: BatchEncoder | None = None
        self._batches: asyncio.Queue[_Batch | None] = asyncio.Queue(MAX_WAITING_BATCHES)
        self._interrupted = asyncio.Event()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when it is known how records are written; a Fault when that cannot be."""

    def interrupt(self) -> None:
        self._interrupted.set()

    async def rows(self) -> AsyncIterator[bytes]:
        """Results, batch by batch, while the request is being read."""
        while (batch := await self._batches.get()) is not None:
            outcomes = iter(() if batch.acknowledged is None else await asyncio.shield(batch.acknowledged))
            yield b"".join(
                orjson.dumps(row or {"line": number, **outcome(next(outcomes))}, option=orjson.OPT_APPEND_NEWLINE)
                for number, row in zip(batch.numbers, batch.rows, strict=True)
            )

    async def read(self) -> None:
        """Takes lines until there are no more."""
        why = ""
        try:
            async for lines in self._arriving():
                self._caller.check_goes_on()
                await self._take(lines)
        except Fault as fault:
            if not self.begun.done():  # of the head
                self.begun.set_exception(fault)
                return
            why = fault.description
        except ClientDisconnect:
            pass
        except TimeoutError:
            why = f"nothing came for {self._limits.idle_seconds:g} s (stream_idle_timeout_ms)"
        except _Interrupted:
            why = "the sidecar is stopping"
        except Exception as error:  # a caller must not wait for a reader that is gone
            log.exception("a stream of records ends on a surprise", topic=self._topic)
            if not self.begun.done():
                self.begun.set_exception(error)
                return
            why = "an unexpected failure, which the sidecar's log tells"
        if not self.begun.done():
            self.begun.set_result(None)
        if why:
            number = self._line_number + 1
            ended: Row = {
                "line": number,
                "errorCode": DeliveryError.RETRIABLE.value,
                "error": f"{why}; the stream ends here, send what begins with line {number} again",
            }
            await self._batches.put(_Batch([number], [ended], None))
        await self._batches.put(None)

    async def _arriving(self) -> AsyncIterator[list[bytes | None]]:
        """Lines that came together, for as long as there are any."""
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            while True:
                coming = asyncio.ensure_future(_next(self._chunks))
                try:
                    await asyncio.wait(
                        {coming, interrupted}, timeout=self._limits.idle_seconds, return_when=asyncio.FIRST_COMPLETED
                    )
                    if not coming.done():
                        raise _Interrupted if interrupted.done() else TimeoutError
                    chunk = coming.result()
                finally:
                    coming.cancel()
                if chunk is None:
                    break
                yield list(self._lines.feed(chunk))
            yield list(self._lines.rest())
        finally:
            interrupted.cancel()

    async def _take(self, lines: Sequence[bytes | None]) -> None:
        """Sends the records of these lines, and queues their future outcomes."""
        numbers: list[int] = []
        rows: list[Row | None] = []
        records: list[Outgoing] = []
        for line in lines:
            self._line_number += 1
            if line is not None and not line.strip():
                continue
            given: Any = _NOTHING
            try:
                given = self._parsed(line)
                fault = None
            except Fault as error:
                fault = error
            encoder = self._encoder
            if encoder is None:
                is_head = self._is_head(given)
                encoder = self._encoder = await self._begin(given if is_head else {})
                if is_head:
                    continue
            if fault is None:
                try:
                    records += encoder.encode([self._record(given)], self._headers)
                except Fault as error:
                    fault = error
            numbers.append(self._line_number)
            rows.append(None if fault is None else self._bad(fault))
        if numbers:
            await self._batches.put(await self._sent(numbers, rows, records))

    async def _sent(self, numbers: list[int], rows: list[Row | None], records: list[Outgoing]) -> _Batch:
        if not records:
            return _Batch(numbers, rows, None)
        try:
            return _Batch(numbers, rows, await self._producer.accept(self._topic, records))
        except NotAccepted as refused:
            shown = outcome(refused.why)
            failed = [row or {"line": number, **shown} for number, row in zip(numbers, rows, strict=True)]
            return _Batch(numbers, failed, None)

    async def _begin(self, head: dict[str, Any]) -> BatchEncoder:
        """Fault, for the whole request, when this is no way to write records."""
        members = self._operation.body({**self._formats, **head, "records": []})
        request = produce_request(self._topic, members)
        may_register = self._caller.check_registers
        encoder = await self._serializer.encoder(self._topic, request.key, request.value, may_register=may_register)
        self.begun.set_result(None)
        return encoder

    def _is_head(self, given: Any) -> bool:
        """Whether a first line sets how records are written: it is an object with none of a record's members."""
        known = self._operation.items[NDJSON].schema["properties"]
        return isinstance(given, dict) and bool(given) and given.keys().isdisjoint(known)

    def _parsed(self, line: bytes | None) -> Any:
        if line is None:
            raise invalid("", f"the line is longer than {self._limits.max_line_bytes} bytes (max_line_bytes)")
        try:
            return json_text.loads(line)
        except json_text.JsonError as error:
            raise invalid("", f"not JSON: {error}") from None

    def _record(self, given: Any) -> RecordRequest:
        return record_request(self._operation.item(given, NDJSON))

    def _bad(self, fault: Fault) -> Row:
        return {
            "line": self._line_number,
            "errorCode": BAD_LINE,
            "error": f"line {self._line_number} is not written, the stream goes on with the next: {fault.description}",
        }


class _Interrupted(Exception):  # noqa: N818  # no error
    """The sidecar stops."""


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
