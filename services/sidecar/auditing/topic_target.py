"""Audit records in a topic: key is the correlation id, value JSON without nulls.

The target has its own producer, so audit records never share the queue of records that a backend waits for. Kafka's
client retries by itself. If the client gives a record up, the record is lost and counted; if audit must not lose
records, the target gives the record to the client again. So a record may be in the topic twice, with the same id.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mesh.lost_brokers import STATISTICS_MS
from services.sidecar.auditing.target_queue import NotWrittenError
from services.sidecar.auditing.text import Entry
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.client_errors import ClientErrors
from services.sidecar.telemetry.client_statistics import client_reports

MAX_CLIENT_RECORDS = 10_000
MAX_CLIENT_KILOBYTES = 16 * 1024
"""The most that waits in the client; the rest waits in the target's queue."""
LINGER_MS = 50
UNKNOWN_TOPIC_MS = 5_000
"""How long records wait for a topic that is not there."""
ROOM_SECONDS = 0.2
"""How long a write waits for room in the client."""
_NEVER_FITS = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD)


def audit_producer_properties(shared: dict[str, Any], *, max_records: int, timeout_ms: int) -> dict[str, Any]:
    """`timeout_ms`: how long the client tries; 0 for ever."""
    return {
        **shared,
        "client.id": f"{shared.get('client.id', 'sidecar')}-audit",
        "acks": "all",
        "enable.idempotence": False,  # it risks a fatal error; ids show records that come twice
        "partitioner": "murmur2_random",
        "linger.ms": LINGER_MS,
        "message.timeout.ms": timeout_ms,
        "topic.metadata.propagation.max.ms": UNKNOWN_TOPIC_MS,
        "queue.buffering.max.messages": min(max_records, MAX_CLIENT_RECORDS),
        "queue.buffering.max.kbytes": MAX_CLIENT_KILOBYTES,
        "delivery.report.only.error": True,
        "allow.auto.create.topics": False,
        "statistics.interval.ms": STATISTICS_MS,
    }


class TopicTarget:
    """Writes to one topic. Used by one thread."""

    name = "topic"

    def __init__(self, properties: dict[str, Any], topic: str, *, keeps: bool) -> None:
        """`keeps`: whether undelivered records are tried again as long as the target runs."""
        self._topic = topic
        self._keeps = keeps
        self._lost = metrics.lost_audits.labels(self.name)
        self._again: list[tuple[bytes | str | None, bytes | None]] = []
        """Keys and texts that come next; never more than the client had in its queue."""
        self._why = ""
        self._producer = Producer({**properties, "error_cb": self._complained, "stats_cb": client_reports("audit")})
        self._client_errors = ClientErrors("audit")

    def write(self, entries: Sequence[Entry]) -> None:
        self._give_again()
        produce = self._produce
        for index, (key, text) in enumerate(entries):
            produce(key, text, index)
        self._producer.poll(0)

    def idle(self) -> None:
        self._producer.poll(0)
        with contextlib.suppress(NotWrittenError):  # next time
            self._give_again()
        if not len(self._producer):
            self._why = ""

    def close(self, timeout: float) -> None:
        self._producer.flush(timeout)
        self._keeps = False
        self._lost.inc(len(self._again))
        self._producer.purge()
        self._producer.close()  # reports the purged records

    def _give_again(self) -> None:
        while self._again:
            key, value = self._again[-1]
            self._produce(key, value, 0)
            self._again.pop()

    def _produce(self, key: bytes | str | None, value: bytes | None, written: int) -> None:
        """NotWrittenError, with the number that was written before, when the client has no room."""
        try:
            self._producer.produce(self._topic, value, key, -1, self._reported)
        except BufferError:
            self._producer.poll(ROOM_SECONDS)
            why = self._why or "Kafka does not take audit records as fast as they come"
            raise NotWrittenError(f"topic {self._topic}: {why}", written) from None
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            self._failed(error, key, value)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        """Handles the delivery report of a failed record; success needs nothing."""
        if error is not None:
            self._failed(error, message.key(), message.value())

    def _failed(self, error: KafkaError, key: bytes | str | None, value: bytes | None) -> None:
        self._why = error.str()
        if self._keeps and error.code() not in _NEVER_FITS:
            self._again.append((key, value))
        else:
            self._lost.inc()

    def _complained(self, error: KafkaError) -> None:
        self._client_errors(error)
        self._why = error.str()
