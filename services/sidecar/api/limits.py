"""The bounds of requests: the size of the head, the time for body and answer, the number of requests at once.

Producing, reading and all other calls have separate counts. So reads, which wait for records, never make producing
wait. Health is never turned away. Streams are bounded where they are written and read (by silence, not by length).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import structlog
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.sidecar.faults import Fault, FaultKind
from services.sidecar.telemetry import metrics

LINES = "application/x-ndjson"
"""A body of this type comes line by line, for as long as the caller likes."""
MOVE_SECONDS = 1.0
"""How often a stream moves its deadline."""

log = structlog.get_logger(__name__)


class Kind(Enum):
    """Requests of one kind share a count. The value appears in metrics and in error texts."""

    PRODUCE = "produce"
    READ = "read"
    OTHER = "other"

    @classmethod
    def of(cls, operation: str) -> "Kind":
        return _KINDS.get(operation, cls.OTHER)


_KINDS = {
    "produce": Kind.PRODUCE,
    "produce_to_partition": Kind.PRODUCE,
    "produce_in_transaction": Kind.PRODUCE,
    "read_records": Kind.READ,
}


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Seconds, bytes, and requests at once."""

    body_seconds: float
    call_seconds: float
    head_bytes: int
    body_bytes: int
    """The bound of one body."""
    open_body_bytes: int
    """The bound of all bodies that are being served. A body that is alone may be larger."""
    open_requests: dict[Kind, int]


class Limits:
    """The bounds, and how many requests of each kind are open."""

    def __init__(self, bounds: RequestBounds) -> None:
        self.bounds = bounds
        self._open = dict.fromkeys(Kind, 0)
        self._open_body_bytes = 0

    def put_around(self, routes: Iterable[BaseRoute]) -> None:
        for route in routes:
            if isinstance(route, Route | Mount) and not f"{route.path}/".startswith("/health/"):
                route.app = _Limited(route.app, self, Kind.of(route.name or ""))

    def enter(self, kind: Kind, body_bytes: int) -> None:
        """Fault if too many requests of this kind are open, or if the open bodies are too large together."""
        bound = self.bounds.open_requests[kind]
        if self._open[kind] >= bound:
            text = f"{bound} {kind.value} requests are being served (max_open_{_SETTING[kind]}); try again in a moment"
            raise Fault(FaultKind.TOO_MANY_OPEN_REQUESTS, text)
        most = self.bounds.open_body_bytes
        if self._open_body_bytes and self._open_body_bytes + body_bytes > most:
            text = (
                f"Bodies of {self._open_body_bytes} bytes are being served, and this one has {body_bytes}: more than "
                f"{most} together (max_open_body_bytes); try again in a moment"
            )
            raise Fault(FaultKind.TOO_MANY_OPEN_REQUESTS, text)
        self._open_body_bytes += body_bytes
        metrics.open_body_bytes.set(self._open_body_bytes)
        self._open[kind] += 1
        _GAUGES[kind].inc()

    def leave(self, kind: Kind, body_bytes: int) -> None:
        self._open_body_bytes -= body_bytes
        metrics.open_body_bytes.set(self._open_body_bytes)
        self._open[kind] -= 1
        _GAUGES[kind].dec()


_GAUGES = {kind: metrics.open_calls.labels(kind.value) for kind in Kind}
_SETTING = {Kind.PRODUCE: "produces", Kind.READ: "reads", Kind.OTHER: "calls"}


class _Limited:
    """ASGI middleware around one route."""

    def __init__(self, app: ASGIApp, limits: Limits, kind: Kind) -> None:
        self._app = app
        self._limits = limits
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bounds = self._limits.bounds
        _check_head(scope, bounds.head_bytes)
        body = _Body.of(Headers(scope=scope))
        body_bytes = body.most_bytes(bounds.body_bytes)
        self._limits.enter(self._kind, body_bytes)
        watched = _Watched(body, receive, send, bounds)
        try:
            async with watched.deadline:
                await self._app(scope, watched.receive, watched.send)
        except TimeoutError:
            if not watched.deadline.expired():
                raise
            if watched.has_begun:
                log.warning(
                    "a caller takes nothing; the exchange ends", path=scope["path"], seconds=bounds.call_seconds
                )
                return
            raise watched.fault() from None
        finally:
            self._limits.leave(self._kind, body_bytes)


def _check_head(scope: Scope, most: int) -> None:
    size = len(scope["query_string"]) + sum([len(name) + len(value) for name, value in scope["headers"]])
    if size > most:
        text = f"The headers and the query have {size} bytes, more than {most} (max_header_bytes)"
        raise Fault(FaultKind.REQUEST_HEADERS_TOO_LARGE, text)


class _Watched:
    """One exchange, with one deadline that moves with its phases.

    First the whole body has to come, then the answer. Once the answer has begun, the caller has to take each message. A
    stream counts as alive while either side sends.
    """

    def __init__(self, body: "_Body", receive: Receive, send: Send, bounds: RequestBounds) -> None:
        self.has_begun = False
        self._receive = receive
        self._send = send
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._is_stream = body.is_stream
        self._awaits_body = body.comes_whole
        self._began = self._moved = self._loop.time()
        seconds = min(bounds.body_seconds, bounds.call_seconds) if self._awaits_body else bounds.call_seconds
        self.deadline = asyncio.timeout_at(self._began + seconds)

    async def receive(self) -> Message:
        message = await self._receive()
        if self._is_stream:
            self._move(self._loop.time() + self._bounds.call_seconds)
        if self._awaits_body and not (message["type"] == "http.request" and message.get("more_body", False)):
            self._awaits_body = False
            self._move(self._began + self._bounds.call_seconds)
        return message

    async def send(self, message: Message) -> None:
        self.has_begun = True
        now = self._loop.time()
        if self._awaits_body or now - self._moved > MOVE_SECONDS:
            self._awaits_body = False  # an answer before the end of the body is a stream's, or a refusal
            self._moved = now
            self._move(now + self._bounds.call_seconds)
        await self._send(message)

    def fault(self) -> Fault:
        """The fault for the caller if the answer has not begun."""
        if self._awaits_body:
            text = f"The body did not come within {self._bounds.body_seconds:g} s (max_body_ms)"
            return Fault(FaultKind.REQUEST_TOO_SLOW, text)
        text = f"No answer within {self._bounds.call_seconds:g} s (max_call_ms); what was asked for may still be done"
        return Fault(FaultKind.REQUEST_TOOK_TOO_LONG, text)

    def _move(self, when: float) -> None:
        if not self.deadline.expired():
            self.deadline.reschedule(when)


@dataclass(frozen=True, slots=True)
class _Body:
    """The head of a request says this about the body."""

    is_stream: bool
    """The body comes line by line. Streams have their own bounds."""
    length: int | None
    """Bytes; None if the head does not say."""

    @classmethod
    def of(cls, headers: Headers) -> "_Body":
        is_stream = headers.get("content-type", "").startswith(LINES)
        length = headers.get("content-length", "0")
        is_known = length.isdecimal() and "transfer-encoding" not in headers
        return cls(is_stream, int(length) if is_known else None)

    @property
    def comes_whole(self) -> bool:
        """There is a body, and the whole body has to come before the answer."""
        return not self.is_stream and self.length != 0

    def most_bytes(self, bound: int) -> int:
        """The bytes to reserve before the body is read. The reader refuses a longer body."""
        if self.is_stream:
            return 0
        return bound if self.length is None else min(self.length, bound)
