"""A producer that writes transactions, one after the other. Its calls block, so it needs a thread of its own.

A transaction ends in one of four ways, and the caller learns the way:

1. The transaction was committed: `write` returns the partitions and offsets of the records.
2. The transaction was aborted, and nothing was written: `NotWritten`, or `Elsewhere` if this id may not write to
   topics.
3. The producer was replaced or broke, and nothing was written: `Lost`, certain.
4. The producer was replaced or broke during the commit: `Lost`, and only Kafka knows the outcome. A new producer with
   the same id settles the outcome.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from services.sidecar.producing.delivery import CLIENT_FAILURES, error_of, failed
from services.sidecar.records import Delivered, Failed, Outgoing, WriteOutcome
from services.sidecar.telemetry.client_errors import ClientErrors

_ELSEWHERE = KafkaError.TOPIC_AUTHORIZATION_FAILED
"""The error of a broker for a topic that may not be written, and of the gateway for a topic that is out of reach."""
_REFUSED = (
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
)
"""Errors that mean that such a transaction will never succeed."""
_GIVEN_UP = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
STEP_SECONDS = 0.5
"""The wait of one call. After each wait the client checks for failures, and for the stop of the sidecar."""
PAUSE_SECONDS = 0.05
ABORT_SECONDS = 10.0
CLOSE_SECONDS = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records that one transaction writes to one topic."""

    topic: str
    records: list[Outgoing]


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets that a group has consumed, committed with the resulting records."""

    offsets: list[TopicPartition]
    group: Any
    """`consumer_group_metadata()` of the consumer that read the records."""


@dataclass(frozen=True, slots=True)
class Seal:
    """One more record, which is made when the offsets of the others are known."""

    topic: str
    key: bytes
    value: bytes


class NotWritten(Exception):  # noqa: N818  # an outcome
    """The transaction was aborted: `cause` is the reason, `outcomes` are the outcomes of its records."""

    def __init__(self, cause: Failed, outcomes: list[list[WriteOutcome]]) -> None:
        super().__init__(cause.text)
        self.cause = cause
        self.outcomes = outcomes


class Elsewhere(Exception):  # noqa: N818  # an outcome
    """The transaction was aborted: this transactional id cannot write to these topics."""

    def __init__(self, topics: Sequence[str], text: str) -> None:
        super().__init__(text)
        self.topics = topics


class Lost(Exception):  # noqa: N818  # an outcome
    """This producer cannot go on. `certain`: nothing was written."""

    def __init__(self, error: KafkaError, *, certain: bool) -> None:
        super().__init__(error.str())
        self.certain = certain
        self.is_refused = error.code() in _REFUSED
        self.fenced = error.code() in (
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        )


class TransactionalClient:
    """One producer with one transactional id. All calls but `interrupt` belong to one thread."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self._producer = Producer({**properties, "error_cb": ClientErrors("transactions")})
        self._interrupted = threading.Event()

    def interrupt(self) -> None:
        """Makes a call that waits for Kafka give up within `STEP_SECONDS`; other threads may call this."""
        self._interrupted.set()

    def open(self, timeout: float) -> None:
        """Takes the id over: an older producer is fenced, and its open transaction is ended. Lost when that fails."""
        deadline = time.monotonic() + timeout
        self._until(deadline, self._producer.init_transactions, certain=True)

    def write(
        self,
        entries: Sequence[TopicRecords],
        timeout: float,
        seal: Callable[[list[list[Delivered]]], Seal] | None = None,
        consumed: GroupOffsets | None = None,
    ) -> list[list[Delivered]]:
        """One transaction; see the top of this file."""
        deadline = time.monotonic() + timeout
        try:
            self._producer.begin_transaction()
        except CLIENT_FAILURES as failure:
            raise Lost(error_of(failure), certain=True) from None
        written = self._sent(entries, deadline)
        if seal is not None:
            self._seal(seal(written), entries, deadline)
        try:
            if consumed is not None:
                send = partial(self._producer.send_offsets_to_transaction, consumed.offsets, consumed.group)
                self._until(deadline, send, certain=True)
            self._until(deadline, self._producer.commit_transaction, certain=False)
        except _MustAbort as refused:
            self._give_up(entries, [[None] * len(entry.records) for entry in entries], refused.error)
        return written

    def try_out(self, topic: str | None, consumed: GroupOffsets, timeout: float) -> None:
        """Tests whether a transaction could write to this topic, if given, and commit these offsets: begins a
        transaction, and aborts it. NotWritten, Elsewhere or Lost when the transaction could not be committed.

        Nothing is written as long as records linger (`linger.ms`): a partition joins the transaction before its first
        record is sent. The transaction coordinator answers in order, so its answer about the offsets comes after its
        answer about the partition.
        """
        entries = [] if topic is None else [TopicRecords(topic, [Outgoing(None, None, 0, 0, [])])]
        deadline = time.monotonic() + timeout
        send = partial(self._producer.send_offsets_to_transaction, consumed.offsets, consumed.group)
        try:
            self._producer.begin_transaction()
            for entry in entries:
                self._producer.produce(entry.topic, partition=0)
        except CLIENT_FAILURES as failure:
            raise Lost(error_of(failure), certain=True) from None
        try:
            for _ in range(2):
                self._interrupted.wait(PAUSE_SECONDS)
                self._until(deadline, send, certain=True)
        except _MustAbort as refused:
            self._give_up(entries, [[None] for _ in entries], refused.error)
        self._until(time.monotonic() + ABORT_SECONDS, self._producer.abort_transaction, certain=True)

    def close(self) -> None:
        """Ends the client's threads; an open transaction is aborted, or ends with its time-out."""
        try:
            self._producer.abort_transaction(CLOSE_SECONDS)
            self._producer.purge()
            self._producer.close()
        except CLIENT_FAILURES:
            pass  # no transaction is open, or another producer has ended it

    def _sent(self, entries: Sequence[TopicRecords], deadline: float) -> list[list[Delivered]]:
        """The partitions and offsets of all records, which are not committed yet."""
        outcomes: list[list[WriteOutcome | None]] = [[None] * len(entry.records) for entry in entries]
        errors: list[KafkaError] = []

        def acknowledged(place: int, index: int, error: KafkaError | None, message: Message) -> None:
            if error is None:
                outcomes[place][index] = Delivered(message.partition() or 0, message.offset() or 0)
            elif error.code() not in _GIVEN_UP:
                errors.append(error)
                outcomes[place][index] = failed(error)

        for place, entry in enumerate(entries):
            for index, record in enumerate(entry.records):
                try:
                    self._producer.produce(
                        entry.topic,
                        value=record.value,
                        key=record.key,
                        partition=-1 if record.partition is None else record.partition,
                        on_delivery=partial(acknowledged, place, index),
                        timestamp=record.timestamp,
                        headers=record.headers,
                    )
                except (KafkaException, BufferError) as failure:
                    full = isinstance(failure, BufferError)
                    error = KafkaError(KafkaError._QUEUE_FULL) if full else failure.args[0]
                    outcomes[place][index] = failed(error)
                    self._give_up(entries, outcomes, error)
        while self._flush() and not errors and not self._is_over(deadline):
            pass
        found = [[one for one in outcome if isinstance(one, Delivered)] for outcome in outcomes]
        if any(len(one) < len(entry.records) for one, entry in zip(found, entries, strict=True)):
            self._give_up(entries, outcomes, errors[0] if errors else self._reason())
        return found

    def _seal(self, seal: Seal, entries: Sequence[TopicRecords], deadline: float) -> None:
        """Writes the seal. If the seal cannot be written, its error is the outcome of all records."""
        try:
            self._sent([TopicRecords(seal.topic, [Outgoing(seal.key, seal.value, None, 0, [])])], deadline)
        except NotWritten as refused:
            shared = Failed(refused.cause.error, f"not written, as {seal.topic} was not: {refused.cause.text}")
            raise NotWritten(shared, [[shared] * len(entry.records) for entry in entries]) from None

    def _flush(self) -> int:
        """The number of records that are still on their way."""
        try:
            return self._producer.flush(STEP_SECONDS)
        except CLIENT_FAILURES as failure:
            raise Lost(error_of(failure), certain=True) from None

    def _reason(self) -> KafkaError:
        """The reason why records were given up: the transaction has the reason, and so can't be committed."""
        if len(self._producer):
            return KafkaError(KafkaError._TIMED_OUT, "the records were not acknowledged in time")
        try:
            self._producer.commit_transaction(STEP_SECONDS)
        except CLIENT_FAILURES as failure:
            return error_of(failure)
        raise AssertionError("a transaction with a lost record was committed")

    def _give_up(
        self, entries: Sequence[TopicRecords], outcomes: list[list[WriteOutcome | None]], error: KafkaError
    ) -> NoReturn:
        """Aborts the transaction, and raises the reason."""
        self._until(time.monotonic() + ABORT_SECONDS, self._producer.abort_transaction, certain=True)
        if error.fatal():
            raise Lost(error, certain=True)
        cause = failed(error)
        if error.code() == _ELSEWHERE:
            refused = [
                entry.topic
                for entry, outcome in zip(entries, outcomes, strict=True)
                if any(isinstance(one, Failed) and one.error is cause.error for one in outcome)
            ]
            raise Elsewhere(refused or [entry.topic for entry in entries], error.str())
        shared = Failed(cause.error, f"not written, as its transaction was aborted: {cause.text}")
        raise NotWritten(
            cause, [[one if isinstance(one, Failed) else shared for one in outcome] for outcome in outcomes]
        )

    def _until(self, deadline: float, step: Callable[[float], object], *, certain: bool) -> None:
        """Runs a step of the protocol, again and again while Kafka's error allows a retry."""
        while True:
            try:
                step(STEP_SECONDS)
                return
            except CLIENT_FAILURES as failure:
                error = error_of(failure)
                if error.txn_requires_abort():
                    raise _MustAbort(error) from None
                if error.fatal() or not error.retriable() or self._is_over(deadline):
                    raise Lost(error, certain=certain) from None
                if error.code() != KafkaError._TIMED_OUT:
                    self._interrupted.wait(PAUSE_SECONDS)

    def _is_over(self, deadline: float) -> bool:
        return time.monotonic() >= deadline or self._interrupted.is_set()


class _MustAbort(Exception):  # noqa: N818
    """Kafka will not commit this transaction."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error
