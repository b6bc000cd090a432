"""The judge's own producer: plain, idempotent or transactional, by the old protocol of transactions (V1)."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judge.clients.client import Sent
from judge.clients.roads import Roads
from judge.history import Guarantee, Outcome, Place, Send
from judge.protocol.apis import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE
from judge.protocol.batches import Compression, encode
from judge.protocol.connection import NoAnswerError, NotSentError
from judge.protocol.errors import DUPLICATE, END_MAY_HAVE_HAPPENED, MAY_HAVE_HAPPENED, KafkaError, check
from judge.protocol.schema import Message, ProtocolError
from judge.values import record

DELIVERY_S = 20.0
"""Bound of one send, and of each step of a transaction."""
PAUSE_S = 0.1
TRANSACTION_MS = 20_000
TRANSACTION = 1
"""FindCoordinator's key type."""


class GivenUpError(Exception):
    """Not within the bound. `unknown`: some try may have succeeded."""

    def __init__(self, text: str, *, unknown: bool) -> None:
        super().__init__(text)
        self.unknown = unknown


@dataclass(slots=True)
class OwnProducer:
    roads: Roads
    guarantee: Guarantee
    transactional_id: str = ""
    name: str = "own"
    _id: tuple[int, int] | None = None
    _sequences: dict[Place, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def _chance(self) -> random.Random:
        return self.roads.chance

    def send(self, place: Place, values: Sequence[int]) -> Sent:
        unknown = tuple(Send(place, value) for value in values)
        try:
            if self.guarantee is not Guarantee.PLAIN:
                self._begin()
            first = self._stored(place, values)
        except GivenUpError as error:
            self._id = None
            return Sent(Outcome.INFO if error.unknown else Outcome.FAIL, unknown, self.roads.last, str(error))
        return Sent(Outcome.OK, _numbered(place, values, first), self.roads.last)

    def transaction(self, sends: Sequence[tuple[Place, int]], *, commit: bool, between: Callable[[], None]) -> Sent:
        told: list[Send] = []
        ending = False
        try:
            self._begin()
            self._add({place for place, _ in sends})
            for place, value in sends:
                told.extend(_numbered(place, [value], self._stored(place, [value], transactional=True)))
            between()
            ending = commit
            self._end(commit=commit)
        except GivenUpError as error:
            self._id = None  # the next one's InitProducerId ends this transaction
            rest = [Send(place, value) for place, value in sends[len(told) :]]
            outcome = Outcome.INFO if ending and error.unknown else Outcome.FAIL
            note = f"{'commit' if ending else 'aborted' if commit else 'abort'}: {error}"
            return Sent(outcome, (*told, *rest), self.roads.last, note)
        note = "" if commit else "meant to abort"
        return Sent(Outcome.OK if commit else Outcome.FAIL, tuple(told), self.roads.last, note)

    def late_write(self, place: Place, late: int, following: int) -> tuple[Sent, Sent]:
        """The first value is still on its way when its transaction aborts, and arrives in the next one (KIP-890)."""
        self._begin()
        self._add({place})
        data = PRODUCE.frame(7, self.roads.client_id, self._request(place, [late], transactional=True))
        with self.roads.leader_connection(place) as slow:
            slow.write(data[: len(data) // 2])
            self._end(commit=False)
            self._add({place})
            slow.write(data[len(data) // 2 :])
            [topic] = slow.receive(PRODUCE, 7)["topics"]
            if not topic["partitions"][0]["error"]:
                self._sequences[place] += 1  # it was stored: a write that took its number would pass for it
        aborted = Sent(Outcome.FAIL, (Send(place, late),), self.roads.last, "meant to abort, written late")
        try:
            first = self._stored(place, [following], transactional=True)
            self._end(commit=True)
        except GivenUpError as error:
            self._id = None
            outcome = Outcome.INFO if error.unknown else Outcome.FAIL
            return aborted, Sent(outcome, (Send(place, following),), self.roads.last, f"meant: {error}")
        return aborted, Sent(Outcome.OK, _numbered(place, [following], first), self.roads.last)

    def forget(self) -> None:
        """The next send begins with a producer id of its own."""
        self._id = None

    def close(self) -> None:
        self.roads.close()

    def _begin(self) -> None:
        if self._id is not None:
            return
        message = {
            "transactional_id": self.transactional_id or None,
            "timeout_ms": TRANSACTION_MS,
            "producer_id": -1,
            "epoch": -1,
        }

        def attempt() -> Message:
            if self.transactional_id:
                return self.roads.to_coordinator(TRANSACTION, self.transactional_id, INIT_PRODUCER_ID, message)
            return self.roads.to_any(INIT_PRODUCER_ID, message)

        answer = self._until_done(attempt, "InitProducerId")
        self._id = (answer["producer_id"], answer["epoch"])
        self._sequences.clear()

    def _add(self, places: set[Place]) -> None:
        topics = {place.topic for place in places}
        message = {
            **self._identity(),
            "topics": [
                {"name": topic, "partitions": sorted(place.partition for place in places if place.topic == topic)}
                for topic in sorted(topics)
            ],
        }

        def attempt() -> Message:
            answer = self.roads.to_coordinator(TRANSACTION, self.transactional_id, ADD_PARTITIONS, message)
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    check(partition["error"], "AddPartitionsToTxn")
            return answer

        self._until_done(attempt, "AddPartitionsToTxn")

    def _end(self, *, commit: bool) -> None:
        message = {**self._identity(), "commit": commit}
        self._until_done(
            lambda: self.roads.to_coordinator(TRANSACTION, self.transactional_id, END_TXN, message),
            "EndTxn",
            END_MAY_HAVE_HAPPENED,
        )

    def _identity(self) -> Message:
        assert self._id is not None, "begun first"
        return {"transactional_id": self.transactional_id, "producer_id": self._id[0], "epoch": self._id[1]}

    def _stored(self, place: Place, values: Sequence[int], *, transactional: bool = False) -> int | None:
        """The first offset; None if the broker had it already and has forgotten where."""
        message = self._request(place, values, transactional=transactional)

        def attempt() -> Message:
            answer = self.roads.to_leader(place, PRODUCE, message)
            [topic] = answer["topics"]
            [partition] = topic["partitions"]
            if partition["error"] == DUPLICATE:
                return {"base_offset": None}
            check(partition["error"], "Produce")
            found: Message = partition
            return found

        offset = self._until_done(attempt, "Produce")["base_offset"]
        self._sequences[place] += len(values)
        return None if offset is None or offset < 0 else int(offset)

    def _request(self, place: Place, values: Sequence[int], *, transactional: bool) -> Message:
        producer_id, epoch = self._id if self._id is not None and self.guarantee is not Guarantee.PLAIN else (-1, -1)
        records = encode(
            [record(value) for value in values],
            now_ms=int(time.time() * 1000),
            producer_id=producer_id,
            epoch=epoch,
            sequence=-1 if producer_id < 0 else self._sequences[place],
            transactional=transactional,
            compression=self._chance.choice(list(Compression)),
        )
        topic = {"name": place.topic, "partitions": [{"partition": place.partition, "records": records}]}
        return {
            "transactional_id": self.transactional_id or None,
            "acks": -1,
            "timeout_ms": 5000,
            "topics": [topic],
        }

    def _until_done(
        self, attempt: Callable[[], Message], what: str, may_have_happened: frozenset[int] = MAY_HAVE_HAPPENED
    ) -> Message:
        """Repeats the same request until it is answered; an error that is not retriable ends the loop."""
        deadline = time.monotonic() + DELIVERY_S
        unknown = False
        while True:
            try:
                answer = attempt()
                check(answer.get("error", 0), what)
                return answer
            except NotSentError as error:
                said: Exception = error
            except (NoAnswerError, ProtocolError) as error:
                unknown, said = True, error
            except KafkaError as error:
                unknown |= error.code in may_have_happened
                if not error.is_retriable:
                    raise GivenUpError(str(error), unknown=unknown) from error
                self.roads.forget()
                said = error
            if time.monotonic() > deadline:
                raise GivenUpError(f"{what} not within {DELIVERY_S:g} s: {said}", unknown=unknown)
            time.sleep(PAUSE_S)


def _numbered(place: Place, values: Sequence[int], first: int | None) -> tuple[Send, ...]:
    return tuple(Send(place, value, None if first is None else first + number) for number, value in enumerate(values))
