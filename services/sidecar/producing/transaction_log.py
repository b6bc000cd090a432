"""The topic in which the answers to requests with an Idempotency-Key are kept, one topic for each transactional id.

Only the producer with that id writes to the topic, and writes each answer in the transaction of its records. A producer
that has just initialized the id has ended the open transaction of a killed process. If that producer reads the topic to
its end, it knows all committed answers.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.cimpl import NewTopic

from services.sidecar.producing.idempotency import KeptAnswer

PARTITION = 0
SEGMENT_MS: Final = "segment.ms"
VISIBLE_POLL_SECONDS = 0.05
SEGMENTS_WHILE_KEPT: Final = 12
"""Kafka deletes whole segments: with 12 of them, an answer stays on disk a twelfth longer than it is kept."""
_NOT_SEEN_YET = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)

log = structlog.get_logger(__name__)


class TransactionLog:
    """The topic, for the thread that owns its transactional id."""

    def __init__(self, topic: str, properties: dict[str, Any], *, keep_ms: int) -> None:
        """`properties`: the properties of a client that is not transactional."""
        self.topic = topic
        self._properties = properties
        self._keep_ms = keep_ms
        self._next_offset: int | None = None

    def make(self, timeout: float) -> None:
        """Makes the topic if it is missing. KafkaException when the topic cannot be made.

        A topic of an earlier version of the sidecar gets short segments, too.
        """
        admin = AdminClient(self._properties)
        found = admin.list_topics(self.topic, timeout=timeout).topics.get(self.topic)
        if found is not None and found.error is None:
            self._shorten_segments(admin, timeout)
            return
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(self._keep_ms),
            SEGMENT_MS: self._segment_ms,
        }
        made = admin.create_topics([NewTopic(self.topic, 1, config=settings)], request_timeout=timeout)[self.topic]
        try:
            made.result(timeout)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    @property
    def _segment_ms(self) -> str:
        return str(max(self._keep_ms // SEGMENTS_WHILE_KEPT, 1))

    def _shorten_segments(self, admin: AdminClient, timeout: float) -> None:
        """Sets the length of segments, unless the topic has a setting of its own. If Kafka refuses, the log says what
        to set, and the sidecar goes on: answers only stay on disk for longer than they are kept.
        """
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            (asked,) = admin.describe_configs([topic], request_timeout=timeout).values()
            present = asked.result(timeout)[SEGMENT_MS]
            is_own = present.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            if is_own or int(present.value) <= int(self._segment_ms):
                return
            operation = AlterConfigOpType.SET
            topic.add_incremental_config(ConfigEntry(SEGMENT_MS, self._segment_ms, incremental_operation=operation))
            (changed,) = admin.incremental_alter_configs([topic], request_timeout=timeout).values()
            changed.result(timeout)
        except (KafkaException, TimeoutError) as failure:
            reason = failure.args[0].str() if isinstance(failure, KafkaException) else "no answer in time"
            log.warning(
                "the topic of kept answers has long segments, so answers stay on disk for longer than they are kept; "
                "set segment.ms of the topic, or let the sidecar describe and alter its settings",
                topic=self.topic, segment_ms=self._segment_ms, reason=reason,
            )  # fmt: skip
        else:
            log.info("the topic of kept answers has short segments now", topic=self.topic, segment_ms=self._segment_ms)

    def read(self, take: Callable[[str, KeptAnswer], None], timeout: float) -> None:
        """Gives `take` each answer that was committed since the last call. The first call begins with the oldest answer
        that is still kept. KafkaException when the call did not reach the end in time: the next call goes on behind the
        last answer.
        """
        deadline = time.monotonic() + timeout
        consumer = Consumer(
            {
                **self._properties,
                "group.id": f"{self.topic}.reader",  # required by the client; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            start = self._next_offset
            if start is None:
                since = int(time.time() * 1000) - self._keep_ms
                start = self._offset_since(consumer, since, deadline)
            consumer.assign([TopicPartition(self.topic, PARTITION, start)])
            self._read_to_the_end(consumer, take, deadline)
        finally:
            consumer.close()

    def _offset_since(self, consumer: Consumer, since: int, deadline: float) -> int:
        """The offset of a time. Waits until the client sees the topic, which may have been made a moment ago."""
        asked = TopicPartition(self.topic, PARTITION, since)
        while True:
            left = deadline - time.monotonic()
            try:
                (found,) = consumer.offsets_for_times([asked], max(left, 0))
            except KafkaException as failure:
                if failure.args[0].code() not in _NOT_SEEN_YET or left <= 0:
                    raise
                time.sleep(VISIBLE_POLL_SECONDS)
            else:
                return int(found.offset)

    def _read_to_the_end(self, consumer: Consumer, take: Callable[[str, KeptAnswer], None], deadline: float) -> None:
        while True:
            # not `consume`: it waits for the wanted number of messages, and counts the end of the partition as one
            message = consumer.poll(max(deadline - time.monotonic(), 0))
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{self.topic} could not be read to its end"))
            error = message.error()
            if error is None:
                _give(message, take)
                self._next_offset = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)


def _give(message: Message, take: Callable[[str, KeptAnswer], None]) -> None:
    """Gives the answer in a message. A message of another program is skipped: it must not stop the sidecar."""
    try:
        key, answer = (message.key() or b"").decode(), KeptAnswer.decoded(message.value() or b"")
    except ValueError:
        return
    take(key, answer)
