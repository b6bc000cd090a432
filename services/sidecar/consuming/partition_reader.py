"""Reads partitions assigned by hand, with their end offsets, for jobs and peeks.

Records are as they are in Kafka. A group, if the reader has one, only keeps committed offsets. The reader blocks, so it
has its own thread. The end offsets are those of a reader with read_committed. The reader skips offsets without a record
(compacted, aborted, expired).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar.consuming.message_headers import headers_of
from services.sidecar.consuming.positions import Position, Seek
from services.sidecar.consuming.seeking import positions_of
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.records import Commit, Partition, RawRecord
from services.sidecar.telemetry.client_errors import ClientErrors

ASK_SECONDS = 10.0
"""Bound of each question to Kafka."""
NOBODY = "kafka-mesh-nobody"
"""librdkafka needs a group id. A reader without a group of its own never commits."""
_GROUP_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class Fetched(NamedTuple):
    """The records and ends that one read found."""

    records: list[RawRecord]
    ends: dict[Partition, int]
    """Partitions without further records, each with the offset of the next record."""


class PartitionReader:
    """One Kafka client. Fault if librdkafka refuses the configuration, or if Kafka does not answer a request."""

    def __init__(self, properties: Mapping[str, Any], group: str = "") -> None:
        own = {
            "group.id": group or NOBODY,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 0,
        }
        given = {name: value for name, value in properties.items() if name != "group.instance.id"}
        try:
            self._client = Consumer({**given, **own, "error_cb": ClientErrors("consumer")})
        except (KafkaException, ValueError, TypeError) as error:
            raise Fault(
                FaultKind.CONSUMER_CONFIG_EXCEPTION, f"Consumer configuration exception with message {error}"
            ) from None

    def partitions(self, topic: str) -> list[Partition]:
        """All partitions of a topic. Fault if the topic does not exist."""
        try:
            found = self._client.list_topics(topic, timeout=ASK_SECONDS).topics.get(topic)
        except KafkaException as error:
            raise _no_answer(error) from None
        if found is None or found.error is not None or not found.partitions:
            raise Fault(FaultKind.TOPIC_NOT_FOUND, f"There is no topic {topic!r} that this sidecar can see")
        return [Partition(topic, one) for one in sorted(found.partitions)]

    def topics(self) -> dict[str, list[Partition]]:
        """All that can be seen, with their partitions."""
        try:
            found = self._client.list_topics(timeout=ASK_SECONDS).topics
        except KafkaException as error:
            raise _no_answer(error) from None
        return {name: [Partition(name, one) for one in sorted(topic.partitions)] for name, topic in found.items()}

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """The offset of the partition's first record, and the offset of its next record."""
        try:
            found = self._client.get_watermark_offsets(TopicPartition(*partition), ASK_SECONDS)
        except KafkaException as error:
            raise _no_answer(error) from None
        if found is None:
            raise Fault(FaultKind.KAFKA_UNAVAILABLE, f"Kafka does not say in time where {partition} ends; try again")
        return found

    def positions(self, seeks: Iterable[Seek]) -> dict[Partition, int]:
        """Places as offsets."""
        return {one.partition: one.offset for one in positions_of(seeks, self._client)}

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Commit]:
        """The commits of the reader's group; partitions without a commit are left out."""
        asked = [TopicPartition(*one) for one in partitions]
        try:
            found: list[TopicPartition] = self._client.committed(asked, timeout=ASK_SECONDS)
        except KafkaException as error:
            raise _no_answer(error) from None
        for one in found:
            if one.error is not None:
                raise Fault(FaultKind.KAFKA_UNAVAILABLE, f"Kafka does not say what is committed: {one.error.str()}")
        return {
            Partition(one.topic, one.partition): Commit(
                Partition(one.topic, one.partition), one.offset, one.metadata or ""
            )
            for one in found
            if one.offset >= 0
        }

    def commit(self, commits: Iterable[Commit]) -> None:
        """Fault when Kafka refuses, as it does while the group has members."""
        asked = offsets_of(commits)
        try:
            done: list[TopicPartition] = self._client.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            raise commit_refused(error.args[0]) from None
        for one in done:
            if one.error is not None:
                raise commit_refused(one.error)

    def group_metadata(self) -> Any:
        """The metadata of the group, for a transaction that commits its offsets."""
        return self._client.consumer_group_metadata()

    def start(self, positions: Iterable[Position]) -> None:
        """Reads these partitions from these positions, and no others."""
        self._client.assign([TopicPartition(*one.partition, one.offset) for one in positions])

    def stop(self, partition: Partition) -> None:
        """Stops reading the partition."""
        self._client.incremental_unassign([TopicPartition(*partition)])

    def read(self, max_records: int, max_bytes: int, timeout: float, linger: float = 0.0) -> Fetched:
        """The records and ends that are there; waits for the first of them. At least one record, however large.

        Fault if a partition cannot be read, for good or for now.
        """
        fetched = Fetched([], {})
        size = 0
        until = time.monotonic() + timeout
        while len(fetched.records) < max_records and size < max_bytes:
            message = self._client.poll(max(until - time.monotonic(), 0))
            if message is None:
                break
            if not fetched.records and not fetched.ends:
                until = min(until, time.monotonic() + linger)
            if (error := message.error()) is not None:
                self._note(message, error, fetched)
                continue
            record = raw_record(message)
            fetched.records.append(record)
            fetched.ends.pop(Partition(record.topic, record.partition), None)  # more has come meanwhile
            size += record.size
        return fetched

    def close(self) -> None:
        self._client.close()

    def _note(self, message: Message, error: KafkaError, fetched: Fetched) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            fetched.ends[Partition(message.topic() or "", message.partition() or 0)] = message.offset() or 0
        elif not error.retriable():
            raise Fault(FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Consumer read failed: {error.str()}")


def raw_record(message: Message) -> RawRecord:
    """A message of the client as it is in Kafka."""
    return RawRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers_of(message),
    )


def offsets_of(commits: Iterable[Commit]) -> list[TopicPartition]:
    """As the client takes them."""
    return [TopicPartition(*one.partition, one.offset, one.metadata) for one in commits]


def commit_refused(error: KafkaError) -> Fault:
    """The fault in the contract's words, with a remedy if there is one."""
    text = f"Failed to commit offsets: {error.str()}"
    if error.code() in _GROUP_HAS_MEMBERS:
        return Fault(
            FaultKind.ILLEGAL_CONSUMER_STATE, f"{text}: the group has members; name a group that nobody reads with"
        )
    return Fault(FaultKind.FAILED_TO_COMMIT_OFFSETS, text)


def _no_answer(error: KafkaException) -> Fault:
    return Fault(FaultKind.KAFKA_UNAVAILABLE, f"Kafka does not answer: {error.args[0].str()}")
