"""Bounds on a connection before its first request, and on the number of connections.

The class is mixed into either protocol of uvicorn. Uvicorn bounds neither heads that never end nor callers that connect
and send nothing. A connection over the bound gets an error as the answer to its first request. If there are twice as
many connections, the sidecar closes new ones without an answer.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from services.sidecar.api.status import refusal
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.telemetry import metrics


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Connections, seconds and bytes."""

    connections: int
    head_seconds: float
    head_bytes: int


def bounded_protocol(bounds: ConnectionBounds) -> type[asyncio.Protocol]:
    """For uvicorn's `http`."""
    return type("BoundedProtocol", (_Bounded, AutoHTTPProtocol), {"bounds": bounds})


if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = asyncio.Protocol


class _Bounded(_Protocol):
    bounds: ClassVar[ConnectionBounds]
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        metrics.connections.inc()
        if len(self.connections) > 2 * self.bounds.connections:
            metrics.refused_calls.labels("too many connections").inc()
            transport.abort()
            return
        if len(self.connections) > self.bounds.connections:
            self.app = _turned_away(self.bounds.connections)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        metrics.connections.dec()
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        between = getattr(before, "response_complete", True)  # or none has been read yet
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif between and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.head_bytes:
                text = f"The request's head is larger than {self.bounds.head_bytes} bytes (max_header_bytes)"
                self._end(Fault(FaultKind.REQUEST_HEADERS_TOO_LARGE, text))
            elif self._head_timer is None:
                self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.bounds.head_seconds, self._head_is_late)

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        text = f"The request's head did not come within {self.bounds.head_seconds:g} s (max_head_ms)"
        self._end(Fault(FaultKind.REQUEST_TOO_SLOW, text))

    def _end(self, fault: Fault) -> None:
        """Answers with the fault and closes the connection.

        No other answer is open, because no request has been read.
        """
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(_on_the_wire(refusal(fault)))
            self.transport.close()


def _turned_away(most: int) -> Any:
    """Answers each request of a connection that is one too many."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        text = f"More than {most} connections are open (max_connections); use fewer, or try again in a moment"
        await refusal(Fault(FaultKind.TOO_MANY_CONNECTIONS, text))(scope, receive, send)

    return app


def _on_the_wire(response: Response) -> bytes:
    head = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
