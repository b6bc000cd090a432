"""Spans of ended work are, in OTLP, what the SDK makes of the same facts."""

from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from mesh.tracing import TracingSettings, tracer
from mesh.tracing.context import NO_TRACE, Trace
from mesh.tracing.ended import LONGEST_TEXT, EndedSpan, Shape, encoder
from tests.fixtures.waiting import wait_until

PARENT = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1,b=2")
ATTRIBUTES: dict[str, str | int | float | bool | Sequence[str]] = {
    "messaging.system": "kafka",
    "kafka_mesh.api.version": 9,
    "kafka_mesh.topics": ["apples", "bananas"],
    "is": True,
    "ratio": 0.5,
}
MEASURE = "kafka_mesh.upstream.duration"
RESOURCE = {"service.name": "kafka-mesh-gateway", "service.version": "1"}
SHAPE = Shape("Produce apples", ATTRIBUTES, MEASURE)
encode = encoder(RESOURCE, "kafka-mesh", "1")


def by_the_sdk(ours: EndedSpan, failure: str) -> ReadableSpan:
    context = SpanContext(
        int.from_bytes(ours.trace_id), int.from_bytes(ours.span_id), False, TraceFlags(1),
        TraceState([("a", "1"), ("b", "2")] if ours.parent else []),
    )  # fmt: skip
    parent = SpanContext(context.trace_id, int(PARENT.span_id, 16), True, TraceFlags(1)) if ours.parent else None
    return ReadableSpan(
        "Produce apples",
        context,
        parent,
        Resource(RESOURCE),
        attributes={**ATTRIBUTES, MEASURE: 0.25, **({"error.type": failure} if failure else {})},
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR, failure) if failure else Status(),
        start_time=1000,
        end_time=2000,
        instrumentation_scope=InstrumentationScope("kafka-mesh", "1"),
    )


@pytest.mark.parametrize("parent", [PARENT, NO_TRACE], ids=["continued", "begun"])
@pytest.mark.parametrize("failure", ["", "NOT_LEADER_OR_FOLLOWER"])
def test_both_encodings_say_the_same(parent: Trace, failure: str) -> None:
    ours = EndedSpan.of(SHAPE, parent, 1000, 2000, 0.25, failure)
    both: tuple[EndedSpan | ReadableSpan, ...] = (ours, by_the_sdk(ours, failure))
    (made,), (wanted,) = (encode([each]).resource_spans for each in both)
    assert made.resource == wanted.resource
    (made_scope,), (wanted_scope,) = made.scope_spans, wanted.scope_spans
    assert made_scope.scope == wanted_scope.scope
    (span,), (of_sdk,) = made_scope.spans, wanted_scope.spans
    of_sdk.status.SetInParent()
    span.status.SetInParent()
    assert span == of_sdk
    assert (ours.trace_id.hex() == PARENT.trace_id) is bool(parent)
    assert ours.exemplar == {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}


def test_both_kinds_of_spans_may_be_in_one_batch() -> None:
    ours = EndedSpan.of(SHAPE, NO_TRACE, 1000, 2000, 0.25, "")
    names = [
        span.name
        for resource in encode([by_the_sdk(ours, ""), ours]).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert names == ["Produce apples"] * 2


def test_each_span_has_ids_of_its_own_and_texts_have_a_bound() -> None:
    shape = Shape("x", {"messaging.client.id": "c" * 2 * LONGEST_TEXT}, MEASURE)
    spans = [EndedSpan.of(shape, NO_TRACE, 1, 2, 0.0, "") for _ in range(100)]
    assert len({span.trace_id for span in spans}) == len({span.span_id for span in spans}) == 100
    written = OtlpSpan()
    spans[0].write(written)
    assert len(written.attributes[0].value.string_value) == LONGEST_TEXT


class Kept(SpanExporter):
    """A receiver that takes what it is given."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    monkeypatch.setattr(tracer, "exporter_of", lambda settings, encode: Kept())
    yield {"sent": 0, "lost": 0, "failed": 0}


def test_spans_beyond_the_room_are_lost_and_counted(counts: dict[str, int]) -> None:
    def count(outcome: str, spans: int) -> None:
        counts[outcome] += spans

    most = 10
    tracing = tracer.Tracer(
        TracingSettings(tracing_endpoint="http://127.0.0.1:1", tracing_max_spans=most), "gateway", "g", count
    )
    spans = 3 * most
    for _ in range(spans):
        tracing.ended(SHAPE, NO_TRACE, 1, 2, 0.0, "")
    wait_until(lambda: sum(counts.values()) == spans, f"each span is counted: {counts}")
    tracing.stop()
    assert counts["sent"] >= most
    assert counts["failed"] == 0
