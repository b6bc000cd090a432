"""The outcomes of records: Kafka's acknowledgements and errors, gathered by request."""

import asyncio
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message

from services.sidecar.records import Delivered, DeliveryError, Failed, WriteOutcome

_ERRORS: dict[int, DeliveryError] = {
    KafkaError._AUTHENTICATION: DeliveryError.AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED: DeliveryError.AUTHENTICATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: DeliveryError.AUTHORIZATION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: DeliveryError.AUTHORIZATION,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: DeliveryError.AUTHORIZATION,
    KafkaError.UNKNOWN_TOPIC_OR_PART: DeliveryError.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_TOPIC: DeliveryError.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION: DeliveryError.UNKNOWN_PARTITION,
    KafkaError._MSG_TIMED_OUT: DeliveryError.RETRIABLE,
    KafkaError._TIMED_OUT: DeliveryError.RETRIABLE,
    KafkaError._TRANSPORT: DeliveryError.RETRIABLE,
    KafkaError._ALL_BROKERS_DOWN: DeliveryError.RETRIABLE,
    KafkaError._QUEUE_FULL: DeliveryError.RETRIABLE,
    KafkaError._PURGE_QUEUE: DeliveryError.RETRIABLE,
    KafkaError._PURGE_INFLIGHT: DeliveryError.RETRIABLE,
    KafkaError._FATAL: DeliveryError.RETRIABLE,
}

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)

CLIENT_FAILURES = (KafkaException, SystemError)
"""The exceptions that a call of a client raises.

A fatal error comes out of any call that serves events: as KafkaException, or, if one of our callbacks was running, as
SystemError with the KafkaException as its cause.
"""


def error_of(failure: KafkaException | SystemError) -> KafkaError:
    """The Kafka error inside one of `CLIENT_FAILURES`."""
    found: BaseException | None = failure
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__
    return found.args[0] if found is not None else KafkaError(KafkaError._FATAL, str(failure), fatal=True)


def failed(error: KafkaError) -> Failed:
    """An error of the client, with the contract's number."""
    kind = _ERRORS.get(error.code())
    if kind is None:
        kind = DeliveryError.RETRIABLE if error.retriable() else DeliveryError.KAFKA
    text = error.str()
    if error.code() in _TOO_LARGE:
        return Failed(kind, f"{text} (max_record_bytes of the sidecar, max.message.bytes of the topic)", too_large=True)
    return Failed(kind, text)


class Batch:
    """Outcomes of one request's records, filled by the thread that polls and by the event loop."""

    __slots__ = ("_countdown", "_loop", "_outcomes", "done")

    def __init__(self, size: int) -> None:
        self._outcomes: list[WriteOutcome | None] = [None] * size
        self._countdown = count(size - 1, -1)
        """The countdown is atomic, because each step is one call into C; a lock would take five times as long."""
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[WriteOutcome]] = self._loop.create_future()

    def acknowledged(self, index: int, error: KafkaError | None, message: Message) -> None:
        """Takes a delivery report, on the thread that polls."""
        if error is None:
            self.settle(index, Delivered(message.partition() or 0, message.offset() or 0))
        else:
            self.settle(index, failed(error))

    def settle(self, index: int, outcome: WriteOutcome) -> None:
        self._outcomes[index] = outcome
        if not next(self._countdown):
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result([outcome for outcome in self._outcomes if outcome is not None])
