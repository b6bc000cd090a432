"""The consumer of an instance: the records that it holds, the records that it gave, and the committed offsets.

All methods belong to one thread, and none of them blocks the thread for longer than its own bound. A read that waits
consists of many short calls of `advance`; the thread serves other calls between them.

How reading works
1. A message that came from Kafka is first *held*, then *given* in an answer. A message that does not fit into the
   answer stays held and comes first in the next answer.
2. An answer is ready when its byte limit is reached, or when it has a record and a short linger has passed. It holds at
   least one record, however large.
3. A record counts as given when it is in an answer; only then may its offset be committed. A record that does not fit
   its format stays held. The read ends before this record, or names the record if it comes first.
4. An answer that did not reach the backend is taken back: its records are held again, before all others. When a stream
   ends, its unacknowledged records are taken back too.
5. When a partition is revoked, the consumer forgets its held and given records: the next owner continues at the last
   commit. A seek in a partition has the same effect; other partitions lose nothing.
6. While the backend does not read, or an operator has paused the instance, the partitions are paused. The consumer is
   still polled. So a quiet backend keeps its membership and does not hold up the rebalances of its group.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition

from services.sidecar.consuming.cloud_events import events_in
from services.sidecar.consuming.decoding import decoded
from services.sidecar.consuming.held_records import HeldRecords, Unacknowledged, place_of
from services.sidecar.consuming.instance_values import InstanceOptions, Interest, PartitionStatus
from services.sidecar.consuming.membership import Membership
from services.sidecar.consuming.open_read import OpenRead
from services.sidecar.consuming.partition_lag import PartitionLag
from services.sidecar.consuming.positions import Position, Seek
from services.sidecar.consuming.progress import Progress
from services.sidecar.consuming.seeking import positions_of, within_ends
from services.sidecar.consuming.spare_memory import spare_memory
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.formats.record_reader import RecordReader
from services.sidecar.records import Commit, Consumed, Consumption, Partition
from services.sidecar.telemetry import metrics, topic_metrics

SLICE_SECONDS = 0.1
"""How long one `advance` waits for records: so late others are served, and a read sees that it was interrupted."""
REST_AFTER_SECONDS = 1.0
"""A backend that reads in a loop comes back sooner. A rest loses the prefetched records."""
KEEP_ANSWER_SECONDS = 5.0
"""An answer so old has reached the backend, or was taken back. Its messages hold on to all that came with them."""
OFFSETS_SECONDS = 10.0
"""Bound of a question for committed offsets: after a crash on a busy machine five were once not enough."""
SEEK_SECONDS = 5.0
"""How long a partition may take until it can be sought."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one read."""

    linger_seconds: float
    max_records: int


class GroupConsumer:
    """Opened when made. Fault when its configuration is refused."""

    def __init__(
        self,
        group: str,
        properties: dict[str, Any],
        options: InstanceOptions,
        limits: ReadLimits,
        reader: RecordReader,
    ) -> None:
        self._group = group
        self._reader = reader
        self._options = options
        self._limits = limits
        self._held = HeldRecords()
        self._handed: list[Message] = []  # the last answer, as it came from Kafka,
        self._answer: list[Consumed] = []  # and as the backend got it
        self._is_streaming = False
        self._unacknowledged: Unacknowledged | None = None
        self._progress = Progress()
        self._is_paused = False
        self._last_read = time.monotonic()
        self._membership = Membership(properties, self._forget, self._committed)
        self._partition_lag = PartitionLag(self._membership, self._progress)

    # what is read

    def follow(self, interest: Interest) -> None:
        """From now on reads this, and nothing else. Fault when the client does not take it; then it reads nothing."""
        self._forget(set(self.assignment()))
        self._held.clear()
        self._handed = []
        self._progress.clear()
        self._last_read = time.monotonic()
        self._membership.follow(interest)

    def assignment(self) -> list[Partition]:
        """Partitions that it has."""
        return self._membership.assignment()

    @property
    def is_joined(self) -> bool:
        """Whether the consumer has its assignment."""
        return self._membership.assigned_at is not None

    def pause(self) -> None:
        """Gives nothing until it is resumed, and stays in its group."""
        self._is_paused = True
        self._membership.rest()

    def resume(self) -> None:
        self._is_paused = False

    # reading

    def advance(self, reading: OpenRead, *, is_last: bool) -> list[Consumed] | None:
        """Goes on with a read for a moment. Its answer, or None while it has to go on; the last call answers.

        Fault when nothing can be read, with the reason.
        """
        if reading.is_given_up:
            return None
        self._last_read = now = time.monotonic()
        remaining = reading.ends_at(self._membership.assigned_at) - now
        is_last = is_last or remaining <= 0
        if self._is_paused or reading.room <= 0:
            self._serve_group(0 if is_last else min(SLICE_SECONDS, remaining))
            return [] if is_last else None
        self._membership.wake()
        if not is_last and not self._satisfies(reading):
            self._fetch(reading, min(SLICE_SECONDS, remaining))
        if is_last or self._satisfies(reading) or self._membership.has_failed:
            return self._give(reading)
        return None

    def take_back(self, answer: list[Consumed]) -> bool:
        """The answer of the last read did not reach the backend: its records come again. False when it is too late."""
        if not self._handed or answer is not self._answer:
            return False
        handed, self._handed = self._handed, []
        self._hold_again(handed)
        if self._options.auto_commit:
            self._store()
        return True

    def abandon(self, reading: OpenRead) -> None:
        """Ends a read whose caller has gone; the records of its answer, if there is one, come again."""
        if reading.answer is not None and reading.unacknowledged is None:
            self.take_back(reading.answer)

    # streams

    def open_stream(self, unacknowledged: Unacknowledged | None, starts: dict[Partition, int]) -> None:
        """Begins a stream at these offsets; its records are kept until they are acknowledged."""
        self._is_streaming, self._unacknowledged = True, unacknowledged
        mine = set(self.assignment())
        self._membership.starts = {place: offset for place, offset in starts.items() if place not in mine}
        if known := [Position(place, offset) for place, offset in starts.items() if place in mine]:
            self._move(known)

    def close_stream(self) -> None:
        """Ends the stream; its unacknowledged records are held again."""
        unacknowledged, self._unacknowledged = self._unacknowledged, None
        self._is_streaming = False
        self._membership.starts.clear()
        if unacknowledged is not None:
            self._hold_again(unacknowledged.take_back())

    def acknowledge(self, asked: Iterable[Consumption]) -> list[Commit]:
        """Commits the acknowledged records, and opens the stream's window by as many."""
        if self._unacknowledged is None:
            raise Fault(
                FaultKind.ILLEGAL_CONSUMER_STATE,
                "No stream of this instance waits for acknowledgements; commit with POST .../offsets",
            )
        to_commit = []
        for one in asked:
            given = self._progress.given.get(one.partition)
            if given is None:
                continue  # no record of the partition was given, or another member has it by now
            next_offset = min(one.offset + 1, given)
            if next_offset > self._progress.committed.get(one.partition, 0):
                to_commit.append(Consumption(one.partition, next_offset - 1, one.metadata))
        return self.commit(to_commit, wait=True)

    # offsets

    def commit(self, asked: list[Consumption] | None, *, wait: bool) -> list[Commit]:
        """Commits the consumed records, or all given records. Fault if Kafka refuses."""
        if asked is None:
            offsets = [TopicPartition(one.topic, one.partition, at) for one, at in self._progress.given.items()]
        else:
            offsets = [
                TopicPartition(one.partition.topic, one.partition.partition, one.offset + 1, one.metadata)
                for one in asked
            ]
        return self._membership.commit(offsets, wait=wait) if offsets else []

    def committed(self, partitions: list[Partition]) -> list[Commit]:
        """The group's committed offsets; partitions without one are left out."""
        return self._membership.committed(partitions, OFFSETS_SECONDS)

    @property
    def is_committed(self) -> bool:
        """Whether all that was given is committed."""
        return self._progress.is_committed

    def seek(self, seeks: list[Seek], *, within: bool) -> list[Position]:
        """Moves these partitions to these places; `within`: at most to their end.

        Fault names a partition that is not assigned.
        """
        mine = self.assignment()
        for asked in seeks:
            if asked.partition not in mine:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"Partition {asked.partition} is not assigned to this instance, so it cannot seek there (it has: "
                    f"{', '.join(map(str, mine)) or 'none'}); assign it, or subscribe and read until it is assigned",
                )
        positions = positions_of(seeks, self._membership.client)
        if within:
            positions = within_ends(positions, self._membership.client)
        self._move(positions)
        return positions

    # how it does

    def status(self) -> tuple[PartitionStatus, ...]:
        """The position and lag of the consumer in each partition."""
        return self._partition_lag.status()

    @property
    def problem(self) -> str:
        """The reason why the consumer cannot read; empty if it can."""
        return self._membership.problem

    def serve(self) -> None:
        """Serves the group for a moment, for callers that wait for a change in the group."""
        self._serve_group(SLICE_SECONDS)

    def keep_alive(self) -> None:
        """Serves the group while the backend does not read; also a group that the consumer is leaving."""
        quiet_seconds = time.monotonic() - self._last_read
        if quiet_seconds >= REST_AFTER_SECONDS:
            if not self._membership.rests:
                spare_memory.freed()
            self._serve_group(0)
        if self._handed and quiet_seconds >= KEEP_ANSWER_SECONDS and not self._is_streaming:
            self._handed = []
            spare_memory.freed()
        spare_memory.tidy()

    def close(self) -> None:
        """Leaves the group."""
        self._membership.close()

    def _satisfies(self, reading: OpenRead) -> bool:
        return reading.is_satisfied_by(len(self._held), self._held.bytes)

    def _fetch(self, reading: OpenRead, timeout: float) -> None:
        """Fetches the first message as it comes, then more within the linger, up to the bounds of the answer."""
        first = self._membership.poll(timeout)
        if first is None:
            return
        self._held.add(first)
        until = time.monotonic() + self._limits.linger_seconds
        while (records := reading.room - len(self._held)) > 0 and self._held.bytes < reading.max_bytes:
            average = self._held.bytes // len(self._held) + 1
            some = min(records, (reading.max_bytes - self._held.bytes) // average + 1)
            messages = self._membership.consume(some, max(until - time.monotonic(), 0))
            for message in messages:
                self._held.add(message)
            if len(messages) < some:
                return

    def _give(self, reading: OpenRead) -> list[Consumed]:
        messages = self._held.take(reading.room, reading.max_bytes)
        try:
            decode = events_in if reading.as_events else decoded
            answer = decode(messages, self._options, reading.format, self._reader)
        except Fault:
            self._held.give_back(messages)
            raise
        self._held.give_back(messages[len(answer) :])
        del messages[len(answer) :]
        if not answer and (fault := self._membership.fault()):
            raise fault
        self._handed, self._answer, reading.answer = messages, answer, answer
        self._progress.gave(answer)
        self._count(answer)
        if reading.unacknowledged is not None:
            reading.unacknowledged.add(messages)
        elif self._options.auto_commit and answer:
            self._store()
        return answer

    def _hold_again(self, messages: list[Message]) -> None:
        self._held.give_back(messages)
        self._progress.took_back((place_of(message), message.offset() or 0) for message in messages)

    def _move(self, positions: list[Position]) -> None:
        """Moves some partitions to these positions, and drops their held records."""
        moved = {one.partition for one in positions}
        self._membership.wake()  # a partition that rests would go on where it was
        if self._membership.has_fresh(moved):
            if self._membership.begin(positions, {**self._progress.given, **self._held.first_offsets()}):
                self._held.clear()
        else:
            for position in positions:
                self._seek(position)
        self._forget(moved)
        self._progress.given.update((one.partition, one.offset) for one in positions)
        if self._is_paused:
            self._membership.rest()

    def _seek(self, position: Position) -> None:
        until = time.monotonic() + SEEK_SECONDS
        while not self._membership.seek(position):
            if time.monotonic() > until:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"Partition {position.partition} cannot be sought yet; seek again later",
                )
            if message := self._membership.poll(SLICE_SECONDS):
                self._held.add(message)

    def _serve_group(self, timeout: float) -> None:
        self._membership.rest()
        message = self._membership.poll(timeout)
        if message is not None:
            self._held.add(message)

    def _store(self) -> None:
        mine = set(self.assignment())
        offsets = [
            TopicPartition(one.topic, one.partition, at) for one, at in self._progress.given.items() if one in mine
        ]
        self._membership.client.store_offsets(offsets=offsets)

    def _count(self, answer: list[Consumed]) -> None:
        sizes: dict[str, list[int]] = {}
        for record in answer:
            sizes.setdefault(record.topic, []).append(record.size)
        for topic, of_topic in sizes.items():
            metrics.consumed_records.inc(len(of_topic))
            metrics.consumed_bytes.inc(sum(of_topic))
            topic_metrics.consumed(topic, self._group, records=len(of_topic), size=sum(of_topic))

    def _forget(self, partitions: set[Partition]) -> None:
        """Forgets the state of partitions that are new, revoked or moved."""
        self._held.drop(partitions)
        self._handed = [message for message in self._handed if place_of(message) not in partitions]
        if self._unacknowledged is not None:
            self._unacknowledged.drop(partitions)
        self._progress.forget(partitions)
        self._partition_lag.changed()

    def _committed(self, commits: list[Commit]) -> None:
        self._progress.commits(commits)
        if self._unacknowledged is not None:
            for commit in commits:
                self._unacknowledged.acknowledge(commit.partition, commit.offset)
