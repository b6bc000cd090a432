"""One target cluster of a session: a transactional producer, and the rule's state on the cluster.

1. The transactional id is the rule's, so the cluster itself fences the worker that ran the rule before: from
   `take_over` on, an earlier owner can commit nothing.
2. Only then the target reads its memory back, to the end, without uncommitted records.
3. Any error ends the session. Nothing is repaired here: the next session reads the memory again, and continues from
   there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from mesh.judging.records import Headers
from services.router.forwarding import memory
from services.router.forwarding.connections import (
    DELIVERY_TIMEOUT,
    REQUEST_TIMEOUT,
    TRANSACTION_TIMEOUT,
    Cluster,
    Setback,
    setback,
)
from services.router.forwarding.memory import Entry, Memory

RECALL_TIMEOUT = TRANSACTION_TIMEOUT + REQUEST_TIMEOUT
"""Seconds to read the memory: a transaction of another rule may stand before its end as long as it may last."""
QUEUE_TIMEOUT = 10.0
"""Seconds for room among the records that are not acknowledged yet."""
SETTLE_SECONDS = 0.1
"""Between two checks whether a record has failed."""
MOST_AT_ONCE = 1000
"""Records of the memory that are taken in at a time."""


class Target:
    """The connection to a cluster that a rule writes to. Used by one thread."""

    def __init__(self, cluster: Cluster, memory_: Memory, transactional_id: str, largest_batch: int) -> None:
        self.cluster = cluster
        self.memory = memory_
        self._place = f"cluster {cluster.name!r}"
        self._producer = cluster.producer(transactional_id, largest_batch)
        self._in_transaction = False

    def take_over(self) -> None:
        """Fences an earlier owner, and reads the rule's state."""
        try:
            self._producer.init_transactions(REQUEST_TIMEOUT)
        except KafkaException as error:
            raise setback(f"{self._place}, taking over", error) from error
        self._recall()

    @property
    def produce(self) -> Callable[..., None]:
        """The producer's own, for the one loop in which a call counts. It may raise BufferError: see `make_room`."""
        produce: Callable[..., None] = self._producer.produce
        return produce

    def write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: Any,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Adds a record to the transaction; waits for room."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery, None, timestamp, headers)
                return
            except BufferError:
                self.make_room()

    def make_room(self) -> None:
        """Waits until fewer records are on their way. Setback: none arrives."""
        before = len(self._producer)
        deadline = time.monotonic() + QUEUE_TIMEOUT
        while len(self._producer) >= before:
            if time.monotonic() > deadline:
                raise Setback(f"{self._place} has taken no record for {QUEUE_TIMEOUT:g} s")
            self._producer.poll(0.1)

    def begin(self) -> None:
        """Begins a transaction, if none is open."""
        if not self._in_transaction:
            self._producer.begin_transaction()
            self._in_transaction = True

    def settle(self, has_failed: Callable[[], bool]) -> None:
        """Returns when all records so far have arrived and have their offsets, or when `has_failed` is true.

        After a record has failed, librdkafka sends no others of the transaction: it purges its queue. A record that is
        produced at that moment can stay in the queue until the delivery time-out.
        """
        deadline = time.monotonic() + DELIVERY_TIMEOUT
        while self._producer.flush(SETTLE_SECONDS) and not has_failed():
            if time.monotonic() > deadline:
                raise Setback(f"{self._place} has not taken all records within {DELIVERY_TIMEOUT:g} s")

    def commit(self, entries: Iterable[Entry]) -> None:
        """Ends the transaction, with these changes of the memory in it."""
        try:
            self.begin()
            for entry in entries:
                self._producer.produce(memory.TOPIC, entry.value, entry.key, self.memory.partition)
            self._producer.commit_transaction(TRANSACTION_TIMEOUT)
        except KafkaException as error:
            raise setback(f"{self._place}, commit", error) from error
        self._in_transaction = False

    def close(self) -> None:
        """Aborts the open transaction. If the cluster can't be reached, the next owner's `take_over` aborts it."""
        self._producer.purge()
        if self._in_transaction:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(1.0)

    def _recall(self) -> None:
        """Reads the memory to the end that it has now."""
        consumer = self.cluster.consumer()
        partition = TopicPartition(memory.TOPIC, self.memory.partition, OFFSET_BEGINNING)
        deadline = time.monotonic() + RECALL_TIMEOUT
        try:
            _, end = consumer.get_watermark_offsets(partition, REQUEST_TIMEOUT)
            consumer.assign([partition])
            at = 0
            while at < end:
                if time.monotonic() > deadline:
                    raise Setback(
                        f"{self._place}: {memory.TOPIC} can't be read to its end: a transaction is open there"
                    )
                for message in consumer.consume(MOST_AT_ONCE, 0.5):
                    error = message.error()
                    if error is None:
                        self.memory.fold(message.key(), message.value())
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    at = message.offset() + (1 if error is None else 0)
        except KafkaException as error:
            raise setback(f"{self._place}, {memory.TOPIC}", error) from error
        except (ValueError, TypeError) as error:
            raise setback(f"{self._place}: a record of {memory.TOPIC} is none of the mesh's", error) from error
        finally:
            consumer.close()
