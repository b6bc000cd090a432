"""Spans of work that has ended: a few facts when it ends, all else in the thread that sends them.

Theory of operation
1. A span of the SDK takes some 40 us, most of them for attributes that thousands of spans share. A `Shape` holds what
   they share in the form of OTLP, once.
2. The caller leaves these facts when its work ends. The thread that sends makes a span of them: a copy of the shape,
   with ids, times and the one measure that differs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import ClassVar

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, SpanFlags, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from mesh.tracing.context import Trace

LONGEST_TEXT = 1024
"""Characters of an attribute."""
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]

_BEGINS = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_CONTINUES = _BEGINS | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class Shape:
    """The common part of the spans of one kind of request."""

    __slots__ = ("measure", "pattern")

    def __init__(self, name: str, attributes: Attributes, measure: str) -> None:
        """`measure`: the attribute that each span has for itself."""
        self.measure = measure
        self.pattern = OtlpSpan(name=name, kind=OtlpSpan.SPAN_KIND_SERVER, attributes=_encoded(attributes))


@dataclass(slots=True, eq=False)
class EndedSpan:
    """The facts of one span."""

    context: ClassVar = SpanContext(0, 0, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    """The SDK's queue asks each span whether it is sampled."""

    shape: Shape
    trace_id: bytes
    span_id: bytes
    parent: Trace
    start_ns: int
    end_ns: int
    measured: float
    failure: str

    @classmethod
    def of(cls, shape: Shape, parent: Trace, start_ns: int, end_ns: int, measured: float, failure: str) -> "EndedSpan":
        trace_id = (
            bytes.fromhex(parent.trace_id) if parent else getrandbits(8 * TRACE_ID_BYTES).to_bytes(TRACE_ID_BYTES)
        )
        span_id = getrandbits(8 * SPAN_ID_BYTES).to_bytes(SPAN_ID_BYTES)
        return cls(shape, trace_id, span_id, parent, start_ns, end_ns, measured, failure)

    @property
    def exemplar(self) -> dict[str, str]:
        """The labels by which an observation of a histogram names this span."""
        return {"trace_id": self.trace_id.hex(), "span_id": self.span_id.hex()}

    def write(self, span: OtlpSpan) -> None:
        span.CopyFrom(self.shape.pattern)
        span.trace_id, span.span_id = self.trace_id, self.span_id
        span.start_time_unix_nano, span.end_time_unix_nano = self.start_ns, self.end_ns
        span.attributes.add(key=self.shape.measure).value.double_value = self.measured
        span.flags = _BEGINS
        if self.parent:
            span.parent_span_id = bytes.fromhex(self.parent.span_id)
            span.trace_state, span.flags = self.parent.state, _CONTINUES
        if self.failure:
            span.attributes.add(key="error.type").value.string_value = self.failure
            span.status.code, span.status.message = Status.STATUS_CODE_ERROR, self.failure


Encode = Callable[[Sequence[ReadableSpan | EndedSpan]], ExportTraceServiceRequest]


def encoder(resource: Attributes, scope: str, version: str) -> Encode:
    """The encoding of a batch: of the spans here, and of the SDK's."""
    origin = ResourceSpans(
        resource=Resource(attributes=_encoded(resource)),
        scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope, version=version))],
    )

    def encode(spans: Sequence[ReadableSpan | EndedSpan]) -> ExportTraceServiceRequest:
        request = encode_spans([span for span in spans if isinstance(span, ReadableSpan)])
        ended = [span for span in spans if isinstance(span, EndedSpan)]
        if ended:
            request.resource_spans.append(origin)
            into = request.resource_spans[-1].scope_spans[0].spans
            for span in ended:
                span.write(into.add())
        return request

    return encode


def _encoded(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: str | int | float | bool | Sequence[str]) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value[:LONGEST_TEXT])
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))
