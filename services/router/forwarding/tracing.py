"""The spans of records that a rule writes: from their reading to the commit of their transaction.

A record whose header says `sampled` has a span, a child of the header's context. The written record carries on the
context of this span. A record without a context begins no trace: the rate is for those who make records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.judging.records import Headers
from mesh.tracing.context import Trace
from services.router.forwarding.provenance import Stamp

if TYPE_CHECKING:
    from mesh.tracing.tracer import Span, Tracer

MOST_OPEN = 1_000
"""Spans of one transaction. Further records carry on the context that they have, without a span."""


class TracingStamp(Stamp):
    """A stamp that also carries on trace contexts."""

    def __init__(self, rule_id: str, source: str, tracer: Tracer) -> None:
        super().__init__(rule_id, source)
        self._tracer = tracer
        self._attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "forward",
            "messaging.operation.type": "send",
            "kafka_mesh.record_rule": rule_id,
        }
        self._open: list[Span] = []

    def stamped(self, headers: Headers | None, offset: int, topic: str = "") -> Headers:
        made = super().stamped(headers, offset)
        trace = Trace.of_record(headers) if headers else None
        if not trace or not trace.is_sampled:
            return made
        if len(self._open) >= MOST_OPEN:
            self._tracer.lose()
            return made
        attributes: dict[str, str | int] = {
            **self._attributes,
            "messaging.destination.name": topic,
            "kafka_mesh.source.offset": offset,
        }
        span = self._tracer.producer(f"forward {topic}", trace, attributes)
        self._open.append(span)
        return span.trace.in_place_of(made)

    def ended(self, failure: str = "") -> None:
        for span in self._open:
            span.end(failure)
        self._open.clear()


def stamp_of(rule_id: str, source: str, tracer: Tracer | None) -> Stamp:
    """The stamp of a rule; `tracer`: None if nothing is traced."""
    return Stamp(rule_id, source) if tracer is None else TracingStamp(rule_id, source, tracer)
