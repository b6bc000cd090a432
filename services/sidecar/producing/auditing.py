"""Failures that no answer tells, because the request was answered before: they are counted, and audited.

An audit event is a log line, and, where there is a topic for them, a record in the shape that the original's audit has:
who, what, where and why, never the payload.
"""

import asyncio
import time
import uuid
from collections.abc import Sequence
from functools import partial

import orjson
import structlog

from services.sidecar import metrics
from services.sidecar.producing.producer import NotAccepted, RecordProducer
from services.sidecar.producing.records import (
    CORRELATION_HEADER,
    TRACEABILITY_HEADER,
    Delivery,
    Failed,
    Outgoing,
)

MAX_LINES = 100
"""Log lines for one request; the rest is counted."""
MAX_OPEN = 100
"""Requests whose audit records are on their way to the topic; what comes on top is lost to it, and counted."""

log = structlog.get_logger("audit")


class Audit:
    """Follows records of requests that were answered before Kafka had them."""

    def __init__(self, producer: RecordProducer, *, service: str, topic: str) -> None:
        """`topic`: empty for the log alone."""
        self._producer = producer
        self._service = service
        self._topic = topic
        self._writing: set[asyncio.Task[None]] = set()

    def follow(self, topic: str, records: Sequence[Outgoing], acknowledged: "asyncio.Future[list[Delivery]]") -> None:
        acknowledged.add_done_callback(partial(self._settled, topic, records))

    async def stop(self, timeout: float) -> None:
        """Lets what is being written arrive."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=timeout)

    def _settled(self, topic: str, records: Sequence[Outgoing], done: "asyncio.Future[list[Delivery]]") -> None:
        events = [
            self._event(topic, record, delivery)
            for record, delivery in zip(records, done.result(), strict=True)
            if isinstance(delivery, Failed)
        ]
        if not events:
            return
        metrics.async_failures.inc(len(events))
        for event in events[:MAX_LINES]:
            log.warning("record not written", **event)
        if len(events) > MAX_LINES:
            log.warning("more records not written", topic=topic, records=len(events) - MAX_LINES)
        if not self._topic:
            return
        if len(self._writing) >= MAX_OPEN:
            metrics.lost_audits.labels("topic").inc(len(events))
            return
        writing = asyncio.get_running_loop().create_task(self._write(events))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _event(self, topic: str, record: Outgoing, failure: Failed) -> dict[str, object]:
        headers = dict(record.headers)
        event = {
            "id": str(uuid.uuid4()),
            "serviceId": self._service,
            "auditType": "PRODUCER",
            "topic": topic,
            "partition": record.partition,
            "correlationId": _text(headers.get(CORRELATION_HEADER)),
            "traceabilityId": _text(headers.get(TRACEABILITY_HEADER)),
            "key": _text(record.key),
            "auditStatus": "FAILURE",
            "stacktrace": f"{failure.error.value} {failure.text}",
            "timestamp": int(time.time() * 1000),
        }
        return {name: value for name, value in event.items() if value is not None}

    async def _write(self, events: list[dict[str, object]]) -> None:
        records = [
            Outgoing(str(event.get("correlationId", "")).encode(), orjson.dumps(event), None, 0, []) for event in events
        ]
        try:
            outcomes = await (await self._producer.accept(self._topic, records))
        except NotAccepted as refused:
            outcomes = [refused.why] * len(records)
        metrics.lost_audits.labels("topic").inc(sum(isinstance(one, Failed) for one in outcomes))


def _text(given: str | bytes | None) -> str | None:
    return given.decode(errors="replace") if isinstance(given, bytes) else given
