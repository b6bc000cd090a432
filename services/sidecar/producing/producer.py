"""The producer: batches in, one outcome per record out.

`produce` of librdkafka only appends to a queue, so the event loop calls it, in slices and in waves (`waves.py`). The
thread that polls (`client.py`) writes each acknowledgement into its batch. The last acknowledgement of a batch wakes
the request up. There is no task and no wake-up per record. `Admission` bounds the records on the way.

An idempotent producer may end with a fatal error. Then a new producer replaces it, and records on the way fail with
50003.
"""

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaException

from mesh.topics import is_topic_name
from services.sidecar.auditing.events import AuditType, produced
from services.sidecar.auditing.trail import OFF, AuditTrail
from services.sidecar.producing.admission import Admission, Load
from services.sidecar.producing.client import POLL_SECONDS, ProducerClient
from services.sidecar.producing.delivery import Batch, failed
from services.sidecar.producing.topics import Topics
from services.sidecar.producing.waves import SLICE_RECORDS, Given, Waves
from services.sidecar.records import DeliveryError, Failed, Outgoing, WriteOutcome
from services.sidecar.telemetry import metrics, topic_metrics
from services.sidecar.telemetry.traffic import NO_TRAFFIC, SidecarTraffic

_STALE = (DeliveryError.UNKNOWN_TOPIC, DeliveryError.UNKNOWN_PARTITION)
"""Outcomes that show that the sidecar's knowledge of the topic is out of date."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """Bounds, in the unit that each name ends in."""

    max_queued_records: int
    max_queued_bytes: int
    queue_timeout_seconds: float
    unknown_topic_seconds: float


class NotAccepted(Exception):  # noqa: N818  # an answer to the caller, not an error of ours
    """No record of a batch was accepted; `why` is the outcome of each of its records."""

    def __init__(self, why: Failed) -> None:
        super().__init__(why.text)
        self.why = why


class RecordProducer:
    """The sidecar's one sender of batches; its methods belong to the event loop."""

    def __init__(
        self,
        properties: dict[str, Any],
        limits: ProducerLimits,
        audit: AuditTrail = OFF,
        traffic: SidecarTraffic = NO_TRAFFIC,
    ) -> None:
        self._properties = properties
        self._limits = limits
        self._audit = audit
        self._traffic = traffic
        self._admission = Admission(max_records=limits.max_queued_records, max_bytes=limits.max_queued_bytes)
        self._topics = Topics(limits.unknown_topic_seconds)
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._client = self._new_client()
        self._waves = Waves(self._hand_over, float(properties.get("linger.ms", 0)) / 1000)

    @property
    def is_alive(self) -> bool:
        """Whether acknowledgements are being read."""
        return self._client.is_alive

    async def send(self, topic: str, records: list[Outgoing]) -> list[WriteOutcome]:
        """One outcome per record, in their order. An error of Kafka is an outcome, and never raised."""
        try:
            acknowledged = await self.accept(topic, records)
        except NotAccepted as refused:
            return [refused.why] * len(records)
        return await asyncio.shield(acknowledged)  # a caller that goes away must not upset the count

    async def accept(self, topic: str, records: list[Outgoing]) -> "asyncio.Future[list[WriteOutcome]]":
        """Returns when the records are on their way; the future has their outcomes. NotAccepted if no record is."""
        try:
            return await self._audited(topic, records)
        except NotAccepted:
            self._traffic.produced(topic, 0, 0, None, failed=True)
            raise

    async def _audited(self, topic: str, records: list[Outgoing]) -> "asyncio.Future[list[WriteOutcome]]":
        if not self._audit.wants(AuditType.PRODUCER):
            return await self._accept(topic, records)
        if not await self._audit.room(self._limits.queue_timeout_seconds):
            raise NotAccepted(self._turned_away(len(records), await self._audit.fault()))
        try:
            done = await self._accept(topic, records)
        except NotAccepted as refused:
            self._record(topic, records, [refused.why] * len(records))
            raise
        done.add_done_callback(lambda done: self._record(topic, records, done.result()))
        return done

    async def _accept(self, topic: str, records: list[Outgoing]) -> "asyncio.Future[list[WriteOutcome]]":
        await self.check(topic)
        batch = Batch(len(records))
        if not records:
            batch.done.set_result([])
            return batch.done
        load = Load(len(records), sum(len(record.key or b"") + len(record.value or b"") for record in records))
        if self._stopping or not await self._admission.enter(load, self._limits.queue_timeout_seconds):
            raise NotAccepted(self._turned_away(len(records)))
        batch.done.add_done_callback(partial(self._count, topic, load, time.monotonic()))
        self._waves.add(Given(topic, records, batch))
        return batch.done

    async def check(self, topic: str) -> None:
        """NotAccepted when the topic does not exist, or cannot exist."""
        if self._topics.is_known(topic):
            return
        if not is_topic_name(topic):
            raise NotAccepted(Failed(DeliveryError.UNKNOWN_TOPIC, f"Invalid topics: [{topic}]"))
        if not self._stopping and not await self._topics.exists(topic, self._client.producer):
            raise NotAccepted(Failed(DeliveryError.UNKNOWN_TOPIC, f"Topic {topic} does not exist"))

    async def stop(self, timeout: float) -> None:
        """Waits for records on the way; a record that is not acknowledged after `timeout` seconds fails."""
        self._stopping = True
        self._topics.close()
        self._waves.end()
        self._client.end(timeout)
        ended = await asyncio.to_thread(self._client.join, timeout + 5 * POLL_SECONDS)
        if not ended:
            log.warning("the producer did not end in time", seconds=timeout)

    def _hand_over(self, given: Given, start: int, stop: int) -> None:
        topic, records, batch = given.topic, given.records, given.batch
        produce, acknowledged = self._client.producer.produce, batch.acknowledged
        for index in range(start, stop):
            key, value, partition, timestamp, headers = records[index]
            report = partial(acknowledged, index)
            try:
                # by position, in half the time: value, key, partition, callback, its other name, timestamp, headers
                produce(topic, value, key, -1 if partition is None else partition, report, None, timestamp, headers)
            except KafkaException as error:
                batch.settle(index, failed(error.args[0]))
            except (BufferError, RuntimeError) as error:  # full, or closed under a request that the stop cut off
                batch.settle(index, Failed(DeliveryError.RETRIABLE, str(error)))
        self._client.handed_over()

    def _record(self, topic: str, records: list[Outgoing], outcomes: list[WriteOutcome], start: int = 0) -> None:
        """Audits a slice of the records, and the rest after other requests had their turn."""
        end = start + SLICE_RECORDS
        self._audit.record(produced(topic, records[start:end], outcomes[start:end]))
        if end < len(records):
            self._loop.call_soon(self._record, topic, records, outcomes, end)

    def _turned_away(self, count: int, why: str | None = None) -> Failed:
        metrics.turned_away.inc()
        metrics.produced_records.labels("turned away").inc(count)
        limits = self._limits
        bound = f"{limits.max_queued_records} records or {limits.max_queued_bytes} bytes"
        text = f"{why or f'the queue is full ({bound})'}; send again later"
        if self._stopping:
            text = "the sidecar is stopping; send again later"
        return Failed(DeliveryError.RETRIABLE, text)

    def _count(self, topic: str, load: Load, started: float, done: "asyncio.Future[list[WriteOutcome]]") -> None:
        self._admission.leave(load)
        seconds = time.monotonic() - started
        metrics.delivery_seconds.observe(seconds)
        failures = [outcome for outcome in done.result() if type(outcome) is Failed]
        lost = len(failures)
        if any(one.error in _STALE for one in failures):
            self._topics.forget(topic)
        metrics.produced_records.labels("failed").inc(lost)
        metrics.produced_records.labels("delivered").inc(load.records - lost)
        metrics.produced_bytes.inc(load.bytes)
        topic_metrics.produced(topic, delivered=load.records - lost, failed=lost, size=load.bytes, seconds=seconds)
        written = load.records - lost
        self._traffic.produced(topic, written, load.bytes * written // load.records, seconds, failed=lost > 0)

    def _new_client(self) -> ProducerClient:
        return ProducerClient(self._properties, partial(self._loop.call_soon_threadsafe, self._replace_client))

    def _replace_client(self) -> None:
        if self._stopping:
            return
        metrics.producer_restarts.inc()
        old, self._client = self._client, self._new_client()
        old.end(timeout=0)
