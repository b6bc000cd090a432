"""One client of Kafka as a member of a group, or as a reader of partitions of its own.

The membership knows its partitions, whether they are paused, and its fault. It does not handle messages. All methods
belong to one thread, and the two callbacks run on it, within `poll` and `consume`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar.consuming.instance_values import GroupProtocol, Interest
from services.sidecar.consuming.positions import Position
from services.sidecar.faults import Fault, FaultKind, invalid
from services.sidecar.records import Commit, Partition
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.client_errors import ClientErrors

METADATA_SECONDS = 2.0
"""Bound of the question which partitions there are."""

log = structlog.get_logger(__name__)

ASK_AGAIN_SECONDS = 0.1
"""The first pause before Kafka is asked again for committed offsets. Each further pause is twice as long."""
ASK_AGAIN_AT_MOST_SECONDS = 2.0
"""The longest pause before Kafka is asked again."""

_ON_THE_WAY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of a new or changed coordinator, which are not reported to a backend."""
_NOT_YET = {KafkaError._STATE, KafkaError._PREV_IN_PROGRESS, KafkaError._IN_PROGRESS}
Changed = Callable[[set[Partition]], None]
Committed = Callable[[list[Commit]], None]


class Membership:
    """The client, opened when made. Fault when its configuration is refused."""

    def __init__(
        self,
        properties: dict[str, Any],
        on_changed: Changed,
        on_committed: Committed,
        *,
        on_revoked: Changed | None = None,
        on_lost: Changed | None = None,
    ) -> None:
        """`on_changed` is called with partitions that come and go.

        If they are set, two other callbacks get the partitions that go: `on_revoked` while they may still be committed,
        `on_lost` when another member has them already. `on_committed` gets the commits that Kafka took from each
        asynchronous commit.
        """
        self.interest = Interest()
        self.assigned_at: float | None = None
        """The time of the assignment, on the monotonic clock; None while the member waits for its partitions."""
        self.rests = False
        self.starts: dict[Partition, int] = {}
        """The start offsets of partitions that are still to be assigned."""
        self._on_changed = on_changed
        self._on_revoked = on_revoked or on_changed
        self._on_lost = on_lost or on_changed
        self._on_committed = on_committed
        self._missing_topics: dict[str, str] = {}
        self._may_be_missing: set[Partition] = set()
        """Partitions assigned by hand that may not exist. The client reports no error for a missing partition."""
        self._fault: Fault | None = None
        self._client_errors = ClientErrors("consumer")
        self._ask_again_at: float | None = None
        """When Kafka is to be asked again where fresh partitions begin, on the monotonic clock."""
        self._ask_again_after = ASK_AGAIN_SECONDS
        self._is_broken = False
        self.is_of_brokers_group = properties.get("group.protocol") == GroupProtocol.CONSUMER.value
        """Whether the broker assigns the partitions (KIP-848)."""
        self._is_incremental = self.is_of_brokers_group or "cooperative" in str(
            properties.get("partition.assignment.strategy", "")
        )
        try:
            self.client = Consumer({**properties, "error_cb": self._on_error, "on_commit": self._on_commit})
        except (KafkaException, ValueError, TypeError) as error:
            raise Fault(
                FaultKind.CONSUMER_CONFIG_EXCEPTION, f"Consumer configuration exception with message {error}"
            ) from None

    def follow(self, interest: Interest) -> None:
        """From now on reads this, and nothing else. Fault when the client does not take it; then it reads nothing."""
        self._leave()
        try:
            if interest.partitions:
                partitions = [TopicPartition(one.topic, one.partition) for one in interest.partitions]
                self.client.assign(partitions)
                self.client.resume(partitions)  # the client remembers that a partition rested when it last had it
                self.assigned_at = time.monotonic()
                self._may_be_missing = set(interest.partitions)
            elif interest.is_shared:
                topics = list(interest.topics) or [f"^({interest.pattern})$"]
                self.client.subscribe(
                    topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_loss
                )
        except KafkaException as error:
            raise invalid("/topic_pattern", f"cannot subscribe: {error.args[0].str()}") from None
        self.interest = interest

    def assignment(self) -> list[Partition]:
        """Partitions that it has; none while it leaves."""
        if not self.interest:
            return []
        return sorted(Partition(given.topic, given.partition) for given in self.client.assignment())

    def poll(self, timeout: float) -> Message | None:
        """A message, if there is one in time. Serves the group."""
        self._ask_again_in_time()
        message = self.client.poll(timeout)
        return message if message is not None and self._is_good(message) else None

    def consume(self, count: int, timeout: float) -> list[Message]:
        """As many messages as there are in time."""
        self._ask_again_in_time()
        return [message for message in self.client.consume(count, timeout=timeout) if self._is_good(message)]

    def rest(self) -> None:
        """No messages until it wakes."""
        if not self.rests:
            self.rests = True
            self.client.pause(self.client.assignment())

    def wake(self) -> None:
        if self.rests:
            self.rests = False
            self.client.resume(self.client.assignment())

    def has_fresh(self, partitions: Iterable[Partition]) -> bool:
        """Whether no record came yet from one of these partitions since its assignment."""
        asked = [TopicPartition(one.topic, one.partition) for one in partitions]
        return any(one.offset < 0 for one in self.client.position(asked))

    def begin(self, positions: list[Position], others: Mapping[Partition, int]) -> bool:
        """Begins partitions, also new ones, at these positions.

        Whether all others had to begin again, too, at `others`.

        A seek does not work: the client may still wait for Kafka's answer about the start offset, and would then jump
        to that offset.
        """
        begun = [TopicPartition(one.partition.topic, one.partition.partition, one.offset) for one in positions]
        if self._is_incremental and self.interest.is_shared:
            self.client.incremental_unassign(begun)
            self.client.incremental_assign(begun)
            return False
        moved = {one.partition for one in positions}
        kept = [one for one in self.assignment() if one not in moved]
        begun += [TopicPartition(one.topic, one.partition, others.get(one, OFFSET_INVALID)) for one in kept]
        self.client.assign(begun)
        return True

    def seek(self, position: Position) -> bool:
        """A partition goes on there. False when this has to be tried again."""
        partition = position.partition
        try:
            self.client.seek(TopicPartition(partition.topic, partition.partition, position.offset))
        except KafkaException as error:
            if error.args[0].code() in _NOT_YET:
                return False
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE, f"Cannot seek in {partition}: {error.args[0].str()}"
            ) from None
        return True

    def commit(self, offsets: list[TopicPartition], *, wait: bool) -> list[Commit]:
        """Commits. Fault when Kafka refuses."""
        try:
            if not wait:
                self.client.commit(offsets=offsets, asynchronous=True)
                return _commits(offsets)
            done: list[TopicPartition] = self.client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            metrics.commit_failures.inc()
            raise Fault(
                FaultKind.FAILED_TO_COMMIT_OFFSETS, f"Failed to commit offsets: {error.args[0].str()}"
            ) from None
        refused = [f"{one.topic}-{one.partition}: {one.error.str()}" for one in done if one.error is not None]
        if refused:
            metrics.commit_failures.inc()
            raise Fault(FaultKind.FAILED_TO_COMMIT_OFFSETS, f"Failed to commit offsets: {', '.join(refused)}")
        commits = _commits(done)
        self._on_committed(commits)
        return commits

    def committed(self, partitions: list[Partition], timeout: float) -> list[Commit]:
        """The group's committed offsets; partitions without one are left out."""
        asked = [TopicPartition(one.topic, one.partition) for one in partitions]
        try:
            found: list[TopicPartition] = self.client.committed(asked, timeout=timeout)
        except KafkaException as error:
            raise Fault(
                FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Cannot read committed offsets: {error.args[0].str()}"
            ) from None
        return _commits([one for one in found if one.error is None and one.offset >= 0])

    def fault(self) -> Fault | None:
        """The fault for the backend if no record can be read. A fault that may pass is reported once."""
        if self._fault is not None:
            fault = self._fault
            if not self._is_broken:
                self._fault = None
            return fault
        self._look_for_partitions()
        if self._missing_topics and (self.interest.partitions or not self.client.assignment()):
            missing, self._missing_topics = self._missing_topics, {}
            return Fault(FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, "; ".join(missing.values()))
        return None

    @property
    def has_failed(self) -> bool:
        """Whether a waiting read should end with a fault now."""
        return self._fault is not None

    @property
    def is_broken(self) -> bool:
        """Whether the client cannot go on at all."""
        return self._is_broken

    @property
    def problem(self) -> str:
        """The reason why the member cannot read; empty if it can."""
        return self._fault.description if self._fault is not None else "; ".join(self._missing_topics.values())

    def close(self) -> None:
        """Leaves the group; a static member stays in it for its session."""
        if self.interest.is_shared and self.assigned_at is None:
            # librdkafka puts a new subscription off until it has left the old one. A close before that would end this
            # process (assertion in rd_kafka_cgrp_destroy_final, librdkafka 2.16).
            self.client.unsubscribe()
        self.client.close()

    def _leave(self) -> None:
        if self.interest.partitions:
            self.client.unassign()
        elif self.interest:
            self.client.unsubscribe()
        self.interest = Interest()
        self.assigned_at = None
        self.rests = False
        self.starts.clear()
        self._missing_topics.clear()
        self._may_be_missing.clear()
        self._ask_again_at, self._ask_again_after = None, ASK_AGAIN_SECONDS
        if not self._is_broken:
            self._fault = None

    def _look_for_partitions(self) -> None:
        """Asks for those that nothing came from yet; of each that is there, once."""
        until = time.monotonic() + METADATA_SECONDS
        for topic in sorted({one.topic for one in self._may_be_missing}):
            try:
                found = self.client.list_topics(topic, timeout=max(until - time.monotonic(), 0)).topics[topic]
            except KafkaException:
                return  # Kafka does not answer; the next read asks again
            missing = {
                one for one in self._may_be_missing if one.topic == topic and one.partition not in found.partitions
            }
            self._may_be_missing = {one for one in self._may_be_missing if one.topic != topic} | missing
            if found.error is None and missing:
                names = ", ".join(map(str, sorted(missing)))
                self._missing_topics[topic] = (
                    f"There is no partition {names} (topic {topic} has {len(found.partitions)})"
                )

    def _is_good(self, message: Message) -> bool:
        """Whether the message is a record; an error in its place is kept for the next read."""
        error = message.error()
        if error is None:
            return True
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
            self._missing_topics[message.topic() or ""] = error.str()
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED):
            log.warning("consumer instance reports an error", error=error.str(), code=error.name())
            if not message.topic() and not error.fatal():
                self._ask_again_later()
            if not error.retriable() and error.code() not in _ON_THE_WAY:
                self._fail(error)
        return False

    def _ask_again_later(self) -> None:
        if self._ask_again_at is None:
            self._ask_again_at = time.monotonic() + self._ask_again_after
            self._ask_again_after = min(2 * self._ask_again_after, ASK_AGAIN_AT_MOST_SECONDS)

    def _ask_again_in_time(self) -> None:
        """Assigns new partitions to the client again if Kafka could not give their committed offsets.

        The client would wait for that answer without end (librdkafka 2.16: what an OffsetFetch asked for stays "being
        queried" when its answer is an error of the whole group), and never read them.
        """
        if self._ask_again_at is None or time.monotonic() < self._ask_again_at:
            return
        self._ask_again_at = None
        positions = self.client.position(self.client.assignment())
        fresh = [TopicPartition(one.topic, one.partition) for one in positions if one.offset < 0]
        if not fresh:
            self._ask_again_after = ASK_AGAIN_SECONDS
            return
        metrics.starts_asked_again.inc()
        if self._is_incremental or not self.interest.is_shared:
            self.client.incremental_unassign(fresh)
            self.client.incremental_assign(fresh)
        else:
            begun = [one for one in positions if one.offset >= 0]
            self.client.assign(fresh + begun)
        if self.rests:
            self.client.pause(fresh)

    def _fail(self, error: KafkaError) -> None:
        """Keeps the error for the next read; after a fatal error, for each read."""
        self._fault = Fault(FaultKind.UNEXPECTED_CONSUMER_READ_EXCEPTION, f"Consumer read failed: {error.str()}")
        self._is_broken = self._is_broken or error.fatal() or error.code() == KafkaError._FATAL

    def _on_assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        metrics.rebalances.labels("assigned").inc()
        self._on_changed({Partition(one.topic, one.partition) for one in partitions})
        for one in partitions:
            start = self.starts.pop(Partition(one.topic, one.partition), None)
            if start is not None:
                one.offset = start
        if self._is_incremental:
            client.incremental_assign(partitions)
        else:
            client.assign(partitions)
        # the client remembers whether a partition rested when it last had it
        (client.pause if self.rests else client.resume)(partitions)
        self.assigned_at = time.monotonic()

    def _on_revoke(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        metrics.rebalances.labels("revoked").inc()
        self._on_revoked({Partition(one.topic, one.partition) for one in partitions})
        self._let_go(client, partitions)

    def _on_loss(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        metrics.rebalances.labels("lost").inc()
        self._on_lost({Partition(one.topic, one.partition) for one in partitions})
        self._let_go(client, partitions)

    def _let_go(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_incremental:
            client.incremental_unassign(partitions)
        else:
            self.assigned_at = None
            client.unassign()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            metrics.commit_failures.inc()
            log.warning("commit failed", error=error.str(), partitions=len(partitions))
        self._on_committed(_commits([one for one in partitions if error is None and one.error is None]))

    def _on_error(self, error: KafkaError) -> None:
        self._client_errors(error)
        if error.fatal():
            self._fail(error)


def _commits(offsets: list[TopicPartition]) -> list[Commit]:
    return [Commit(Partition(one.topic, one.partition), one.offset, one.metadata or "") for one in offsets]
