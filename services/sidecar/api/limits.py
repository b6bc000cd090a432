"""What one request may take: how large its head is, how long its body and its answer take, how many there are at once.

Producing, reading and all other calls are counted apart, so that reads, which wait for records, never keep producing
waiting. Health is never turned away. Streams are bounded where they are written and read (by silence, not by length).
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import structlog
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.sidecar import metrics
from services.sidecar.faults import Fault, FaultKind

LINES = "application/x-ndjson"
"""A body of this type comes line by line, for as long as the caller likes."""

log = structlog.get_logger(__name__)


class Kind(Enum):
    """What is counted together; the value stands in metrics and sentences."""

    PRODUCE = "produce"
    READ = "read"
    OTHER = "other"

    @classmethod
    def of(cls, operation: str) -> "Kind":
        return _KINDS.get(operation, cls.OTHER)


_KINDS = {"produce": Kind.PRODUCE, "produce_in_transaction": Kind.PRODUCE, "read_records": Kind.READ}


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Seconds, bytes, and requests at once."""

    body_seconds: float
    call_seconds: float
    head_bytes: int
    open_requests: dict[Kind, int]


class Limits:
    """The bounds, and how many requests of each kind are open."""

    def __init__(self, bounds: RequestBounds) -> None:
        self.bounds = bounds
        self._open = dict.fromkeys(Kind, 0)

    def put_around(self, routes: Iterable[BaseRoute]) -> None:
        for route in routes:
            if isinstance(route, Route | Mount) and not f"{route.path}/".startswith("/health/"):
                route.app = _Limited(route.app, self, Kind.of(route.name or ""))

    def enter(self, kind: Kind) -> None:
        """Fault when there are too many already."""
        bound = self.bounds.open_requests[kind]
        if self._open[kind] >= bound:
            text = f"{bound} {kind.value} requests are being served (max_open_{_SETTING[kind]}); try again in a moment"
            raise Fault(FaultKind.TOO_MANY_OPEN_REQUESTS, text)
        self._open[kind] += 1
        metrics.open_calls.labels(kind.value).set(self._open[kind])

    def leave(self, kind: Kind) -> None:
        self._open[kind] -= 1
        metrics.open_calls.labels(kind.value).set(self._open[kind])


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
        self._limits.enter(self._kind)
        answer = _Answer(send, bounds.call_seconds)
        try:
            async with asyncio.timeout(bounds.call_seconds) as answer.deadline:
                await self._app(scope, _body(scope, receive, bounds.body_seconds), answer.send)
        except TimeoutError:
            if not answer.deadline.expired():
                raise
            if answer.has_begun:
                log.warning(
                    "a caller takes no answer; the exchange ends", path=scope["path"], seconds=bounds.call_seconds
                )
                return
            text = f"No answer within {bounds.call_seconds:g} s (max_call_ms); what was asked for may still be done"
            raise Fault(FaultKind.REQUEST_TOOK_TOO_LONG, text) from None
        finally:
            self._limits.leave(self._kind)


def _check_head(scope: Scope, most: int) -> None:
    size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["query_string"])
    if size > most:
        text = f"The headers and the query have {size} bytes, more than {most} (max_header_bytes)"
        raise Fault(FaultKind.REQUEST_HEADERS_TOO_LARGE, text)


class _Answer:
    """Whoever is sent an answer has to take it: what does not go away in time ends the exchange. A stream that has
    nothing to say does not.
    """

    deadline: asyncio.Timeout

    def __init__(self, send: Send, seconds: float) -> None:
        self.has_begun = False
        self._send = send
        self._seconds = seconds

    async def send(self, message: Message) -> None:
        self._until(asyncio.get_running_loop().time() + self._seconds)
        self.has_begun = True
        await self._send(message)
        self._until(None)

    def _until(self, when: float | None) -> None:
        if not self.deadline.expired():
            self.deadline.reschedule(when)


def _body(scope: Scope, receive: Receive, seconds: float) -> Receive:
    """The body, whole within its time; Fault otherwise. After it, whatever comes, whenever it comes."""
    if Headers(scope=scope).get("content-type", "").startswith(LINES):
        return receive
    loop = asyncio.get_running_loop()
    ends_at: float | None = loop.time() + seconds

    async def bounded() -> Message:
        nonlocal ends_at
        if ends_at is None:
            return await receive()
        try:
            async with asyncio.timeout_at(ends_at):
                message = await receive()
        except TimeoutError:
            text = f"The body did not come within {seconds:g} s (max_body_ms)"
            raise Fault(FaultKind.REQUEST_TOO_SLOW, text) from None
        if message["type"] != "http.request" or not message.get("more_body", False):
            ends_at = None
        return message

    return bounded
