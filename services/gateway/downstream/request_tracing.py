"""The spans of clients' requests, made when a request has its answer.

Theory of operation
1. A span is made behind the answer, from times that the gateway takes anyway. So a request without a span costs one
   look for trace contexts (`trace_contexts`) and one subtraction. The gateway draws the number of requests until the
   next trace begins, which gives each of them the chance that the rate says.
2. Requests that have a span are noted, and the spans of some are made together. One span by itself takes several
   times as long, because none of its code and data is in the caches of the processor.
3. A Produce whose records carry sampled contexts has a span in each of these traces, up to a bound: each trace then
   shows the request, whichever other records were in it. Records that carry contexts decide alone; the rate is for
   requests without any.
4. The gateway changes no record: consumers continue the trace of the producer, beside the gateway's span.
"""

import math
import time
from asyncio import TimerHandle, get_running_loop
from random import random
from typing import TYPE_CHECKING

from mesh.tracing.context import NO_TRACE, Trace
from services.gateway import clock, metrics
from services.gateway.counting import Times
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.in_flight import InFlight
from services.gateway.downstream.passing import Passed
from services.gateway.downstream.slots import AnySlot, Seen
from services.gateway.requests.failures import codes_of
from services.gateway.requests.plan import Answer, Close, NoAnswer, Request
from services.gateway.requests.records.trace_contexts import traces_in
from services.gateway.wire.apis import api_name
from services.gateway.wire.errors import error_name
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.walks import produce

if TYPE_CHECKING:
    from mesh.tracing.ended import Attributes, Shape
    from mesh.tracing.tracer import Tracer

UPSTREAM = "kafka_mesh.upstream.duration"
MOST_TOPICS = 10
"""Topics that a span names."""
MOST_SHAPES = 1024
"""Shapes of spans that are kept: some hundred bytes each."""
AT_ONCE = 32
"""Requests whose spans are made together, ..."""
NOTED_S = 0.5
"""... if they come within this time."""
_FARTHEST = 2.0**62
_BEGINS = (NO_TRACE,)


class RequestTracing:
    """See above."""

    __slots__ = ("_left", "_noted", "_rate", "_shapes", "_timer", "_tracer")

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer
        self._rate = tracer.rate
        self._left = requests_until_next(self._rate)
        """Requests until the next trace begins; 0 or less: none begins."""
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._noted: list[tuple[AnySlot, tuple[Trace, ...], Times, str, float]] = []
        """Requests whose spans are not made yet, each with its traces, times, failure and end."""
        self._timer: TimerHandle | None = None

    def found(self, frame: memoryview, scan: produce.ProduceScan) -> tuple[Trace, ...] | None:
        """See `traces_in`."""
        return traces_in(frame, scan)

    def seen(self, request: Request) -> Seen | None:
        """The facts of a Produce that goes by its plan. None: it can't be read, and its plan reports it."""
        header, frame = request.header, request.frame
        try:
            scan = produce.scan_produce(frame, header.api_version, header.body_offset, len(frame))
        except WireError:
            return None
        topics = () if header.api_version >= IDS_SINCE else tuple(topic.name for topic in scan.topics)
        return Seen(topics, traces_in(frame, scan))

    def forwarded(self, slot: InFlight | FetchInFlight, times: Times) -> None:
        """A request that needed no plan has its answer."""
        traces = self._traces(slot.traces if isinstance(slot, InFlight) else None)
        if traces:
            self._note(slot, traces, times, "")

    def ended(self, slot: AnySlot, answer: Answer | Passed) -> None:
        """Any other request has its answer."""
        if isinstance(slot, InFlight):
            seen = slot.traces
        elif isinstance(slot, FetchInFlight) or slot.seen is None:
            seen = None
        else:
            seen = slot.seen.traces
        traces = self._traces(seen)
        if traces and slot.began:
            self._note(slot, traces, metrics.times_of(slot.header.api_key), _failure(answer))

    def _traces(self, seen: tuple[Trace, ...] | None) -> tuple[Trace, ...]:
        if seen is not None:
            return seen
        self._left -= 1
        if self._left:
            return ()
        self._left = requests_until_next(self._rate)
        return _BEGINS

    def _note(self, slot: AnySlot, traces: tuple[Trace, ...], times: Times, failure: str) -> None:
        self._noted.append((slot, traces, times, failure, clock.now()))
        if len(self._noted) >= AT_ONCE:
            self.flush()
        elif self._timer is None:
            self._timer = get_running_loop().call_later(NOTED_S, self.flush)

    def flush(self) -> None:
        """Make the spans of all requests that were noted."""
        noted, self._noted = self._noted, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, now_ns = clock.now(), time.time_ns()
        for slot, traces, times, failure, ended_at in noted:
            end_ns, seconds = now_ns - int((now - ended_at) * 1e9), ended_at - slot.began
            shape, start_ns = self._shape(slot), end_ns - int(seconds * 1e9)
            for trace in traces:
                span = self._tracer.ended(shape, trace, start_ns, end_ns, slot.upstream_s, failure)
            exemplar = span.exemplar
            times.gateway.name(seconds - slot.upstream_s, exemplar)
            times.upstream.name(slot.upstream_s, exemplar)

    def _shape(self, slot: AnySlot) -> "Shape":
        header, topics = slot.header, _topics(slot)
        cluster = slot.sole.cluster if isinstance(slot, InFlight) else ""
        key = header.api_key, header.api_version, header.client_id, cluster, topics
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            shape = self._shapes[key] = self._tracer.shape(*_described(header, cluster, topics), UPSTREAM)
        return shape


def requests_until_next(rate: float) -> int:
    """How many requests it takes until one of them begins a trace, each with this chance; 0 for never."""
    if not 0 < rate < 1:
        return int(rate)
    return 1 + int(min(math.log1p(-random()) / math.log1p(-rate), _FARTHEST))


def _described(header: RequestHeader, cluster: str, topics: tuple[str, ...]) -> "tuple[str, Attributes]":
    """The name and the attributes of a span."""
    api = api_name(header.api_key)
    attributes: dict[str, str | int | list[str]] = {
        "messaging.system": "kafka",
        "messaging.operation.name": api,
        "kafka_mesh.api.version": header.api_version,
    }
    if header.client_id:
        attributes["messaging.client.id"] = header.client_id
    if cluster:
        attributes["kafka_mesh.cluster"] = cluster
    if len(topics) == 1:
        return f"{api} {topics[0]}", {**attributes, "messaging.destination.name": topics[0]}
    if topics:
        attributes["kafka_mesh.topics"] = list(topics[:MOST_TOPICS])
    return api, attributes


def _topics(slot: AnySlot) -> tuple[str, ...]:
    if isinstance(slot, InFlight):
        return slot.what
    return () if isinstance(slot, FetchInFlight) or slot.seen is None else slot.seen.topics


def _failure(answer: Answer | Passed) -> str:
    """The name of the answer's first error; empty for none."""
    if isinstance(answer, NoAnswer | Passed):
        return ""
    if isinstance(answer, Close):
        return "closed"
    return next((error_name(code) for code in codes_of(answer) if code), "")
