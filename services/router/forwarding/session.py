"""One session of a rule: from taking over until an error, or until the order changes.

Theory of operation
1. A session reads the source without a group, from the offsets that the targets store, and writes in transactions: some
   records, and in the same transaction the position behind them. Records without a committed transaction are read
   again; committed records are never read again.
2. Several targets have a transaction and a position each. The session reads a partition from the lowest position; a
   target that is ahead skips the records that it has.
3. Every error ends the session with a Setback. The session repairs nothing and retries nothing: the worker begins a new
   session, which knows only the state on the targets. So there is one way to recover, and it is used often.
4. Every wait has a bound. A transaction has a bound in records, bytes and time.
5. A position can be invalid: the source has deleted the records there, or the topic was deleted and created again. An
   invalid position is a setback, never a jump: a jump would lose records without a message to anybody. An operator
   rewinds the rule.
6. Records that a mirror copies unchanged go through `_copy`: the loop in which a microsecond counts. Other records go
   through `_judge`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from mesh.judging.records import UnjudgedError
from services.router.forwarding import places, upkeep
from services.router.forwarding.connections import REQUEST_TIMEOUT, Cluster, Setback, setback
from services.router.forwarding.groups import GroupFollower, Way
from services.router.forwarding.lanes import Counts, Lane, PartitionState
from services.router.forwarding.memory import SourcePartition
from services.router.forwarding.orders import RunRule
from services.router.forwarding.points import Point
from services.router.forwarding.provenance import HEADER, Stamp
from services.router.forwarding.records import Fate, Message, NotNowError, Write
from services.router.forwarding.target import Target
from services.router.forwarding.tasks import Task

CHUNK = 4000
"""Records that are taken from the consumer at a time."""
MOST_RECORDS = 20_000
"""In one transaction."""
MOST_BYTES = 16 * 1024 * 1024
"""In one transaction, but for the chunk that goes beyond it."""
TRANSACTION_SECONDS = 0.25
"""A transaction takes no new records after so long."""
GATHERING_SECONDS = 0.02
"""How long the first record of a transaction waits for further ones."""
IDLE_SECONDS = 0.2
"""Longest wait for a record; then the session checks whether its order has changed."""
LOOK_SECONDS = 5.0
"""Seconds between two checks of the topics of both clusters."""
POSITION_SECONDS = 1.0
"""Positions that moved without a record written are committed so often."""
POINT_SECONDS = 10.0
POINT_RECORDS = 10_000
"""A signpost is kept when the last one is so old, or so many offsets away."""


class Session:
    """Used by one thread; `lanes` may be read by others, entry by entry."""

    def __init__(self, order: RunRule, task: Task, source: Cluster, targets: Sequence[Target], counts: Counts) -> None:
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.last_answer = time.monotonic()
        """When records, or the word that there are none, were last had from the source."""
        self.last_commit = time.monotonic()
        self._followers: list[GroupFollower] = []
        self._order = order
        self._task = task
        self._source = source
        self._targets = targets
        self._by_name = {target.cluster.name: target for target in targets}
        self._counts = counts
        self._fresh = Counts()
        self._consumer = source.consumer()
        self._next_look = 0.0
        self._moved: dict[tuple[str, int], Lane] = {}
        """Lanes whose position is not committed yet."""
        self._cluster_ids: dict[str, str] = {}
        self._topic_ids: dict[str, str] = {}
        """Topic ids of the source at the last check."""
        self.stamp_of: Callable[[str, str], Stamp] = Stamp
        """Makes the stamp of a rule and its source: another one, where traces are carried on."""
        self._stamp = Stamp(order.spec.record_rule_id, "")

    @property
    def problem(self) -> str:
        """A problem that an operator should know although the rule still copies records."""
        return next((each.problem for each in self._followers if each.problem), "")

    @property
    def groups_synced_at(self) -> float | None:
        """When groups' offsets were last translated in this session, in seconds since 1970."""
        return next((each.synced_at for each in self._followers), None)

    @property
    def groups_in_use(self) -> int:
        """Groups that have members on the target, and get no offsets there."""
        return sum(each.in_use for each in self._followers)

    def open(self) -> None:
        """Reads the clusters' topics, takes over the transactional id, and finds the start offsets."""
        metadata = self._source.metadata()
        self._cluster_ids[self._source.name] = metadata.cluster_id
        for target in self._targets:
            there = target.cluster.metadata()
            self._cluster_ids[target.cluster.name] = there.cluster_id
            if self._task.mirror is not None and there.cluster_id == metadata.cluster_id:
                raise Setback(
                    f"clusters {self._source.name!r} and {target.cluster.name!r} are one and the same Kafka cluster "
                    f"({metadata.cluster_id}): a mirror goes from one to another"
                )
            if absent := self._task.needed.get(target.cluster.name, frozenset()) - there.topics.keys():
                names = ", ".join(sorted(absent))
                raise Setback(f"cluster {target.cluster.name!r} has no topic {names}; create it, or name another one")
            upkeep.ensure_positions(target.cluster, there)
        self._stamp = self.stamp_of(self._order.spec.record_rule_id, metadata.cluster_id)
        for target in self._targets:
            target.take_over()
        new = self._look(metadata)
        lanes = list(self.lanes.values())
        places.rewind(self._source, self._targets, self._task, self._order.rewinds, lanes, self._topic_ids)
        places.recognise(self._source, self._targets, lanes, self._topic_ids)
        self._read_on(new)
        self._let_groups_follow()

    def turn(self) -> None:
        """Moves some records, or finds that there are none for a moment. Setback: the session is over."""
        now = time.monotonic()
        if now >= self._next_look:
            new = self._look(self._source.metadata())
            places.recognise(self._source, self._targets, list(self.lanes.values()), self._topic_ids)
            self._read_on(new)
        try:
            messages = self._consumer.consume(1, IDLE_SECONDS)
            until = time.monotonic() + TRANSACTION_SECONDS
            while messages:
                self._take(messages)
                taken = self._fresh
                if taken.written >= MOST_RECORDS or taken.bytes >= MOST_BYTES or time.monotonic() > until:
                    break
                messages = self._consumer.consume(CHUNK, GATHERING_SECONDS)
            idle = now - self.last_commit > POSITION_SECONDS
            if self._fresh.written or (idle and (self._moved or self._has_new_sync())):
                self._commit()
            self._source.check()
        except KafkaException as error:
            for target in self._targets:
                self._settle(target)
            raise setback(f"rule {self._task.rule_id!r}", error) from error
        except UnicodeDecodeError as error:
            raise Setback(f"a header's name is no text: {error}") from error

    def states(self) -> list[PartitionState]:
        """How far each partition is, as committed; without those of which nothing was fetched yet."""
        states = []
        for lane in list(self.lanes.values()):
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*lane.source), cached=True)
            position = min(lane.committed)
            if end >= 0:  # negative: nothing was fetched yet
                states.append(PartitionState(lane.source, position, max(end, position)))
        return states

    def close(self) -> None:
        """Closes the clients of the session; open transactions are aborted."""
        self._stamp.ended("aborted")
        for follower in self._followers:
            follower.stop()
        for target in self._targets:
            target.close()
        self._consumer.close()

    # Records

    def _take(self, messages: list[Message]) -> None:
        self.last_answer = time.monotonic()
        if self._task.plan is None:
            self._copy(messages)
        else:
            self._judge(messages)

    def _copy(self, messages: list[Message]) -> None:
        """Each record as it is, but for our header. One target: this is a mirror."""
        [target] = self._targets
        target_id = self._cluster_ids[target.cluster.name]
        target.begin()
        produce, moved = target.produce, self._moved
        stamp, tail = self._stamp, self._stamp.first_tail
        size = written = been_there = 0
        for message in messages:
            if (error := message.error()) is not None:
                self._heed(message, error)
                continue
            source = (message.topic(), message.partition())
            lane = moved.get(source) or self._set_out(source)
            if lane is None:
                continue
            offset, headers = message.offset(), message.headers()
            if headers is None:
                headers = [(HEADER, b"%d%b" % (offset, tail))]
            elif target_id in stamp.clusters(headers):
                lane.position = offset + 1
                been_there += 1
                continue
            else:
                headers = stamp.stamped(headers, offset, lane.target_topic)
            value, key = message.value(), message.key()
            timestamp = message.timestamp()[1]
            try:
                produce(lane.target_topic, value, key, source[1], lane.arrived, None, timestamp, headers)
            except BufferError:
                target.write(lane.target_topic, value, key, source[1], lane.arrived, timestamp, headers)
            lane.position = offset + 1
            written += 1
            if value is not None:
                size += len(value)
        self._fresh.written += written
        self._fresh.been_there += been_there
        self._fresh.bytes += size

    def _judge(self, messages: list[Message]) -> None:
        """Writes each record as the plan decides."""
        assert self._task.plan is not None
        for message in messages:
            if (error := message.error()) is not None:
                self._heed(message, error)
                continue
            source = (message.topic(), message.partition())
            lane = self._moved.get(source) or self._set_out(source)
            if lane is None:
                continue
            try:
                writes = self._task.plan(message)
            except (UnjudgedError, NotNowError) as refusal:
                if any(each.position > each.began for each in self._moved.values()):
                    self._commit()  # what came before it is not read again, however often this one is
                raise Setback(f"{source[0]}-{source[1]} offset {message.offset()}: {refusal}") from refusal
            if not writes:
                self._fresh.filtered += 1
            for write in writes:
                self._write(lane, message, write)
            lane.position = message.offset() + 1

    def _write(self, lane: Lane, message: Message, write: Write) -> None:
        target = self._by_name[write.cluster]
        offset = message.offset()
        if offset < lane.committed[self._targets.index(target)]:
            return
        came_from = message.headers()
        if self._task.mirror and self._cluster_ids[write.cluster] in self._stamp.clusters(came_from):
            self._fresh.been_there += 1
            return
        target.begin()
        headers = self._stamp.stamped(write.headers, offset, write.topic)
        target.write(write.topic, write.value, write.key, write.partition, lane.arrived, write.timestamp, headers)
        self._fresh.written += 1
        self._fresh.dead += write.fate is Fate.DEAD
        self._fresh.bytes += len(write.value or b"")

    def _set_out(self, source: tuple[str, int]) -> Lane | None:
        """A lane has its first record in this transaction. None: its topic is gone."""
        lane = self.lanes.get(source)
        if lane is not None and source not in self._moved:
            lane.set_out()
            self._moved[source] = lane
        return lane

    def _heed(self, message: Message, error: KafkaError) -> None:
        """Handles an error that the consumer returns in place of a record."""
        source = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            lane = self.lanes.get(source)
            if lane is not None and message.offset() > lane.position:  # marks of transactions, records given up
                self._set_out(source)
                lane.position = message.offset()
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source in self.lanes:
            raise self._out_of_range(self.lanes[source])
        if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN or error.code() == KafkaError._TRANSPORT:
            return  # librdkafka goes on by itself; that nothing comes shows in last_answer
        raise setback(f"cluster {self._source.name!r}, {source[0]}-{source[1]}", KafkaException(error))

    def _out_of_range(self, lane: Lane) -> Setback:
        topic, number = lane.source
        first, end = self._consumer.get_watermark_offsets(TopicPartition(topic, number), REQUEST_TIMEOUT)
        return Setback(
            f"{topic}-{number} on cluster {self._source.name!r}: the next offset to read is {lane.position}, the log "
            f"has {first} to {end}: records are gone that were not read. Rewind the rule to go on without them"
        )

    def _commit(self) -> None:
        """Ends the transaction of each target, with the positions in it."""
        for index, target in enumerate(self._targets):
            target.begin()
            self._settle(target)
            target.commit(list(self._entries(index, target)))
            for lane in self._moved.values():
                lane.committed[index] = max(lane.committed[index], lane.position)
                target.memory.positions[lane.source] = lane.committed[index]  # should its topic go and come back
        for lane in self._moved.values():
            if lane.first >= 0:
                lane.points.note(Point(lane.began, lane.first))
        self._moved.clear()
        self._stamp.ended()
        self.last_commit = time.monotonic()
        self._fresh.transactions = 1
        self._counts.add(self._fresh)
        self._fresh = Counts()

    def _settle(self, target: Target) -> None:
        """Waits for the records of a transaction. Setback: a record can't arrive, so the transaction can't commit."""
        lanes = self._moved.values()
        target.settle(lambda: any(lane.is_refused for lane in lanes))
        if failed := [lane for lane in lanes if lane.failure is not None]:
            lane = max(failed, key=lambda each: each.is_refused)
            names = ", ".join(target.cluster.name for target in self._targets)
            place = f"a record of {lane.source.topic}-{lane.source.number} to cluster {names}"
            raise setback(place, KafkaException(lane.failure))

    def _entries(self, index: int, target: Target) -> Any:
        now = time.monotonic()
        for lane in self._moved.values():
            if lane.position > lane.committed[index]:
                yield target.memory.position_entry(lane.source, lane.position)
            if self._task.mirror and lane.first >= 0 and self._worth_keeping(lane, now):
                lane.points.keep(Point(lane.began, lane.first))
                lane.point_at = now
                yield target.memory.points_entry(lane.source, lane.points)
        for follower in self._followers:
            if follower.carried_out > target.memory.carried_out.synced:
                target.memory.carried_out.synced = follower.carried_out
                yield target.memory.carried_out_entry()

    def _worth_keeping(self, lane: Lane, now: float) -> bool:
        last = lane.points.last_kept
        return last is None or lane.began - last.source >= POINT_RECORDS or now - lane.point_at >= POINT_SECONDS

    # Groups

    def _let_groups_follow(self) -> None:
        if self._task.mirror is None:
            return
        [target] = self._targets
        synced = target.memory.carried_out.synced
        orders = [each for each in self._order.syncs if each.revision > synced]
        source_id = self._cluster_ids[self._source.name]
        follower = GroupFollower(
            self._task.rule_id, self._source, source_id, target.cluster, self._ways, self._task.groups, orders
        )
        self._followers = [follower]
        follower.start()

    def _ways(self) -> dict[SourcePartition, Way]:
        return {
            lane.source: Way(lane.target_topic, lane.committed[0], lane.points) for lane in list(self.lanes.values())
        }

    def _has_new_sync(self) -> bool:
        synced = self._targets[0].memory.carried_out.synced
        return any(each.carried_out > synced for each in self._followers)

    # Topics and places

    def _look(self, metadata: Any) -> list[Lane]:
        """Meets new topics and partitions, which it gives back, and keeps the target's topics in step."""
        counts = {topic: count for topic, count in upkeep.counts_of(metadata).items() if self._task.takes(topic)}
        if self._task.topic and not counts:
            raise Setback(f"topic {self._task.topic!r} is not on cluster {self._source.name!r}")
        names = {topic: self._task.mirror.target(topic) for topic in counts} if self._task.mirror else {}
        if self._task.in_step:
            [target] = self._targets
            upkeep.keep_in_step(self._source, target.cluster, names, counts)
        self._topic_ids = upkeep.topic_ids(self._source, counts)
        there = [SourcePartition(topic, number) for topic, count in counts.items() for number in range(count)]
        new = [each for each in there if each not in self.lanes]
        if new or not self._targets[0].memory.carried_out.begun:
            self._end_transactions()
            opened = places.opened(self._source, self._targets, self._task, new, names, self._topic_ids)
            self.lanes.update({lane.source: lane for lane in opened})
        gone = [lane for lane in self.lanes.values() if lane.source.topic not in counts]
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*lane.source) for lane in gone])
            for lane in gone:
                self.lanes.pop(lane.source)
                self._moved.pop(lane.source, None)
        self._next_look = time.monotonic() + LOOK_SECONDS
        return [self.lanes[each] for each in new]

    def _read_on(self, lanes: Collection[Lane]) -> None:
        self._consumer.incremental_assign([TopicPartition(*lane.source, lane.position) for lane in lanes])

    def _end_transactions(self) -> None:
        """Commits the records that were read so far, before other work begins."""
        if self._moved:
            self._commit()
