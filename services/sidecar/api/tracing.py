"""The spans of one HTTP exchange: the request, and the records that it sends to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import Scope

from mesh.tracing.context import Trace

if TYPE_CHECKING:
    from mesh.tracing.tracer import Span, Tracer

PLACE = "mesh.trace"
"""The entry of a traced request's scope."""
SERVER_FAULT = 500
UNTRACED = "/health"
"""Probes say nothing about records."""


class ExchangeTrace:
    """The spans of a traced request."""

    __slots__ = ("_method", "_sending", "_span", "_tracer")

    def __init__(self, tracer: Tracer, scope: Scope, trace: Trace) -> None:
        self._tracer = tracer
        self._method = scope["method"]
        self._span = tracer.server(
            scope["method"],
            trace,
            {"http.request.method": scope["method"], "url.path": scope["path"], "url.scheme": scope["scheme"]},
        )
        self._sending: list[Span] = []
        scope[PLACE] = self

    @property
    def exemplar(self) -> dict[str, str]:
        """See `Span`."""
        return self._span.exemplar

    def sends(self, topic: str) -> Trace:
        """Records are sent to the topic; empty: to several topics. The context for the headers of these records."""
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        if topic:
            attributes["messaging.destination.name"] = topic
        span = self._tracer.producer(f"send {topic}".rstrip(), self._span.trace, attributes)
        self._sending.append(span)
        return span.trace

    def end(self, operation: str, status: int) -> None:
        """The answer is out. A sending counts as failed when none of its records was written."""
        for span in self._sending:
            span.end(str(status) if status >= 400 else "")
        self._span.rename(f"{self._method} {operation}")
        self._span.set({"http.response.status_code": status})
        self._span.end(str(status) if status >= SERVER_FAULT else "")


def begun(tracer: Tracer, scope: Scope) -> ExchangeTrace | None:
    """None: this request is not traced."""
    if scope["path"].startswith(UNTRACED):
        return None
    trace = trace_of(Headers(scope=scope))
    return ExchangeTrace(tracer, scope, trace) if tracer.wants(trace) else None


def trace_of(headers: Headers) -> Trace:
    """The trace context of a request, as its caller sent it."""
    return Trace.of(headers.getlist("traceparent"), headers.getlist("tracestate"))
