"""One Kafka consumer, as an instance uses it.

All methods belong to one thread; `interrupt` alone may come from elsewhere.

How reading works
1. A message that came from Kafka is first *held*, then *taken* into an answer. What does not fit into the answer
   stays held and comes first in the next one.
2. An answer is ready when its byte limit is reached, or when something is there and a short linger has passed. At
   least one record is taken, however large.
3. A record counts as read when it is in an answer; only then may its offset be committed. A record that does not fit
   its format stays held: the read ends before it, or names it when it comes first.
4. An answer that did not reach the backend is given back: its records are held again, before all others.
5. A partition that is taken away takes along what is held and read of it: its next owner continues at the last
   commit.
6. While the backend does not read, the partitions are paused and the consumer is polled all the same. So a quiet
   backend does not lose its membership and does not hold up the rebalances of its group.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar import metrics
from services.sidecar.consuming.records import Commit, Consumed, Consumption, InstanceOptions, Partition, ReadRequest
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats import Format, FormatError

POLL_SECONDS = 0.1
"""How late a read sees that it was interrupted."""
PAUSE_AFTER_SECONDS = 1.0
"""A backend that reads in a loop comes back sooner; pausing costs it what was fetched ahead."""
OFFSETS_SECONDS = 5.0
"""Bound of a question for committed offsets."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one read."""

    linger_seconds: float
    max_records: int


class GroupConsumer:
    """A member of a group, opened when made. Fault when its configuration is refused."""

    def __init__(self, properties: dict[str, Any], options: InstanceOptions, limits: ReadLimits) -> None:
        self._options = options
        self._limits = limits
        self._held: deque[Message] = deque()
        self._handed: deque[Message] = deque()  # the last answer, as it came from Kafka,
        self._taken: list[Consumed] = []  # and as the backend got it
        self._read: dict[Partition, int] = {}
        self._topics: tuple[str, ...] = ()
        self._pattern = ""
        self._assigned_at: float | None = None
        self._paused = False
        self._last_read = time.monotonic()
        self._missing_topics: dict[str, str] = {}
        self._error: Fault | None = None
        self._interrupted = threading.Event()
        try:
            self._consumer = Consumer({**properties, "error_cb": self._on_error, "on_commit": self._on_commit})
        except (KafkaException, ValueError, TypeError) as error:
            raise Fault(
                FaultKind.CONSUMER_CONFIG_EXCEPTION, f"Consumer configuration exception with message {error}"
            ) from None

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """From now on reads these topics, and no others."""
        self._subscribe(list(topics))
        self._topics, self._pattern = topics, ""

    def subscribe_pattern(self, pattern: str) -> None:
        """From now on reads all topics whose whole name matches."""
        self._subscribe([f"^({pattern})$"])
        self._topics, self._pattern = (), pattern

    def unsubscribe(self) -> None:
        """Leaves the group's topics."""
        self._consumer.unsubscribe()
        self._forget_all()
        self._topics, self._pattern = (), ""

    def subscription(self) -> tuple[str, ...]:
        """The topics asked for; for a pattern, those that it has found."""
        if self._pattern:
            return tuple(sorted({partition.topic for partition in self._consumer.assignment()}))
        return self._topics

    def assignment(self) -> list[Partition]:
        """Partitions that this member has."""
        return sorted(Partition(given.topic, given.partition) for given in self._consumer.assignment())

    def read(self, request: ReadRequest, not_after: float) -> list[Consumed]:
        """Records, or none when the time is over. Fault when nothing can be read, with the reason.

        It ends by `not_after` on the monotonic clock, as nobody waits for its records then.
        """
        if not (self._topics or self._pattern):
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION,
                "Consumer is not subscribed to any topics; POST .../subscriptions first",
            )
        try:
            self._resume()
            taken = self._gather(request, time.monotonic(), not_after)
        finally:
            self._last_read = time.monotonic()
        if not taken:
            self._explain_nothing()
        for record in taken:
            self._read[Partition(record.topic, record.partition)] = record.offset + 1
        metrics.consumed_records.inc(len(taken))
        metrics.consumed_bytes.inc(sum(record.size for record in taken))
        if self._options.auto_commit and taken:
            self._store()
        return taken

    def give_back(self, taken: list[Consumed]) -> bool:
        """The answer of the last read did not reach the backend: its records come again. False when it is too late."""
        handed, self._handed = self._handed, deque()
        if not handed or taken is not self._taken:
            return False
        self._held.extendleft(reversed(handed))
        for record in reversed(taken):
            self._read[Partition(record.topic, record.partition)] = record.offset
        if self._options.auto_commit:
            self._store()
        return True

    def commit(self, asked: list[Consumption] | None, *, wait: bool) -> list[Commit]:
        """Commits what was consumed, or all that was read. Fault when Kafka refuses."""
        if asked is None:
            offsets = [TopicPartition(place.topic, place.partition, offset) for place, offset in self._read.items()]
        else:
            offsets = [
                TopicPartition(one.partition.topic, one.partition.partition, one.offset + 1, one.metadata)
                for one in asked
            ]
        if not offsets:
            return []
        try:
            if not wait:
                self._consumer.commit(offsets=offsets, asynchronous=True)
                return _commits(offsets)
            done: list[TopicPartition] = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            metrics.commit_failures.inc()
            raise Fault(
                FaultKind.FAILED_TO_COMMIT_OFFSETS, f"Failed to commit offsets: {error.args[0].str()}"
            ) from None
        refused = [f"{one.topic}-{one.partition}: {one.error.str()}" for one in done if one.error is not None]
        if refused:
            metrics.commit_failures.inc()
            raise Fault(FaultKind.FAILED_TO_COMMIT_OFFSETS, f"Failed to commit offsets: {', '.join(refused)}")
        return _commits(done)

    def committed(self, partitions: list[Partition]) -> list[Commit]:
        """The group's committed offsets; partitions without one are left out."""
        asked = [TopicPartition(one.topic, one.partition) for one in partitions]
        try:
            found: list[TopicPartition] = self._consumer.committed(asked, timeout=OFFSETS_SECONDS)
        except KafkaException as error:
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Cannot read committed offsets: {error.args[0].str()}"
            ) from None
        return _commits([one for one in found if one.error is None and one.offset >= 0])

    def keep_alive(self) -> None:
        """Serves the group while the backend does not read."""
        if time.monotonic() - self._last_read < PAUSE_AFTER_SECONDS:
            return
        if not self._paused:
            self._paused = True
            self._consumer.pause(self._consumer.assignment())
        message = self._consumer.poll(0)
        if message is not None:
            self._hold(message)

    def interrupt(self) -> None:
        """A read that waits shall answer now, with what it has."""
        self._interrupted.set()

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()

    def _subscribe(self, topics: list[str]) -> None:
        self._forget_all()
        try:
            self._consumer.subscribe(
                topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
        except KafkaException as error:
            raise Fault(
                FaultKind.VALIDATOR_SCHEMA,
                f"Schema Validation Error - /topic_pattern: cannot subscribe: {error.args[0].str()}",
            ) from None
        self._last_read = time.monotonic()

    def _gather(self, request: ReadRequest, started: float, not_after: float) -> list[Consumed]:
        taken: list[Consumed] = []
        self._taken, self._handed = taken, deque()
        size = 0
        patience = (
            self._options.read_timeout if request.timeout is None else min(request.timeout, self._options.read_timeout)
        )
        joined_by = started + max(patience, request.timeout or 0)
        min_bytes = min(self._options.min_bytes, request.max_bytes)
        while True:
            while self._held and len(taken) < self._limits.max_records:
                message = self._held[0]
                room = request.max_bytes - size
                if taken and len(message) + len(message.key() or b"") > room:
                    return taken
                record = self._decoded(message, request.format, is_first=not taken)
                if record is None:
                    return taken
                taken.append(record)
                size += record.size
                self._handed.append(self._held.popleft())
            now = time.monotonic()
            remaining = min(self._wait_until(started, patience, joined_by), not_after) - now
            is_full = len(taken) >= self._limits.max_records
            enough = is_full or (size >= min_bytes if min_bytes > 0 else bool(taken))
            if enough or remaining <= 0 or self._error is not None or self._interrupted.is_set():
                return taken
            self._fetch(min(POLL_SECONDS, remaining))

    def _wait_until(self, started: float, patience: float, joined_by: float) -> float:
        """Until when to wait for records: the group has to be joined first, which may take longer than records may."""
        if self._assigned_at is None:
            return joined_by
        return min(joined_by, max(self._assigned_at, started) + patience)

    def _fetch(self, timeout: float) -> None:
        """The first message as soon as it is there, then what comes within the linger."""
        first = self._consumer.poll(timeout)
        if first is None:
            return
        self._hold(first)
        for message in self._consumer.consume(self._limits.max_records - 1, timeout=self._limits.linger_seconds):
            self._hold(message)

    def _hold(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._held.append(message)
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._missing_topics[message.topic() or ""] = error.str()
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED):
            log.warning("consumer instance reports an error", error=error.str(), code=error.name())
            if not error.retriable():
                self._error = Fault(
                    FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Consumer read failed: {error.str()}"
                )

    def _explain_nothing(self) -> None:
        """Raises why a read has nothing to give, if there is a reason that the backend should know."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._missing_topics and not self._consumer.assignment():
            missing, self._missing_topics = self._missing_topics, {}
            raise Fault(FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, "; ".join(missing.values()))

    def _decoded(self, message: Message, format_: Format | None, *, is_first: bool) -> Consumed | None:
        """The record. One that does not fit its format is None after others, and a Fault when it comes first."""
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        key, value = message.key(), message.value()
        try:
            return Consumed(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp=message.timestamp()[1],
                key=_of("key", format_ or self._options.key_format, key),
                value=_of("value", format_ or self._options.value_format, value),
                headers=_headers(message),
                size=len(key or b"") + len(value or b""),
            )
        except FormatError as error:
            if not is_first:
                return None
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION,
                f"Record {topic}-{partition} offset {offset} does not fit its format: {error}; "
                "read it with ?format=binary to get past it",
            ) from None

    def _store(self) -> None:
        mine = {Partition(one.topic, one.partition) for one in self._consumer.assignment()}
        offsets = [TopicPartition(one.topic, one.partition, at) for one, at in self._read.items() if one in mine]
        self._consumer.store_offsets(offsets=offsets)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._consumer.resume(self._consumer.assignment())

    def _forget_all(self) -> None:
        self._held.clear()
        self._handed.clear()
        self._read.clear()
        self._missing_topics.clear()
        self._assigned_at = None
        self._error = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        metrics.rebalances.labels("assigned").inc()
        consumer.assign(partitions)
        if self._paused:
            consumer.pause(partitions)
        self._assigned_at = time.monotonic()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        metrics.rebalances.labels("revoked").inc()
        gone = {Partition(one.topic, one.partition) for one in partitions}
        self._held = deque(
            kept for kept in self._held if Partition(kept.topic() or "", kept.partition() or 0) not in gone
        )
        self._handed.clear()
        for partition in gone:
            self._read.pop(partition, None)
        self._assigned_at = None
        consumer.unassign()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            metrics.commit_failures.inc()
            log.warning("commit failed", error=error.str(), partitions=len(partitions))

    def _on_error(self, error: KafkaError) -> None:
        metrics.client_errors.labels("consumer").inc()
        log.warning("consumer reports an error", error=error.str(), code=error.name())


def _commits(offsets: list[TopicPartition]) -> list[Commit]:
    return [Commit(Partition(one.topic, one.partition), one.offset, one.metadata or "") for one in offsets]


def _of(part: str, format_: Format, content: bytes | None) -> object:
    """A record's key or value; FormatError says which of the two does not fit."""
    if content is None:
        return None
    try:
        return format_.codec.decode(content)
    except FormatError as error:
        raise FormatError(f"its {part} is {error}") from None


def _headers(message: Message) -> dict[str, str]:
    """Headers as text; the last of the same name wins, and bytes that are no UTF-8 are replaced."""
    given: Any = message.headers() or ()
    return {name: (value or b"").decode(errors="replace") for name, value in given}
