"""Makes spans by OpenTelemetry's SDK, and sends them by OTLP; imported only by a process that traces.

Theory of operation
1. A trace context decides for itself: `sampled` is traced, anything else is not. A request without a context begins a
   trace by the rate. So a trace is whole or not at all, and the SDK's own sampler takes every span that is made here.
2. An ended span waits in a bounded queue for the SDK's thread, which sends batches. A span that finds no room, or a
   batch that the receiver does not take within the time-out, is lost and counted. Nobody waits for either.
3. A gateway has a span for any of a million requests a minute: it leaves a few facts behind a request (`ended`).
4. The state of the receiver is logged when it changes, never for each batch.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mesh import VERSION
from mesh.tracing.context import Trace
from mesh.tracing.ended import LONGEST_TEXT, Attributes, EndedSpan, Shape, encoder
from mesh.tracing.exporters import exporter_of
from mesh.tracing.settings import TracingSettings

SCOPE = "kafka-mesh"
MOST_IN_BATCH = 512
SEND_EVERY_MS = 5000
"""The SDK's own interval: sending more often costs CPU, and shows spans no better."""
MOST_LINKS = 64
"""Other traces that one span names."""
END_S = 2.0
"""Time for the spans that still wait at the end of the process."""

Count = Callable[[str, int], None]
"""Counts spans by outcome: sent, failed, lost."""

log = structlog.get_logger(__name__)
_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has begun."""

    _span: api.Span

    @property
    def trace(self) -> Trace:
        """The context for those who come after this span."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, api.set_span_in_context(self._span, Context()))
        return Trace(carrier.get("traceparent", ""), carrier.get("tracestate", ""))

    @property
    def exemplar(self) -> dict[str, str]:
        """The labels by which an observation of a histogram names this span."""
        context = self._span.get_span_context()
        return {"trace_id": api.format_trace_id(context.trace_id), "span_id": api.format_span_id(context.span_id)}

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def end(self, failure: str = "") -> None:
        """`failure`: the error type, if the work of the span has failed."""
        if failure:
            self._span.set_attribute("error.type", failure)
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()


class Tracer:
    """The tracer of one process. Methods may be called from any thread, and never wait."""

    def __init__(self, settings: TracingSettings, service: str, instance: str, count: Count) -> None:
        """UnresolvedReferenceError, OSError: a header or an authority of the settings can't be read."""
        self.rate = settings.tracing_rate
        self._count = count
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # we log the state of the receiver ourselves
        resource = {
            "service.name": f"kafka-mesh-{service}",
            "service.instance.id": instance,
            "service.version": VERSION,
        }
        self._provider = TracerProvider(
            resource=Resource(resource),
            sampler=ALWAYS_ON,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_links=MOST_LINKS, max_span_attribute_length=LONGEST_TEXT),
        )
        encode = encoder(resource, SCOPE, VERSION)
        self._queue = _Bounded(exporter_of(settings, encode), settings, count)
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer(SCOPE, VERSION)

    def begins(self) -> bool:
        """Whether a request without a trace context begins a trace."""
        return self.rate > 0.0 and random.random() < self.rate

    def wants(self, trace: Trace) -> bool:
        """Whether a request with this trace context is traced."""
        return trace.is_sampled if trace else self.begins()

    def shape(self, name: str, attributes: Attributes, measure: str) -> Shape:
        """The common part of the spans of one kind of request, for `ended`."""
        return Shape(name, attributes, measure)

    def ended(
        self, shape: Shape, parent: Trace, start_ns: int, end_ns: int, measured: float, failure: str
    ) -> EndedSpan:
        """A request of a client has ended; `failure` is its error type, `measured` what the shape says."""
        span = EndedSpan.of(shape, parent, start_ns, end_ns, measured, failure)
        self._queue.on_end(span)
        return span

    def server(self, name: str, parent: Trace, attributes: Attributes) -> Span:
        """A request of a client begins."""
        return self._begun(SpanKind.SERVER, name, parent, attributes, ())

    def client(self, name: str, parent: Trace, attributes: Attributes) -> Span:
        """A call to another service begins."""
        return self._begun(SpanKind.CLIENT, name, parent, attributes, ())

    def producer(self, name: str, parent: Trace, attributes: Attributes) -> Span:
        """Records are on their way to Kafka. Their headers get the context of this span."""
        return self._begun(SpanKind.PRODUCER, name, parent, attributes, ())

    def consumer(self, name: str, parents: Sequence[Trace], attributes: Attributes) -> Span:
        """Records are processed. The span is a child of the first context, and names the other ones as links."""
        return self._begun(SpanKind.CONSUMER, name, parents[0], attributes, parents[1:MOST_LINKS])

    def lose(self) -> None:
        """Counts a span that was not made, for lack of room at the caller's."""
        self._count("lost", 1)

    def stop(self) -> None:
        """Blocks until what waits is sent, within a bound."""
        ending = threading.Thread(target=self._provider.shutdown, name="end of traces", daemon=True)
        ending.start()
        ending.join(END_S)
        self._queue.left_behind()

    def _begun(self, kind: SpanKind, name: str, parent: Trace, attributes: Attributes, others: Sequence[Trace]) -> Span:
        links = [Link(api.get_current_span(_context(each)).get_span_context()) for each in others]
        return Span(self._tracer.start_span(name, _context(parent), kind, attributes, links))


def _context(trace: Trace) -> Context:
    """As the SDK has it: whoever sent it is another process."""
    return _propagator.extract(trace.headers, Context()) if trace else Context()


class _Bounded(SpanProcessor):
    """The queue of ended spans in front of the SDK's, which would drop older spans without a count."""

    def __init__(self, exporter: SpanExporter, settings: TracingSettings, count: Count) -> None:
        self._most = settings.tracing_max_spans
        self._count = count
        self._lock = threading.Lock()
        self._waiting = 0
        self._counted = _Counted(exporter, settings.tracing_endpoint, self._taken)
        self._batches = BatchSpanProcessor(
            self._counted,
            max_queue_size=2 * self._most,  # ours bounds first
            max_export_batch_size=min(MOST_IN_BATCH, self._most),
            schedule_delay_millis=SEND_EVERY_MS,
        )

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        """Nothing is known of its end yet."""

    def on_end(self, span: ReadableSpan | EndedSpan) -> None:
        with self._lock:
            is_taken = self._waiting < self._most
            self._waiting += is_taken
        if is_taken:
            self._batches.on_end(span)  # type: ignore[arg-type]  # it asks a span for its context alone
        else:
            self._count("lost", 1)

    def shutdown(self) -> None:
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)

    def left_behind(self) -> None:
        """Counts what could not be sent before the end."""
        with self._lock:
            left, self._waiting = self._waiting, 0
        if left:
            self._count("lost", left)

    def _taken(self, spans: int, *, sent: bool) -> None:
        with self._lock:
            self._waiting -= min(spans, self._waiting)
        self._count("sent" if sent else "failed", spans)


class _Counted(SpanExporter):
    """Tells what became of batches, and logs when the receiver comes or goes."""

    def __init__(self, exporter: SpanExporter, endpoint: str, taken: Any) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._taken = taken
        self._is_away = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        began = time.monotonic()
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # whatever a library raises, the next batch is tried
            log.debug("spans were not sent", reason=type(error).__name__)
            result = SpanExportResult.FAILURE
        is_sent = result is SpanExportResult.SUCCESS
        self._taken(len(spans), sent=is_sent)
        if self._is_away is is_sent:
            self._is_away = not is_sent
            if is_sent:
                log.info("spans are sent again", endpoint=self._endpoint)
            else:
                log.warning(
                    "spans can't be sent, and are lost until the receiver takes them",
                    endpoint=self._endpoint,
                    seconds=round(time.monotonic() - began, 1),
                )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
