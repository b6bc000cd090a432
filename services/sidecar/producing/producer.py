"""The producer: batches in, one outcome per record out.

`produce` of librdkafka only appends to a queue, so it is called from the event loop, in slices. Acknowledgements come
back on one thread that polls; it writes them into their batch, and the last one of a batch wakes its request up.
There is no task and no wake-up per record. `Admission` bounds what is on the way.

An idempotent producer may end with a fatal error. Then a new one takes its place, and what was on the way fails with
50003.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mesh.topics import is_topic_name
from services.sidecar import metrics
from services.sidecar.producing.admission import Admission, Load
from services.sidecar.producing.records import Delivered, Delivery, DeliveryError, Failed, Outgoing

POLL_SECONDS = 0.2
"""How long the poll thread sleeps in librdkafka when nothing happens; also how late it sees that it shall end."""
SLICE_RECORDS = 500
"""Records handed over before the event loop gets its turn: about 2 ms."""

_ERRORS: dict[int, DeliveryError] = {
    KafkaError._AUTHENTICATION: DeliveryError.AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED: DeliveryError.AUTHENTICATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: DeliveryError.AUTHORIZATION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: DeliveryError.AUTHORIZATION,
    KafkaError.UNKNOWN_TOPIC_OR_PART: DeliveryError.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_TOPIC: DeliveryError.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION: DeliveryError.UNKNOWN_PARTITION,
    KafkaError._MSG_TIMED_OUT: DeliveryError.RETRIABLE,
    KafkaError._TRANSPORT: DeliveryError.RETRIABLE,
    KafkaError._ALL_BROKERS_DOWN: DeliveryError.RETRIABLE,
    KafkaError._QUEUE_FULL: DeliveryError.RETRIABLE,
    KafkaError._PURGE_QUEUE: DeliveryError.RETRIABLE,
    KafkaError._PURGE_INFLIGHT: DeliveryError.RETRIABLE,
    KafkaError._FATAL: DeliveryError.RETRIABLE,
}

log = structlog.get_logger(__name__)


def failed(error: KafkaError) -> Failed:
    """An error of the client in the contract's words."""
    kind = _ERRORS.get(error.code())
    if kind is None:
        kind = DeliveryError.RETRIABLE if error.retriable() else DeliveryError.KAFKA
    return Failed(kind, error.str())


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """Bounds, in the unit that each name ends in."""

    max_queued_records: int
    max_queued_bytes: int
    queue_timeout_seconds: float


class _Batch:
    """Outcomes of one request, filled from the poll thread and from the event loop."""

    def __init__(self, size: int) -> None:
        self._outcomes: list[Delivery | None] = [None] * size
        self._missing = size
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Delivery]] = self._loop.create_future()

    def acknowledged(self, index: int, error: KafkaError | None, message: Message) -> None:
        """Delivery report, on the poll thread."""
        partition, offset = message.partition(), message.offset()
        self.settle(
            index,
            failed(error) if error is not None else Delivered(partition or 0, offset if offset is not None else -1),
        )

    def settle(self, index: int, outcome: Delivery) -> None:
        with self._lock:
            self._outcomes[index] = outcome
            self._missing -= 1
            complete = self._missing == 0
        if complete:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result([outcome for outcome in self._outcomes if outcome is not None])


class _Client:
    """One librdkafka producer and the thread that polls it."""

    def __init__(self, properties: dict[str, Any], on_fatal: Callable[[], object]) -> None:
        self._on_fatal = on_fatal
        self._ending = threading.Event()
        self._purge_at = float("inf")
        self._fatal = False
        self.producer = Producer({**properties, "error_cb": self._on_error})
        self._thread = threading.Thread(target=self._poll, name="producer-poll", daemon=True)
        self._thread.start()

    def end(self, timeout: float) -> None:
        """Lets what is on the way arrive, `timeout` seconds at most; then what is left fails."""
        self._purge_at = time.monotonic() + timeout
        self._ending.set()

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _poll(self) -> None:
        while not self._ending.is_set() or len(self.producer):
            self.producer.poll(POLL_SECONDS)
            if time.monotonic() > self._purge_at:
                self.producer.purge()
                break
        self.producer.close()  # reports what was purged

    def _on_error(self, error: KafkaError) -> None:
        metrics.client_errors.labels("producer").inc()
        log.warning("producer reports an error", error=error.str(), code=error.name())
        if error.fatal() and not self._fatal:
            self._fatal = True
            self._on_fatal()


class RecordProducer:
    """Sends batches. One for the whole sidecar; its methods belong to the event loop."""

    def __init__(self, properties: dict[str, Any], limits: ProducerLimits) -> None:
        self._properties = properties
        self._limits = limits
        self._admission = Admission(max_records=limits.max_queued_records, max_bytes=limits.max_queued_bytes)
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._client = self._new_client()

    @property
    def is_alive(self) -> bool:
        """Whether acknowledgements are being read."""
        return self._client.is_alive

    async def send(self, topic: str, records: list[Outgoing]) -> list[Delivery]:
        """One outcome per record, in their order. Never raises for what Kafka says: that is an outcome."""
        if not records:
            return []
        if not is_topic_name(topic):
            return [Failed(DeliveryError.KAFKA, f"Invalid topics: [{topic}]")] * len(records)
        load = Load(len(records), sum(record.size for record in records))
        if self._stopping or not await self._admission.enter(load, self._limits.queue_timeout_seconds):
            return self._turned_away(len(records))
        started = time.monotonic()
        batch = _Batch(len(records))
        batch.done.add_done_callback(partial(self._count, load, started))
        for start in range(0, len(records), SLICE_RECORDS):
            if start:
                await asyncio.sleep(0)  # other requests are served between two slices
            for index in range(start, min(start + SLICE_RECORDS, len(records))):
                self._hand_over(topic, records[index], batch, index)
        return await asyncio.shield(batch.done)  # a caller that goes away must not upset the count

    async def stop(self, timeout: float) -> None:
        """Waits for what is on the way; what is not acknowledged after `timeout` seconds fails."""
        self._stopping = True
        self._client.end(timeout)
        ended = await asyncio.to_thread(self._client.join, timeout + 5 * POLL_SECONDS)
        if not ended:
            log.warning("the producer did not end in time", seconds=timeout)

    def _hand_over(self, topic: str, record: Outgoing, batch: _Batch, index: int) -> None:
        try:
            self._client.producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=-1 if record.partition is None else record.partition,
                on_delivery=partial(batch.acknowledged, index),
                timestamp=record.timestamp,
                headers=record.headers,
            )
        except KafkaException as error:
            batch.settle(index, failed(error.args[0]))
        except (BufferError, RuntimeError) as error:  # full, or closed under a request that the stop cut off
            batch.settle(index, Failed(DeliveryError.RETRIABLE, str(error)))

    def _turned_away(self, count: int) -> list[Delivery]:
        metrics.turned_away.inc()
        metrics.produced_records.labels("turned away").inc(count)
        limits = self._limits
        bound = f"{limits.max_queued_records} records or {limits.max_queued_bytes} bytes"
        text = f"the queue is full ({bound}); send again later"
        if self._stopping:
            text = "the sidecar is stopping; send again later"
        return [Failed(DeliveryError.RETRIABLE, text)] * count

    def _count(self, load: Load, started: float, done: "asyncio.Future[list[Delivery]]") -> None:
        self._admission.leave(load)
        metrics.delivery_seconds.observe(time.monotonic() - started)
        lost = sum(isinstance(outcome, Failed) for outcome in done.result())
        metrics.produced_records.labels("failed").inc(lost)
        metrics.produced_records.labels("delivered").inc(load.records - lost)
        metrics.produced_bytes.inc(load.bytes)

    def _new_client(self) -> _Client:
        return _Client(self._properties, partial(self._loop.call_soon_threadsafe, self._replace_client))

    def _replace_client(self) -> None:
        if self._stopping:
            return
        metrics.producer_restarts.inc()
        old, self._client = self._client, self._new_client()
        old.end(timeout=0)
