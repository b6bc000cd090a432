"""librdkafka's clients, by confluent-kafka."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from judge.clients.client import Committed, Polled, Sent
from judge.history import Guarantee, Mark, Outcome, Place, Poll, Send
from judge.values import record, value_of

DELIVERY_S = 20.0
POLL_S = 0.3
MOST_MESSAGES = 500
CLIENT_FAILURES = (KafkaException, SystemError)
"""A fatal error comes out of any call that serves events. If a delivery report was served too, the client raises a
SystemError with the KafkaException as its cause."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class LibrdkafkaProducer:
    name = "librdkafka"

    def __init__(
        self, bootstrap: str, guarantee: Guarantee, transactional_id: str, compression: str, client_id: str
    ) -> None:
        self.guarantee = guarantee
        self._door = bootstrap
        """The address of all its requests: a gateway names only itself to its clients."""
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "compression.type": compression,
            "enable.idempotence": guarantee is not Guarantee.PLAIN,
            "delivery.timeout.ms": int(DELIVERY_S * 1000),
            "linger.ms": 2,
            "logger": _quiet(),
        }
        if transactional_id:
            self._settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 20_000}
        self._producer: confluent_kafka.Producer | None = None

    def send(self, place: Place, values: Sequence[int]) -> Sent:
        producer = self._open()
        reports = self._produced(producer, [(place, value) for value in values])
        with contextlib.suppress(*CLIENT_FAILURES):  # a fatal error; what has no report is unknown
            producer.flush(DELIVERY_S + 5)
        return self._told([(place, value) for value in values], reports)

    def transaction(self, sends: Sequence[tuple[Place, int]], *, commit: bool, between: Callable[[], None]) -> Sent:
        reports: dict[int, Message | KafkaError] = {}
        committing = False
        try:
            producer = self._open()
            producer.begin_transaction()
            reports = self._produced(producer, sends)
            producer.flush(DELIVERY_S)
            between()
            if not commit:
                producer.abort_transaction(DELIVERY_S)
                return Sent(Outcome.FAIL, self._told(sends, reports).sends, self._door, "meant to abort")
            committing = True
            self._commit(producer)
        except CLIENT_FAILURES as failure:
            told = self._told(sends, reports)
            return self._after(_error_of(failure), told, committing=committing, wanted=commit)
        return Sent(Outcome.OK, self._told(sends, reports).sends, self._door)

    def _commit(self, producer: confluent_kafka.Producer) -> None:
        for tries_left in (2, 1, 0):
            try:
                producer.commit_transaction(DELIVERY_S)
            except CLIENT_FAILURES as failure:
                if not _error_of(failure).retriable() or not tries_left:
                    raise
            else:
                return

    def _after(self, error: KafkaError, told: Sent, *, committing: bool, wanted: bool) -> Sent:
        """Aborted where that can be; a producer that can't is left behind, and the next one ends what it began."""
        aborted = False
        if error.txn_requires_abort() and self._producer is not None:
            with contextlib.suppress(*CLIENT_FAILURES):
                self._producer.abort_transaction(DELIVERY_S)
                aborted = True
        if not aborted:
            self._producer = None
        outcome = Outcome.INFO if committing and not aborted else Outcome.FAIL
        note = f"{'commit' if committing else 'aborted' if wanted else 'abort'}: {error}"
        return Sent(outcome, told.sends, self._door, note)

    def _open(self) -> confluent_kafka.Producer:
        if self._producer is None:
            producer = confluent_kafka.Producer(self._settings)
            if "transactional.id" in self._settings:
                producer.init_transactions(DELIVERY_S)
            self._producer = producer
        return self._producer

    def _produced(
        self, producer: confluent_kafka.Producer, sends: Sequence[tuple[Place, int]]
    ) -> dict[int, Message | KafkaError]:
        reports: dict[int, Message | KafkaError] = {}

        def report(value: int) -> Any:
            return lambda error, message: reports.__setitem__(value, error or message)

        for place, value in sends:
            producer.produce(place.topic, record(value), partition=place.partition, on_delivery=report(value))
        return reports

    def _told(self, sends: Sequence[tuple[Place, int]], reports: dict[int, Message | KafkaError]) -> Sent:
        told, errors = [], []
        for place, value in sends:
            report = reports.get(value)
            if report is None or isinstance(report, KafkaError):
                errors.append(str(report or "no report"))
                told.append(Send(place, value))
            else:
                offset = report.offset()
                told.append(Send(place, value, offset if offset is not None and offset >= 0 else None))
        if errors:
            self._producer = None
        return Sent(Outcome.INFO if errors else Outcome.OK, tuple(told), self._door, "; ".join(errors[:3]))

    def close(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(*CLIENT_FAILURES):
                self._producer.flush(1)
        self._producer = None


def _error_of(failure: KafkaException | SystemError) -> KafkaError:
    cause = failure if isinstance(failure, KafkaException) else failure.__cause__
    if not isinstance(cause, KafkaException):
        return KafkaError(KafkaError._FATAL, str(failure), fatal=True)
    error: KafkaError = cause.args[0]
    return error


class LibrdkafkaConsumer:
    name = "librdkafka"

    def __init__(self, bootstrap: str, group: str, protocol: str, client_id: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "fetch.wait.max.ms": 200,
            "logger": _quiet(),
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1000}
        self._group = group
        self._door = bootstrap
        self._consumer = confluent_kafka.Consumer(self._settings)
        self._rebalanced = False

    def assign(self, places: Sequence[Place]) -> None:
        self._consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)

    def _changed(self, *_: object) -> None:
        self._rebalanced = True

    def poll(self) -> Polled:
        self._rebalanced = False
        found: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        notes = []
        for message in self._consumer.consume(MOST_MESSAGES, POLL_S):
            if message.error():
                notes.append(str(message.error()))
                continue
            place = Place(message.topic() or "", message.partition() or 0)
            found[place].append((message.offset() or 0, value_of(message.value())))
        polls = tuple(Poll(place, tuple(records)) for place, records in found.items())
        return Polled(polls, self._rebalanced, self._door, "; ".join(notes[:3]))

    def commit(self) -> Committed:
        positions = [each for each in self._consumer.position(self._consumer.assignment()) if each.offset >= 0]
        marks = tuple(Mark(self._group, Place(each.topic, each.partition), each.offset) for each in positions)
        if not positions:
            return Committed(Outcome.FAIL, (), note="meant: nothing was read")
        try:
            answers = self._consumer.commit(offsets=positions, asynchronous=False) or []
        except KafkaException as exception:
            return Committed(Outcome.INFO, marks, self._door, str(exception.args[0]))
        errors = [str(each.error) for each in answers if each.error]
        return Committed(Outcome.INFO if errors else Outcome.OK, marks, self._door, "; ".join(errors))

    def close(self) -> None:
        self._consumer.close()


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("judge.librdkafka")
    logger.setLevel(logging.CRITICAL)
    return logger
