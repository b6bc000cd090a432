"""One load run: producers that keep to a schedule, consumers that account for every record.

1. Record k is due at start + k / rate, whether or not the ones before it got through. Its latency counts from that
   time, so a stall shows in every record that it delayed (no coordinated omission).
2. Each value begins with a stamp: run, producer, sequence, due time. Consumers begin at the end of each partition as it
   was before the run, ignore other runs' records, and tell missing and duplicated ones by the stamp.
3. Memory is bounded: nine bytes for each record (MAX_RECORDS), fixed histograms, librdkafka's own queue.
"""

from __future__ import annotations

import functools
import os
import struct
import threading
import time
from array import array
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from local.clients import quiet
from local.latency import Histogram
from meshctl.endpoints import Endpoint

_STAMP = struct.Struct(">8sHQQ")  # run id, producer, sequence, due time in monotonic nanoseconds
MIN_SIZE = _STAMP.size
MAX_RECORDS = 20_000_000
WARM_UP_SECONDS = 15.0
JOIN_SECONDS = 30.0  # a group's first rebalance takes 3 s on a broker with default settings
DELIVERY_SECONDS = 30.0
DRAIN_SECONDS = 10.0  # without a single new record, what has not come is missing
DRAIN_POLL_SECONDS = 0.1
POLL_GRAIN_SECONDS = 0.001
LONGEST_NAP_SECONDS = 0.05  # how soon a stop is seen
LINGER_MS = 5
_NOWHERE = -1
_OFFSET_BITS = 44  # of a place; the partition stands above


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a load run."""

    endpoint: Endpoint
    topics: tuple[str, ...]
    rate: float
    duration: float
    size: int
    producers: int
    consumers: int

    @property
    def records_of_a_producer(self) -> int:
        return int(self.rate * self.duration / self.producers) + 2


class RunError(Exception):
    """The run can't begin, or can't continue."""


class Reception(Enum):
    """The meaning of a received record."""

    FIRST = "first"
    AGAIN = "again"
    DUPLICATE = "duplicate"


class Ledger:
    """Which records of one producer were acknowledged, and where each was read first.

    A record that comes from the same place again was read again: a consumer's position means another place after its
    topic moved to another cluster. From another place it is a duplicate: the log holds it twice.
    """

    def __init__(self, capacity: int) -> None:
        self.read_again = 0
        self.duplicated = 0
        self._acknowledged = bytearray(capacity)
        self._places = array("q", [_NOWHERE]) * capacity
        self._lock = threading.Lock()  # consumers of one group may meet in a producer's records

    def acknowledge(self, sequence: int) -> None:
        self._acknowledged[sequence] = 1

    def receive(self, sequence: int, partition: int, offset: int) -> Reception:
        place = partition << _OFFSET_BITS | offset
        with self._lock:
            first = self._places[sequence]
            if first == _NOWHERE:
                self._places[sequence] = place
                return Reception.FIRST
            if first == place:
                self.read_again += 1
                return Reception.AGAIN
            self.duplicated += 1
            return Reception.DUPLICATE

    def missing(self) -> int:
        """Acknowledged records that nobody received."""
        pairs = zip(self._acknowledged, self._places, strict=True)
        return sum(1 for acknowledged, place in pairs if acknowledged and place == _NOWHERE)


class _Sender(threading.Thread):
    """One producer on its own schedule."""

    def __init__(self, run: Run, index: int) -> None:
        super().__init__(name=f"load-producer-{index}", daemon=True)
        self.run_of = run
        self.index = index
        self.latency = Histogram()
        self.sent = 0
        self.failed = 0
        self.errors: Counter[str] = Counter()
        self.ledger = Ledger(run.plan.records_of_a_producer)
        self._fill = os.urandom(run.plan.size - _STAMP.size)
        self._producer = Producer(
            quiet(run.plan.endpoint, f"kafka-mesh-load-producer-{index}")
            | {
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "message.timeout.ms": int(DELIVERY_SECONDS * 1000),
                "error_cb": run.note_client_error,
            }
        )

    def warm_up(self) -> None:
        """One record to each topic, not counted: connections and producer id are there when the clock starts."""
        failures: list[str] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(f"{message.topic()}: {error.str()}")

        for topic in self.run_of.plan.topics:
            self._producer.produce(topic, bytes(self.run_of.plan.size), on_delivery=note)
        if self._producer.flush(WARM_UP_SECONDS) or failures:
            raise RunError(f"the first records were not delivered: {'; '.join(failures) or 'no answer in time'}")

    def run(self) -> None:
        run, plan = self.run_of, self.run_of.plan
        while not run.stopping.is_set():
            due = run.started + (self.sent * plan.producers + self.index) / plan.rate
            now = time.monotonic()
            if due >= run.ends or now >= run.ends:
                break
            if now < due:
                self._await(due - now)
                continue
            self._send(due)
        self.failed += self._producer.flush(DELIVERY_SECONDS)

    def _await(self, seconds: float) -> None:
        """Take in delivery reports as they come; poll() counts in milliseconds, so less than one is slept."""
        if seconds >= POLL_GRAIN_SECONDS:
            self._producer.poll(min(seconds, LONGEST_NAP_SECONDS))
        else:
            self._producer.poll(0)
            time.sleep(seconds)

    def _send(self, due: float) -> None:
        run, sequence = self.run_of, self.sent
        topics = run.plan.topics
        report = functools.partial(self._delivered, sequence, due)
        value = _STAMP.pack(run.id, self.index, sequence, int(due * 1e9)) + self._fill
        while not run.stopping.is_set():
            try:
                self._producer.produce(topics[sequence % len(topics)], value, on_delivery=report)
            except BufferError:  # the queue is full: the wait counts, as `due` is in the past
                self._producer.poll(LONGEST_NAP_SECONDS)
                continue
            self.sent += 1
            self._producer.poll(0)
            return

    def _delivered(self, sequence: int, due: float, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.errors[error.str()] += 1
            return
        self.latency.record(time.monotonic() - due)
        self.ledger.acknowledge(sequence)


class _Receiver(threading.Thread):
    """One consumer of the run's group."""

    def __init__(self, run: Run, index: int) -> None:
        super().__init__(name=f"load-consumer-{index}", daemon=True)
        self.run_of = run
        self.latency = Histogram()
        self.errors: Counter[str] = Counter()
        self._consumer = Consumer(
            quiet(run.plan.endpoint, f"kafka-mesh-load-consumer-{index}")
            | {
                "group.id": f"kafka-mesh-load-{run.id.hex()}",
                "auto.offset.reset": "earliest",  # a topic that moves begins anew on its other cluster
                "error_cb": run.note_client_error,
            }
        )

    def run(self) -> None:
        run = self.run_of
        self._consumer.subscribe(list(run.plan.topics), on_assign=self._assigned)
        try:
            while not run.received_all.is_set():
                message = self._consumer.poll(0.1)
                if message is not None:
                    self._take(message)
        finally:
            self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            each.offset = self.run_of.positions.get((each.topic, each.partition), OFFSET_END)
        consumer.assign(partitions)
        self.run_of.note_assigned((each.topic, each.partition) for each in partitions)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self.errors[error.str()] += 1
            return
        now, run, value = time.monotonic(), self.run_of, message.value() or b""
        partition, offset = message.partition() or 0, message.offset() or 0
        run.positions[message.topic() or "", partition] = offset + 1
        if len(value) < _STAMP.size:
            return
        run_id, producer, sequence, due_ns = _STAMP.unpack_from(value)
        if run_id != run.id:
            return
        if run.senders[producer].ledger.receive(sequence, partition, offset) is Reception.FIRST:
            self.latency.record(now - due_ns / 1e9)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run so far."""

    elapsed: float
    sent: int
    failed: int
    produced: Histogram
    consumed: Histogram


class Run:
    """A load run from its first connection to its last record."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.id = os.urandom(8)
        self.stopping = threading.Event()
        self.received_all = threading.Event()
        self.positions: dict[tuple[str, int], int] = {}
        self.started = self.ends = 0.0
        self.last_client_error: KafkaError | None = None
        self.senders = [_Sender(self, index) for index in range(plan.producers)]
        self.receivers = [_Receiver(self, index) for index in range(plan.consumers)]
        self._unassigned: set[tuple[str, int]] = set()
        self._all_assigned = threading.Event()

    def prepare(self) -> None:
        """Connect everybody, so that the clock starts with all of them in place."""
        for sender in self.senders:
            sender.warm_up()
        if not self.receivers:
            return
        self._find_ends()
        self._unassigned = set(self.positions)
        for receiver in self.receivers:
            receiver.start()
        if not self._all_assigned.wait(JOIN_SECONDS):
            raise RunError(f"the consumer group was not assigned all partitions in {JOIN_SECONDS:g} s")

    def start(self) -> None:
        self.started = time.monotonic()
        self.ends = self.started + self.plan.duration
        for sender in self.senders:
            sender.start()

    def sending(self) -> bool:
        return any(sender.is_alive() for sender in self.senders)

    def drain(self) -> None:
        """Wait for the consumers to receive all acknowledged records, as long as they make progress."""
        received, last_progress = -1, time.monotonic()
        delivered = sum(sender.latency.count for sender in self.senders)
        while self.receivers and time.monotonic() - last_progress < DRAIN_SECONDS:
            now_received = sum(receiver.latency.count for receiver in self.receivers)
            if now_received != received:
                received, last_progress = now_received, time.monotonic()
            if received >= delivered and not self.missing():  # the ledgers are read whole: only when it may be so
                return
            time.sleep(DRAIN_POLL_SECONDS)

    def close(self) -> None:
        """Stop all threads, after success and after an error."""
        self.stopping.set()
        self.received_all.set()
        for thread in (*self.senders, *self.receivers):
            if thread.is_alive():
                thread.join(DELIVERY_SECONDS)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            elapsed=min(time.monotonic(), self.ends) - self.started,
            sent=sum(sender.sent for sender in self.senders),
            failed=sum(sender.failed for sender in self.senders),
            produced=Histogram.merged(sender.latency for sender in self.senders),
            consumed=Histogram.merged(receiver.latency for receiver in self.receivers),
        )

    def missing(self) -> int:
        return sum(sender.ledger.missing() for sender in self.senders)

    def duplicated(self) -> int:
        return sum(sender.ledger.duplicated for sender in self.senders)

    def read_again(self) -> int:
        return sum(sender.ledger.read_again for sender in self.senders)

    def errors(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for sender in self.senders:
            found += sender.errors
        for receiver in self.receivers:
            found += receiver.errors
        return found

    def note_client_error(self, error: KafkaError) -> None:
        self.last_client_error = error

    def note_assigned(self, partitions: Any) -> None:
        self._unassigned.difference_update(partitions)
        if not self._unassigned:
            self._all_assigned.set()

    def _find_ends(self) -> None:
        probe = Consumer(quiet(self.plan.endpoint, "kafka-mesh-load-probe") | {"group.id": "kafka-mesh-load-probe"})
        try:
            for topic in self.plan.topics:
                partitions = probe.list_topics(topic, timeout=WARM_UP_SECONDS).topics[topic].partitions
                for partition in partitions:
                    _low, high = probe.get_watermark_offsets(TopicPartition(topic, partition), timeout=WARM_UP_SECONDS)
                    self.positions[topic, partition] = high
        except KafkaException as error:
            raise RunError(f"where the topics end can't be found out: {error.args[0].str()}") from error
        finally:
            probe.close()
