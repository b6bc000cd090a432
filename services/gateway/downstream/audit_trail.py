"""Audit records on their way to the home cluster: bounded, lossy, and without blocking requests.

Theory of operation
1. `take` gets copies of batches whose outcome is known. The processes that convert records of old clients open the
   batches. A thread gives the resulting audit records to Kafka's client.
2. Each step has its bound: bytes of batches that are not opened yet, records that wait for the thread, records in the
   client. A record that finds no room, or does not reach the home cluster within `DELIVERY_S`, is lost and counted.
3. At the end, the records that are still on their way have `END_S` to arrive.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, Full, Queue
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mesh.home_cluster import HomeAwayError, HomeCluster, OwnTopic
from services.gateway import metrics
from services.gateway.downstream.conversions import Conversions
from services.gateway.requests.auditing.clients import AuditedBatch, ClientAudit
from services.gateway.requests.auditing.records import AuditEvents, audit_events
from services.gateway.requests.auditing.refusals import Refused, refusal_event
from services.gateway.requests.conversions import Convert
from services.gateway.requests.topic_patterns import TopicPatterns

MOST_UNOPENED_BYTES = 16 * 1024 * 1024
MOST_WAITING = 500
"""Requests whose records wait for the thread; 20,000 records each at most, a few in nearly all."""
SLICE_RECORDS = 50
"""Given to the client before the interpreter is given away: about 0.2 ms."""
DELIVERY_S = 30.0
RETRY_S = 5.0
LOOK_S = 0.2
END_S = 2.0
PARTITIONS = 4
KEPT_MS = 7 * 24 * 3600 * 1000

_PROPERTIES = {
    "acks": "all",
    "linger.ms": 50,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "message.timeout.ms": int(DELIVERY_S * 1000),
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 32 * 1024,
    "delivery.report.only.error": True,
}

Events = list[tuple[bytes | None, bytes]]

log = structlog.get_logger(__name__)


class AuditTrail:
    """The audit trail of one gateway."""

    def __init__(
        self, topics: Iterable[str], home: HomeCluster, topic: str, service_id: str, conversions: Conversions
    ) -> None:
        """`topics` are audited; the audit records are written to `topic`."""
        self.clients = ClientAudit(TopicPatterns(topics), self.take)
        self._service_id = service_id
        self._conversions = conversions
        self._writer = AuditWriter(home, topic, service_id)
        self._unopened_bytes = 0
        self._unopened = 0
        """The requests that these bytes belong to."""
        metrics.unopened_audit_bytes.set_function(lambda: self._unopened_bytes)

    def start(self) -> None:
        self._writer.start()

    def take(self, found: list[AuditedBatch]) -> None:
        """Has the batches opened and their audit records written, or loses and counts them."""
        size = sum(len(batch.data) for batch in found)
        if self._unopened_bytes + size > MOST_UNOPENED_BYTES:
            metrics.lost_audit_records.inc(sum(batch.records for batch in found))
            return
        self._unopened_bytes += size
        self._unopened += 1
        work = Convert(audit_events, (found, self._service_id, time.time_ns() // 1_000_000))
        self._conversions.submit(work, partial(self._opened, found, size))

    def refused(self, refusal: Refused) -> None:
        """Has a refusal written, or loses and counts it."""
        self._writer.write([(None, refusal_event(refusal, self._service_id, time.time_ns() // 1_000_000))])

    def _opened(self, found: list[AuditedBatch], size: int, events: Any) -> None:
        self._unopened_bytes -= size
        self._unopened -= 1
        if not isinstance(events, AuditEvents):
            metrics.lost_audit_records.inc(sum(batch.records for batch in found))
            return
        metrics.lost_audit_records.inc(events.lost)
        self._writer.write(events.written)

    async def stop(self) -> None:
        """Called before the conversions are stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while self._unopened:
                    await asyncio.sleep(0.02)
        await asyncio.to_thread(self._writer.stop, END_S)


class AuditWriter:
    """The thread that writes the audit records."""

    def __init__(self, home: HomeCluster, topic: str, service_id: str) -> None:
        self._home = home
        self._topic = OwnTopic(topic, PARTITIONS, {"retention.ms": str(KEPT_MS)})
        self._client_id = f"{service_id}-audit"
        self._waiting: Queue[Events] = Queue(MOST_WAITING)
        self._producer: Producer | None = None
        self._ending = threading.Event()
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, events: Events) -> None:
        """May be called from any thread; returns at once."""
        try:
            self._waiting.put_nowait(events)
        except Full:
            metrics.lost_audit_records.inc(len(events))

    def stop(self, timeout: float) -> None:
        self._ending.set()
        self._thread.join(timeout + LOOK_S)

    def _run(self) -> None:
        while not (self._ending.is_set() and self._waiting.empty()):
            try:
                self._give(self._waiting.get(timeout=LOOK_S))
            except Empty:
                if self._producer is not None:
                    self._producer.poll(0)
        if self._producer is not None:
            self._producer.flush(END_S)
            metrics.lost_audit_records.inc(len(self._producer))

    def _give(self, events: Events) -> None:
        producer = self._open_producer()
        if producer is None:
            metrics.lost_audit_records.inc(len(events))
            return
        for start in range(0, len(events), SLICE_RECORDS):
            for key, value in events[start : start + SLICE_RECORDS]:
                try:
                    producer.produce(self._topic.name, value, key, on_delivery=self._reported)
                except (BufferError, KafkaException) as failure:
                    self._lost(str(failure))
            producer.poll(0)
            time.sleep(0)

    def _open_producer(self) -> Producer | None:
        """Waits for the home cluster, until the gateway ends."""
        while self._producer is None:
            try:
                self._producer = self._home.producer_for(self._topic, self._client_id, _PROPERTIES)
            except HomeAwayError as away:
                self._complain(str(away))
                if self._ending.wait(RETRY_S):
                    break
        return self._producer

    def _reported(self, error: KafkaError | None, _: Message) -> None:
        """Counts and logs failures alone."""
        if error is not None:
            self._lost(error.str())

    def _lost(self, why: str) -> None:
        metrics.lost_audit_records.inc()
        self._complain(why)

    def _complain(self, why: str) -> None:
        """Logs each reason once."""
        if why != self._problem:
            log.warning("audit records can't be written", topic=self._topic.name, reason=why)
        self._problem = why
