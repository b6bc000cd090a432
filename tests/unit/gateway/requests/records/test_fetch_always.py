"""Fetch as a whole, whatever happens: a client with a session reads two clusters by the gateway's sessions with them.

Brokers answer late or not at all, forget sessions, lose connections; topics move; the client seeks, pauses, resumes and
loses its own session. It never reads a record twice or passes one over, and in the end it has all and knows all marks.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Call, Gather, Outcome, RawResponse, Refresh, Request, Unreachable
from services.gateway.requests.records import fetch
from services.gateway.requests.records.broker_fetches import NamedSlot
from services.gateway.requests.records.fetch_sessions import (
    Asked,
    FetchSessions,
    Marks,
    Position,
    Result,
    Slot,
    told_of,
    wish_of,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import SIZE_BYTES, encode_request, parse_request_header
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.fixtures.sweeps import mostly
from tests.unit.gateway.requests.playbook import World
from tests.unit.gateway.requests.records.fetching import answer_of, asked, raw, topic_id

PARTITIONS = 12
"""Enough for brokers to be asked for sessions."""
SLOTS: list[NamedSlot] = [(topic, number) for topic in ("apples", "bananas") for number in range(PARTITIONS)]
BUSY = [SLOTS[0], SLOTS[1], SLOTS[PARTITIONS]]
"""Where things happen; the others make the sessions worth their while."""
VERSION = 18
STEPS = 60
SEEDS = mostly((*range(16), 352, 547, 664), range(16, 80))
"""The last ones: a mark that a broker tells while its partition is paused was once kept from the client."""


@dataclass
class Broker:
    """Of one cluster; keeps sessions by the rules of KIP-227."""

    logs: dict[NamedSlot, int]
    """How many records each partition has, wherever it lives."""
    sessions: FetchSessions = field(default_factory=FetchSessions)
    ids: int = 0

    def answer(self, request: FetchRequest) -> RawResponse:
        partitions: dict[Slot, Position] = {
            (t.topic, p.partition): Position(p.fetch_offset, p.partition_max_bytes)
            for t in request.topics
            for p in t.partitions
        }
        forgotten = [(t.topic, number) for t in request.forgotten_topics_data for number in t.partitions]
        wish = wish_of(self.sessions, Asked(request.session_id, request.session_epoch, False, partitions, forgotten), 0)
        if isinstance(wish, ErrorCode):
            return raw(error=wish)
        results = {}
        for slot, position in wish.wanted.items():
            end = self.logs[slot]  # type: ignore[index]
            results[slot] = Result(Marks(end, end, 0), record_bytes=int(position.offset < end))
        told = told_of(self.sessions, wish, results, by_ids=False, now=0, random_bits=self._new_id)
        assert not isinstance(told, ErrorCode)
        parts = []
        for slot in told.slots:
            records = b"%d" % wish.wanted[slot].offset if results[slot].record_bytes else b""
            part = PartitionData(slot[1], 0, *results[slot].marks.numbers, records=records)
            parts.append(FetchableTopicResponse(str(slot[0]), partitions=[part]))
        return raw(*parts, session=told.session_id)

    def _new_id(self, bits: int) -> int:
        self.ids += 1
        return self.ids


@dataclass
class Client:
    """Asks as KIP-227 tells it to, from the position behind what it has read."""

    wanted: dict[NamedSlot, int]
    told: dict[NamedSlot, int] = field(default_factory=dict)
    marks: dict[NamedSlot, int] = field(default_factory=dict)
    session_id: int = 0
    epoch: int = 0

    def request(self) -> FetchRequest:
        full = self.epoch == 0
        changed = {slot: at for slot, at in self.wanted.items() if full or self.told.get(slot) != at}
        gone = [] if full else [slot for slot in self.told if slot not in self.wanted]
        self.told = dict(self.wanted)
        topics = {topic: FetchTopic(topic_id=topic_id(topic)) for topic, _ in changed}
        for (topic, number), offset in changed.items():
            topics[topic].partitions.append(FetchPartition(number, fetch_offset=offset, partition_max_bytes=100))
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[ForgottenTopic("", topic_id(topic), [number]) for topic, number in gone],
        )

    def take(self, answer: FetchResponse) -> None:
        if answer.error_code:
            assert answer.error_code in (70, 71), answer.error_code
            self.session_id, self.epoch = 0 if answer.error_code == 70 else self.session_id, 0
            return
        names = {topic_id(topic): topic for topic in ("apples", "bananas")}
        for topic in answer.responses:
            for part in topic.partitions:
                slot = (names[topic.topic_id], part.partition_index)
                assert slot in self.wanted
                records = bytes(part.records or b"")
                if records:
                    assert int(records) == self.wanted[slot], f"{slot}: read twice, or passed over"
                    self.wanted[slot] += 1
                if part.high_watermark >= 0:
                    self.marks[slot] = part.high_watermark
        self.session_id, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0


class Play:
    """Things happen by chance; the same things for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World({"c1": ["apples"], "c2": ["bananas"]}, partitions=PARTITIONS)
        for cluster in self.world.clusters.values():  # each has both topics, and knows who leads them
            (broker,) = cluster.brokers
            for known in [t for other in self.world.clusters.values() for t in other.topics.values()]:
                cluster.topics.setdefault(known.name, type(known)(known.name, known.topic_id, (broker,) * PARTITIONS))
        self.homes = {"apples": "c1", "bananas": "c2"}
        self.logs = dict.fromkeys(SLOTS, 0)
        self.brokers = {cluster: Broker(self.logs) for cluster in self.world.clusters}
        self.client = Client(dict.fromkeys(SLOTS, 0))
        self.paused: dict[NamedSlot, int] = {}
        self.left: dict[tuple[str, object], tuple[object, RawResponse]] = {}
        """What brokers have answered and nobody has taken."""

    def go_on(self) -> None:
        happenings = {
            self.write: 4,
            self.seek: 3,
            self.poll: 8,
            self.pause: 2,
            self.resume: 2,
            self.move: 1,
            self.forget_sessions: 1,
            self.forget_the_clients_session: 1,
            self.connect_anew: 1,
        }
        (happening,) = self.chance.choices(list(happenings), list(happenings.values()))
        happening()

    def write(self) -> None:
        self.logs[self._slot()] += self.chance.randint(1, 3)

    def pause(self) -> None:
        slot = self._slot()
        if slot in self.client.wanted:
            self.paused[slot] = self.client.wanted.pop(slot)

    def resume(self) -> None:
        self.client.wanted |= self.paused
        self.paused.clear()

    def seek(self) -> None:
        slot = self._slot()
        if slot in self.client.wanted:
            self.client.wanted[slot] = self.chance.randint(0, self.logs[slot])

    def move(self) -> None:
        topic, _ = self._slot()
        self.homes[topic] = "c1" if self.homes[topic] == "c2" else "c2"
        there = self.world.clusters[self.homes[topic]].topics
        leaders = there[topic]
        self.world.move(topic, self.homes[topic])
        there[topic] = leaders

    def forget_sessions(self) -> None:
        self.brokers[self.chance.choice(["c1", "c2"])].sessions = FetchSessions()

    def forget_the_clients_session(self) -> None:
        self.world.memory.fetch_sessions.end(self.client.session_id)

    def connect_anew(self) -> None:
        self.world.session = Session()
        self.left.clear()
        self.client.epoch = 0

    def poll(self) -> None:
        """Each call is answered now, late or never."""
        self._poll(lambda: self.chance.choice(["now", "now", "late", "late", "lost"]))

    def read_to_the_end(self) -> None:
        self.resume()
        for _ in range(3 * max(self.logs.values()) * len(SLOTS) + 10):
            self._poll(lambda: "now")
            if self.client.wanted == self.logs and self.client.marks == self.logs:
                break
        assert self.client.wanted == self.logs
        assert self.client.marks == self.logs

    def _poll(self, fate: Any) -> None:
        frame = memoryview(bytearray(encode_request(self.client.request(), VERSION, 7, "test")))
        request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
        plan = fetch.handle(request, self.world.view())
        result: Any = None
        while True:
            try:
                command = plan.send(result)
            except StopIteration as stop:
                self.client.take(answer_of(stop.value, VERSION))
                return
            assert not isinstance(command, Refresh), "all leaders are known"
            result = (
                tuple(self._outcome(call, fate()) for call in command.calls) if isinstance(command, Gather) else None
            )

    def _slot(self) -> NamedSlot:
        return self.chance.choice(BUSY)

    def _outcome(self, call: Call, fate: str) -> Outcome | None:
        place = (call.cluster, call.target)
        key, answer = self.left.get(place, (None, None))
        if key != call.resume_key or answer is None:
            answer = self.brokers[call.cluster].answer(asked(call))
        if fate == "late":
            self.left[place] = (call.resume_key, answer)
            return None
        self.left.pop(place, None)
        return answer if fate == "now" else Unreachable(call.cluster, "connection lost")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_reads_all_and_nothing_twice(seed: int) -> None:
    play = Play(seed)
    for _ in range(STEPS):
        play.go_on()
    play.read_to_the_end()
