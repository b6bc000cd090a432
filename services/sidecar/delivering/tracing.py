"""The spans of one delivery: the batch that is processed, and each call of the backend for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mesh.tracing.context import Trace
from services.sidecar.delivering.batch import Batch
from services.sidecar.delivering.failures import CallFailedError
from services.sidecar.delivering.progress import Ask

if TYPE_CHECKING:
    from mesh.tracing.tracer import Span, Tracer


class DeliveryTrace:
    """The spans of a batch with a sampled record; a context that ends with the delivery.

    The span of the batch is a child of the first sampled record's context, and has the other ones as links.
    """

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @classmethod
    def begun(cls, tracer: Tracer, batch: Batch) -> Self | None:
        """None: no record of the batch is traced."""
        traces = dict.fromkeys(Trace.of_record(one.raw.headers) for one in batch.records if one.raw.headers)
        sampled = [trace for trace in traces if trace.is_sampled]
        if not sampled:
            return None
        topic, partition = batch.partition
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "messaging.kafka.offset": batch.records[0].raw.offset,
            "messaging.batch.message_count": len(batch.records),
        }
        return cls(tracer, tracer.consumer(f"process {topic}", sampled, attributes))

    @contextmanager
    def call(self, ask: Ask, headers: dict[str, str]) -> Iterator[None]:
        """One call of the backend. Its headers get the context of the call's span."""
        attributes: dict[str, str | int] = {"http.request.method": "POST", "http.request.resend_count": ask.attempt - 1}
        span = self._tracer.client("POST", self._span.trace, attributes)
        headers.update(span.trace.headers)
        failure = "cancelled"
        try:
            yield
            failure = ""
        except CallFailedError as failed:
            failure = failed.outcome
            raise
        finally:
            span.end(failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._span.end("" if kind is None else kind.__name__)
