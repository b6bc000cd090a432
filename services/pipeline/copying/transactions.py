"""One Spark task: copies the rest of its partitions, in transactions that also hold the position.

1. The task begins with `init_transactions`, which fences any earlier producer with this lane's id and ends its open
   transaction. Only then the task reads the notes. So the lane resumes exactly behind the committed copies, whenever an
   earlier task was killed.
2. Each transaction has the copies and also the notes of their source partitions.
3. Before a commit, the lane checks that the source topics still have the planned topic ids. Kafka never reuses a topic
   id, so all records that were read before this check came from the right topic.
4. If the target refuses a record, the lane ends; nothing is skipped. Any other failure ends the lane too, and the next
   attempt begins at step 1.

The task runs on any machine that reaches both clusters. A second run, or a zombie of an earlier run, does no harm.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from mesh.judging.records import Record
from services.pipeline.copying.admin import AskedCluster
from services.pipeline.copying.errors import CopyError, SetbackError, forgotten, replaced
from services.pipeline.copying.notes import Note, nobody_of
from services.pipeline.copying.routes import SLOTS
from services.pipeline.copying.tasks import Access, LaneTask, Part, judged, phases
from services.pipeline.copying.transforms import SOURCE_HEADER, TIME_OF_WRITING, Copy, Shape, with_source
from services.pipeline.kafka.admin import CLIENT_ID
from services.pipeline.kafka.positions import Place, StreamError
from services.pipeline.kafka.reader import Batch

MOST_RECORDS = 25_000
"""The most records of one transaction: they stay in memory until the commit."""
MOST_BYTES = 16 * 2**20
"""The most bytes of values that one transaction writes."""
MOST_S = 2.0
"""Seconds that a transaction stays open."""
TRANSACTION_TIMEOUT_S = 60.0
"""Time after which the cluster aborts the transaction of a task that has disappeared."""
COMMIT_TIMEOUT_S = 50.0
ABORT_TIMEOUT_S = 5.0
ROOM_S = 0.1
"""Seconds to wait for free space in the producer's queue before the next try."""
QUEUE_KBYTES = 65_536
LARGEST_RECORD = 100 * 2**20
"""The target decides on the largest record; librdkafka's default would refuse records over 1 MB."""
BURST_S = 0.25
"""Records written at once, in seconds of the rate: the pauses are few, and shorter than a transaction."""
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
WAYS_OUT = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the target, or copy what is before and behind it",
    KafkaError.INVALID_RECORD: "a compacted target takes no record without a key: take another one, or filter them out",
    KafkaError.INVALID_TIMESTAMP: "have copies re-timed (timestamps NOW), or raise its message.timestamp bounds",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the pipeline's user needs the right to write there",
}
"""Remedies for refusals that would occur again at another attempt."""


def copy_lane(task: LaneTask, access: Access) -> None:
    """Copies the rest of the lane. CopyError: it is impossible; SetbackError: it is impossible now."""
    lane = Lane(task, access)
    try:
        lane.run()
    except KafkaException as failure:
        raise lane.problem(failure) from failure
    except StreamError as error:
        raise judged(error, task) from error
    finally:
        lane.close()


class Lane:
    """The copying of one lane."""

    def __init__(self, task: LaneTask, access: Access) -> None:
        self._task, self._access = task, access
        self._properties = access.clusters[task.target]
        self._source = AskedCluster(task.source, access.clusters[task.source], task.timeout_s)
        self._target = AskedCluster(task.target, self._properties, task.timeout_s)
        copy = task.to_topic()
        self._parts = {part.place: part for part in task.parts}
        self._shapes = {part.place: Shape(part.route, copy, part.target_partitions) for part in task.parts}
        self._pace = Pace(task.rate, time.monotonic())
        self._refused: list[tuple[KafkaError, Message]] = []
        self._producer: Any = Producer(self._producer_settings())
        self._groups: dict[str, bytes] = {}
        self._notes: dict[Place, Note] = {}
        """The committed notes."""
        self._moved: dict[Place, Note] = {}
        """The notes of the next commit."""
        self._batches: list[tuple[Part, Sequence[Record]]] = []
        """The batches of the open transaction: they tell the offset of a refused record."""
        self._is_open = False
        self._read = self._bytes = 0
        self._began = time.monotonic()

    def run(self) -> None:
        self._take_over()
        for phase in phases(self._task, self._notes, self._access):
            with phase.reader as reader:
                for batch in reader.read(phase.spans):
                    if batch is not None:
                        self._take(phase.parts[batch.topic, batch.partition], batch, is_kafka=phase.is_kafka)
                    if self._is_due():
                        self._commit(is_kafka=phase.is_kafka)
            self._commit(is_kafka=phase.is_kafka)
        # the offsets that remain before an end hold no records, or were lost before the replay began
        self._moved = {place: note.at(note.end, 0) for place, note in self._notes.items() if not note.is_done}
        self._commit(is_kafka=False)

    def close(self) -> None:
        """Aborts the open transaction.

        If the cluster does not answer, the next `_take_over` or a sweep ends the transaction.
        """
        self._producer.purge()
        if self._is_open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(ABORT_TIMEOUT_S)

    def problem(self, failure: KafkaException) -> CopyError | SetbackError:
        """Converts Kafka's error to an error with a readable message."""
        error: KafkaError = failure.args[0]
        with contextlib.suppress(KafkaException):
            self._producer.poll(0)  # the callback reports refused records
        if self._refused:
            return self._refusal(*self._refused[0])
        if error.code() in FENCED:
            return SetbackError(f"another task goes on with lane {self._task.number} of this replay")
        return SetbackError(f"cluster {self._task.target!r}, lane {self._task.number}: {error.str()}")

    def _producer_settings(self) -> dict[str, Any]:
        usual = {"compression.type": "lz4", "linger.ms": 5}
        refused = (
            self._refused
        )  # a reference to this lane would keep the producer and its threads alive until a garbage collection
        own = {
            "client.id": CLIENT_ID,
            "transactional.id": self._task.transactional_id,
            "transaction.timeout.ms": int(1000 * TRANSACTION_TIMEOUT_S),
            "delivery.timeout.ms": int(1000 * COMMIT_TIMEOUT_S),
            "partitioner": "murmur2",
            "batch.size": min(part.batch_bytes for part in self._task.parts),
            "message.max.bytes": LARGEST_RECORD,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "queue.buffering.max.messages": 2 * MOST_RECORDS,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, message: refused.append((error, message)),
        }
        return {**usual, **self._properties, **own}

    def _take_over(self) -> None:
        self._producer.init_transactions(COMMIT_TIMEOUT_S)
        by_group: dict[str, list[Place]] = {}
        for part in self._task.parts:
            by_group.setdefault(part.route.group, []).append(part.place)
        for group, places in by_group.items():
            self._groups[group] = nobody_of(group)
            notes = self._target.notes(group, [partition for _, partition in places])
            for place in places:
                if place[1] not in notes:
                    raise forgotten(group, self._task.target, place)
                self._notes[place] = notes[place[1]]

    def _take(self, part: Part, batch: Batch, *, is_kafka: bool) -> None:
        """Writes the copies of a batch, as fast as the rate allows."""
        shape, records = self._shapes[part.place], batch.records
        step = self._pace.most_at_once or len(records)
        for first in range(0, len(records), step or 1):
            some = records[first : first + step]
            self._open()
            taken = some if shape.takes_all else [each for each in some if shape.takes(each)]
            self._batches.append((part, taken))
            write = self._copy if shape.is_plain else self._reshape
            write(part, shape, taken)
            self._read += len(some)
            self._advance(part.place, some[-1].offset() + 1, len(taken))
            pause = self._pace.pause_after(len(taken), time.monotonic())
            if pause > 0.0:
                if time.monotonic() + pause > self._began + MOST_S:
                    self._commit(is_kafka=is_kafka)
                time.sleep(pause)
        self._advance(part.place, batch.position, 0)

    def _advance(self, place: Place, position: int, written: int) -> None:
        note = self._moved.get(place, self._notes[place])
        self._moved[place] = note.at(position, written)

    def _copy(self, part: Part, shape: Shape, records: Sequence[Record]) -> None:
        """Copies records that change only by the source header. In this loop the cost of each call counts."""
        produce, topic, partition = self._producer.produce, part.route.target_topic, part.place[1]
        source, size = shape.source_of(partition), 0
        for record in records:
            header = (SOURCE_HEADER, b"%b%d" % (source, record.offset()))
            headers = record.headers()
            value, time_ms = record.value(), record.timestamp()[1]
            if time_ms <= TIME_OF_WRITING:
                self._write(topic, shape(record))
                continue
            headers = with_source(headers, header) if headers else [header]
            try:
                produce(topic, value, record.key(), partition, None, None, time_ms, headers)
            except BufferError:
                self._write(topic, Copy(value, record.key(), partition, time_ms, headers))
            size += len(value) if value is not None else 0
        self._bytes += size

    def _reshape(self, part: Part, shape: Shape, records: Sequence[Record]) -> None:
        for record in records:
            copy = shape(record)
            self._write(part.route.target_topic, copy)
            self._bytes += len(copy.value or b"")

    def _write(self, topic: str, copy: Copy) -> None:
        """Waits for space in the queue, at most as long as a transaction lasts."""
        deadline = time.monotonic() + COMMIT_TIMEOUT_S
        while True:
            try:
                self._producer.produce(
                    topic, copy.value, copy.key, copy.partition, None, None, copy.timestamp, copy.headers
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise SetbackError(
                        f"cluster {self._task.target!r} has taken no record for {COMMIT_TIMEOUT_S:g} s"
                    ) from None
                self._producer.poll(ROOM_S)

    def _open(self) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
            self._began = time.monotonic()

    def _is_due(self) -> bool:
        if not self._moved:
            return False
        return self._read >= MOST_RECORDS or self._bytes >= MOST_BYTES or time.monotonic() > self._began + MOST_S

    def _commit(self, *, is_kafka: bool) -> None:
        """Commits the transaction, with the notes of its copies."""
        if not self._moved:
            return
        self._open()
        if is_kafka:
            self._check_topics()
        for group, metadata in self._groups.items():
            offsets = [
                TopicPartition(SLOTS, place[1], note.position, metadata=note.metadata)
                for place, note in self._moved.items()
                if self._parts[place].route.group == group
            ]
            if offsets:
                self._producer.send_offsets_to_transaction(offsets, metadata, COMMIT_TIMEOUT_S)
        self._producer.commit_transaction(COMMIT_TIMEOUT_S)
        self._is_open = False
        self._notes |= self._moved
        self._moved.clear()
        self._batches.clear()
        self._read = self._bytes = 0
        self._began = time.monotonic()

    def _check_topics(self) -> None:
        planned = {
            self._parts[place].route.source_topic: note.topic_id for place, note in self._moved.items() if note.topic_id
        }
        if not planned:
            return
        for topic, there in self._source.topics(planned).items():
            if there.topic_id != planned[topic]:
                raise replaced(topic, self._task.source)

    def _refusal(self, error: KafkaError, message: Message) -> CopyError | SetbackError:
        place = self._place_of(message)
        text = f"{place} is refused by {self._task.target}/{message.topic()}: {error.str()}"
        way_out = WAYS_OUT.get(error.code())
        if way_out is None:
            return SetbackError(text)
        size = len(message.value() or b"")
        return CopyError(f"{text} (a value of {size} bytes); nothing from there on is copied. Way out: {way_out}")

    def _place_of(self, message: Message) -> str:
        """The offset of a refused copy's original; found by content, because librdkafka returns no headers."""
        content = message.key(), message.value()
        for part, records in self._batches:
            shape = self._shapes[part.place]
            for record in records:
                copy = shape(record)
                if (copy.key, copy.value) == content:
                    return f"{part.place[0]}/{part.place[1]} offset {record.offset()}"
        return f"a record of lane {self._task.number}"


class Pace:
    """A lane's share of the rate, as pauses after each few records. A rate of 0 means no limit."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._free_at = now

    @property
    def most_at_once(self) -> int:
        """The most records to write between two calls of `pause_after`; 0: any number."""
        return max(1, int(self._rate * BURST_S)) if self._rate else 0

    def pause_after(self, records: int, now: float) -> float:
        """Seconds to wait before the next record; unused rate can't be used later."""
        if not self._rate:
            return 0.0
        self._free_at = max(self._free_at, now - BURST_S) + records / self._rate
        return max(0.0, self._free_at - now)
