"""One process of a run: it chooses an operation, performs it, and records it, until it is stopped."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from judge.clients.client import Consumer, Polled, Producer, Sent, ShareConsumer
from judge.clients.made import Makes
from judge.clients.own_producer import GivenUpError, OwnProducer
from judge.history import Guarantee, Kind, Outcome, Place, Poll
from judge.plan import Client, Process, Role, Topic
from judge.protocol.schema import ProtocolError
from judge.recorder import Recorder

CRASHES = 0.01
"""The share of a process's operations in which its client ends without a goodbye, and a new client replaces it."""
ASSIGNS = 0.02
COMMITS = 0.3
ABORTS = 0.25
RELEASES = 0.1
"""The share of a share group's records that the member releases for others."""
SETTLES_S = 15.0
"""The time in which a share group gives a lost member's partitions to others, and locks end."""
DRAIN_S = 75.0
MOST_VALUES = 5
MOST_PLACES = 6
"""Partitions that a reader assigns."""
LONGEST_PAUSE_S = 0.1


@dataclass(slots=True)
class Worker:
    process: Process
    topics: Sequence[Topic]
    makes: Makes
    recorder: Recorder
    chance: random.Random
    values: Iterator[int]
    stop: threading.Event
    share_session_s: float
    failure: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            match self.process.role:
                case Role.WRITER:
                    self._produce()
                case Role.TRANSACTOR:
                    self._transact()
                case Role.READER | Role.MEMBER:
                    self._read()
                case Role.SHARER:
                    self._share()
        except Exception as error:  # noqa: BLE001  # told by the run, which ends for it
            self.failure.append(error)

    # Writing

    def _produce(self) -> None:
        producer = self.makes.producer(self.process, self.chance)
        while not self._over():
            if self.chance.random() < CRASHES:
                producer = self._crashed(producer)
            self._write(producer)
        producer.close()

    def _write(self, producer: Producer) -> None:
        place = self._place()
        values = list(itertools.islice(self.values, self.chance.randint(1, MOST_VALUES)))
        start = self.recorder.now()
        self._sent(Kind.SEND, producer.send(place, values), start)

    def _transact(self) -> None:
        producer = self.makes.producer(self.process, self.chance)
        reader = self.makes.consumer(self.process, self.chance)
        reader.assign(self._some_places())
        while not self._over():
            if self.chance.random() < CRASHES:
                producer = self._crashed(producer)
            if self.process.late and isinstance(producer, OwnProducer):
                self._write_late(producer)
                continue
            sends = [(self._place(), next(self.values)) for _ in range(self.chance.randint(2, MOST_VALUES))]
            commit = self.chance.random() >= ABORTS
            start = self.recorder.now()
            polled: list[Polled] = []
            sent = producer.transaction(sends, commit=commit, between=partial(_poll_into, reader, polled))
            self._sent(Kind.TXN, sent, start, polled)
        producer.close()
        reader.close()

    def _write_late(self, producer: OwnProducer) -> None:
        start = self.recorder.now()
        try:
            for sent in producer.late_write(self._place(), next(self.values), next(self.values)):
                self._sent(Kind.TXN, sent, start)
        except (GivenUpError, OSError, ProtocolError):
            producer.forget()

    def _sent(self, kind: Kind, sent: Sent, start: float, polled: Sequence[Polled] = ()) -> None:
        polls = [poll for each in polled for poll in each.polls]
        self.recorder.add(
            self.process.name,
            kind,
            sent.outcome,
            start,
            (*sent.sends, *polls),
            self.process.guarantee,
            self.process.client,
            sent.via,
            sent.note,
            rebalanced=any(each.rebalanced for each in polled),
        )

    def _crashed(self, producer: Producer) -> Producer:
        start = self.recorder.now()
        producer.close()
        self.recorder.add(self.process.name, Kind.CRASH, Outcome.OK, start, client=self.process.client)
        return self.makes.producer(self.process, self.chance)

    # Reading

    def _read(self) -> None:
        reader = self._opened()
        while not self._over():
            if self.chance.random() < CRASHES:
                start = self.recorder.now()
                reader.close()
                self.recorder.add(self.process.name, Kind.CRASH, Outcome.OK, start, client=self.process.client)
                reader = self._opened()
            elif self.process.role is Role.READER and self.chance.random() < ASSIGNS:
                self._assign(reader)
            self._poll(reader)
            if self._commits() and self.chance.random() < COMMITS:
                self._commit(reader)
        reader.close()

    def _share(self) -> None:
        reader = self._sharing()
        while not self._over():
            if self.chance.random() < CRASHES:
                start = self.recorder.now()
                reader.close()
                self.recorder.add(self.process.name, Kind.CRASH, Outcome.OK, start, client=self.process.client)
                reader = self._sharing()
            self._take(reader, accept=self.chance.random() >= RELEASES)
        self._drain(reader)
        reader.close()

    def _sharing(self) -> ShareConsumer:
        reader = self.makes.share_consumer(self.process, self.chance)
        reader.subscribe([topic.name for topic in self.topics])
        return reader

    def _take(self, reader: ShareConsumer, *, accept: bool) -> bool:
        """Whether the group may have more to give."""
        start = self.recorder.now()
        given = reader.take(accept=accept)
        if given.taken or given.note:
            self.recorder.add(
                self.process.name,
                Kind.TAKE,
                given.outcome,
                start,
                given.taken,
                client=self.process.client,
                note=given.note,
                group=self.makes.group(self.process),
            )
        return bool(given.taken) or given.outcome is Outcome.INFO

    def _drain(self, reader: ShareConsumer) -> None:
        """A lost member keeps partitions until its session ends; a group that gives nothing for longer has no more."""
        start = quiet = self.recorder.now()
        enough = self.share_session_s + SETTLES_S
        while self.recorder.now() - quiet < enough and self.recorder.now() - start < DRAIN_S:
            if self._take(reader, accept=True):
                quiet = self.recorder.now()
        done = self.recorder.now() - quiet >= enough
        places = [Place(topic.name, partition) for topic in self.topics for partition in range(topic.partitions)]
        self.recorder.add(
            self.process.name,
            Kind.DRAINED,
            Outcome.OK if done else Outcome.INFO,
            start,
            [Poll(place, ()) for place in places],
            client=self.process.client,
            group=self.makes.group(self.process),
        )

    def _commits(self) -> bool:
        """A reader of librdkafka that assigns its partitions has no group to commit in."""
        return self.process.role is Role.MEMBER or self.process.client is Client.OWN

    def _opened(self) -> Consumer:
        reader = self.makes.consumer(self.process, self.chance)
        if self.process.role is Role.MEMBER:
            start = self.recorder.now()
            reader.subscribe([topic.name for topic in self.topics])
            self.recorder.add(self.process.name, Kind.SUBSCRIBE, Outcome.OK, start, client=self.process.client)
        else:
            self._assign(reader)
        return reader

    def _assign(self, reader: Consumer) -> None:
        start = self.recorder.now()
        reader.assign(self._some_places())
        self.recorder.add(self.process.name, Kind.ASSIGN, Outcome.OK, start, client=self.process.client)

    def _poll(self, reader: Consumer) -> None:
        start = self.recorder.now()
        polled = reader.poll()
        if polled.polls or polled.note or polled.rebalanced:
            outcome = Outcome.INFO if polled.note and not polled.polls else Outcome.OK
            self.recorder.add(
                self.process.name,
                Kind.POLL,
                outcome,
                start,
                polled.polls,
                Guarantee.PLAIN,
                self.process.client,
                polled.via,
                polled.note,
                rebalanced=polled.rebalanced,
            )

    def _commit(self, reader: Consumer) -> None:
        start = self.recorder.now()
        done = reader.commit()
        if done.marks:
            self.recorder.add(
                self.process.name,
                Kind.COMMIT,
                done.outcome,
                start,
                done.marks,
                client=self.process.client,
                via=done.via,
                note=done.note,
            )

    # Choosing

    def _place(self) -> Place:
        topic = self.chance.choice(self.topics)
        return Place(topic.name, self.chance.randrange(topic.partitions))

    def _some_places(self) -> list[Place]:
        """Partitions of one topic that moves, or of the topics that stay: a transaction has parts in several."""
        topic = self.chance.choice(self.topics)
        chosen = [topic] if topic.moves else [each for each in self.topics if not each.moves]
        each = max(1, MOST_PLACES // len(chosen))
        return [Place(topic.name, part) for topic in chosen for part in range(min(topic.partitions, each))]

    def _over(self) -> bool:
        return self.stop.wait(self.chance.uniform(0, LONGEST_PAUSE_S))


def _poll_into(reader: Consumer, polled: list[Polled]) -> None:
    polled.append(reader.poll())
