"""The judge's own consumer: it reads assigned partitions, and sees details that libraries hide."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from judge.clients.client import Committed, Polled
from judge.clients.roads import Roads
from judge.history import Mark, Outcome, Place, Poll
from judge.protocol.apis import FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH
from judge.protocol.batches import Batch, decode
from judge.protocol.connection import NoAnswerError, NotSentError
from judge.protocol.errors import MAY_HAVE_HAPPENED, OUT_OF_RANGE, KafkaError, check
from judge.protocol.schema import Message, ProtocolError
from judge.values import value_of

WAIT_MS = 200
MOST_BYTES = 256 * 1024
READ_COMMITTED = 1
EARLIEST, LATEST = -2, -1
DELIVERY_S, PAUSE_S = 20.0, 0.1
"""Bound of a commit; between two tries."""
GROUP = 0
"""FindCoordinator's key type."""


@dataclass(slots=True)
class OwnConsumer:
    roads: Roads
    group: str = ""
    name: str = "own"
    positions: dict[Place, int] = field(default_factory=dict)
    _jumped: bool = False

    def assign(self, places: Sequence[Place]) -> None:
        self.positions = dict.fromkeys(places, 0)

    def subscribe(self, topics: Sequence[str]) -> None:
        raise NotImplementedError("the judge's own consumer reads assigned partitions; libraries subscribe")

    def poll(self) -> Polled:
        """One Fetch for each leader."""
        self._jumped = False
        polls: list[Poll] = []
        notes: list[str] = []
        for place in list(self.positions):
            try:
                polls.extend(self._fetched(place))
            except (NotSentError, NoAnswerError, KafkaError) as error:
                notes.append(f"{place}: {error}")
                self.roads.forget()
        return Polled(tuple(polls), self._jumped, self.roads.last, "; ".join(notes[:3]))

    def _fetched(self, place: Place) -> Iterator[Poll]:
        asked = {"partition": place.partition, "leader_epoch": -1, "offset": self.positions[place]}
        asked |= {"last_epoch": -1, "log_start": -1, "max_bytes": MOST_BYTES}
        message = {
            "replica_id": -1,
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MOST_BYTES,
            "isolation": READ_COMMITTED,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"name": place.topic, "partitions": [asked]}],
        }
        answer = self.roads.to_leader(place, FETCH, message)
        check(answer["error"], "Fetch")
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                told = Place(topic["name"], partition["partition"])
                if told != place:
                    raise ProtocolError(f"Fetch: {told} was answered, {place} was asked")
                if partition["error"] == OUT_OF_RANGE:
                    self._jumped = True
                    self.positions[place] = self.bound(place, EARLIEST)
                    return
                check(partition["error"], "Fetch")
                if records := tuple(self._visible(place, partition)):
                    yield Poll(place, records)

    def _visible(self, place: Place, partition: Message) -> Iterator[tuple[int, int]]:
        """Committed records from the position on, in the order in which they came."""
        aborted = sorted((each["first_offset"], each["producer_id"]) for each in partition["aborted"] or ())
        dropping: set[int] = set()
        for batch in decode(partition["records"] or b""):
            while aborted and aborted[0][0] <= batch.last_offset:
                dropping.add(aborted.pop(0)[1])
            if batch.control:
                if batch.aborts:
                    dropping.discard(batch.producer_id)
            elif not (batch.transactional and batch.producer_id in dropping):
                yield from self._from_position(place, batch)
            self.positions[place] = max(self.positions[place], batch.last_offset + 1)

    def _from_position(self, place: Place, batch: Batch) -> Iterator[tuple[int, int]]:
        """All of a batch that ends before the position: no broker brings such a one, and a library would hide it."""
        position = self.positions[place] if batch.last_offset >= self.positions[place] else 0
        for offset, data in batch.records:
            if offset >= position:
                yield offset, value_of(data)

    def bound(self, place: Place, which: int, isolation: int = READ_COMMITTED) -> int:
        """The first offset, or the one after the last: the last stable one, or with isolation 0 the last of all."""
        partition = {"partition": place.partition, "leader_epoch": -1, "timestamp": which}
        message = {
            "replica_id": -1,
            "isolation": isolation,
            "topics": [{"name": place.topic, "partitions": [partition]}],
        }
        [topic] = self.roads.to_leader(place, LIST_OFFSETS, message)["topics"]
        [answer] = topic["partitions"]
        check(answer["error"], "ListOffsets")
        return int(answer["offset"])

    def commit(self) -> Committed:
        marks = tuple(Mark(self.group, place, offset) for place, offset in self.positions.items())
        topics = sorted({place.topic for place in self.positions})
        message = {
            "group": self.group,
            "generation": -1,
            "member": "",
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition": place.partition, "offset": offset, "leader_epoch": -1, "metadata": ""}
                        for place, offset in self.positions.items()
                        if place.topic == topic
                    ],
                }
                for topic in topics
            ],
        }
        return self._committed_to(message, marks)

    def _committed_to(self, message: Message, marks: tuple[Mark, ...]) -> Committed:
        """Again until it is answered, as libraries do: the same positions may be stored twice."""
        deadline, unknown = time.monotonic() + DELIVERY_S, False
        while True:
            try:
                answer = self.roads.to_coordinator(GROUP, self.group, OFFSET_COMMIT, message)
                codes = {partition["error"] for topic in answer["topics"] for partition in topic["partitions"]}
                unknown |= len(codes) > 1
                for code in sorted(codes - {0}):
                    raise KafkaError(code, "OffsetCommit")
                return Committed(Outcome.OK, marks, self.roads.last)
            except NotSentError as error:
                said, again = str(error), True
            except NoAnswerError as error:
                said, again, unknown = str(error), True, True
            except KafkaError as error:
                self.roads.forget()
                said, again = str(error), error.is_retriable
                unknown |= error.code in MAY_HAVE_HAPPENED
            if not again or time.monotonic() > deadline:
                return Committed(Outcome.INFO if unknown else Outcome.FAIL, marks, self.roads.last, said)
            time.sleep(PAUSE_S)

    def committed(self, group: str, places: Sequence[Place], within_s: float = 20.0) -> Committed:
        topics = sorted({place.topic for place in places})
        asked = [
            {"name": topic, "partitions": [place.partition for place in places if place.topic == topic]}
            for topic in topics
        ]
        message = {"groups": [{"group": group, "topics": asked}], "stable": True}
        deadline = time.monotonic() + within_s
        while True:
            try:
                [answer] = self.roads.to_coordinator(GROUP, group, OFFSET_FETCH, message)["groups"]
                check(answer["error"], "OffsetFetch")
                marks = []
                for topic in answer["topics"]:
                    for partition in topic["partitions"]:
                        check(partition["error"], "OffsetFetch")
                        place = Place(topic["name"], partition["partition"])
                        marks.append(Mark(group, place, partition["offset"]))
                return Committed(Outcome.OK, tuple(marks), self.roads.last)
            except (NotSentError, NoAnswerError, KafkaError) as error:
                self.roads.forget()
                if time.monotonic() > deadline:
                    return Committed(Outcome.INFO, (), self.roads.last, str(error))
                time.sleep(0.2)

    def close(self) -> None:
        self.roads.close()
