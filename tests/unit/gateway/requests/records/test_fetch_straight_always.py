"""Fetch as a whole, straight on wherever it may be: the client of `test_fetch_always` reads few partitions, most of the
time of one cluster, in each way in which clients ask. It reads all, nothing twice, and it knows all marks in the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from services.gateway.requests.plan import Answer, Gather, Outcome, Plan, RawResponse, Request, Unreachable
from services.gateway.requests.records import fetch
from services.gateway.requests.records.broker_fetches import NamedSlot
from services.gateway.requests.records.fetch_road import FetchRoad
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    request_start,
)
from services.gateway.wire.messages import FetchRequest, FetchResponse
from tests.unit.gateway.requests.records.fetching import answer_of, topic_id
from tests.unit.gateway.requests.records.test_fetch_always import Client, Play

FEW: list[NamedSlot] = [("apples", 0), ("apples", 1), ("bananas", 0)]
SOLE: list[NamedSlot] = [("apples", 1)]
STEPS = 120
SEEDS = range(10)
IDS = {topic_id(topic): topic for topic in ("apples", "bananas")}
CLIENT = "test"
START_BYTES = 8


@dataclass
class Asker(Client):
    """With a session or without, by names or ids, as its version has it."""

    version: int = 18
    in_session: bool = True

    def request(self) -> FetchRequest:
        if not self.in_session:
            self.epoch = 0
        message = super().request()
        if not self.in_session:
            message.session_epoch = -1
        if self.version < 13:
            for topic in message.topics:
                topic.topic = IDS[topic.topic_id]
            for forgotten in message.forgotten_topics_data:
                forgotten.topic = IDS[forgotten.topic_id]
        return message

    def take(self, answer: FetchResponse) -> None:
        for topic in answer.responses:
            if self.version < 13:
                topic.topic_id = topic_id(topic.topic)
            for part in topic.partitions:
                if part.error_code:
                    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    part.high_watermark = -1
        super().take(answer)


class StraightPlay(Play):
    """Its brokers also say that they do not lead a partition, and name another one that does."""

    def __init__(self, seed: int, version: int, slots: list[NamedSlot], *, in_session: bool) -> None:
        super().__init__(seed)
        self.version, self.slots = version, slots
        self.client = Asker(dict.fromkeys(slots, 0), version=version, in_session=in_session)
        self.logs.clear()
        self.logs.update(dict.fromkeys(slots, 0))
        self.straight = self.by_plan = self.read_on = 0
        self._move_to("bananas", "c1")

    def go_on(self) -> None:
        if self.chance.random() < 0.7:
            self.poll()
        else:
            super().go_on()

    def poll(self) -> None:
        self._poll(lambda: self.chance.choice(["now"] * 6 + ["late", "lost"]))

    def move(self) -> None:
        if self.chance.random() < 0.2:
            super().move()
        else:
            self._move_to("apples", "c1")
            self._move_to("bananas", "c1")

    def _move_to(self, topic: str, cluster: str) -> None:
        if self.homes[topic] != cluster:
            self.homes[topic] = cluster
            there = self.world.clusters[cluster].topics
            leaders = there[topic]
            self.world.move(topic, cluster)
            there[topic] = leaders

    def _slot(self) -> NamedSlot:
        return self.chance.choice(self.slots)

    def _poll(self, fate: Callable[[], str]) -> None:
        frame = memoryview(bytearray(encode_request(self.client.request(), self.version, 7, CLIENT)))
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        answer = self._straight(frame, Request(header, memoryview(b"")), fate)
        if answer is None:
            self.by_plan += 1
            answer = self._played(fetch.handle(Request(header, frame), self.world.view()), fate)
        self.client.take(answer_of(answer, self.version))

    def _straight(self, frame: memoryview, request: Request, fate: Callable[[], str]) -> Answer | None:
        road = self.world.session.fetch_road
        if not isinstance(road, FetchRoad) or road.table is not self.world.table:
            return None
        reads_on = road.sole is not None and road.sole.read(frame) is not None
        asking = road.take(frame, self.world.memory.fetch_sessions, self.world.now, self.world)
        if asking is None:
            return None
        self.straight += 1
        self.read_on += reads_on
        size = START_BYTES + len(asking.request)
        sent = request_start(size, ApiKey.FETCH, road.sent_version, 7) + asking.request
        header = parse_request_header(sent, SIZE_BYTES, len(sent))
        assert header.client_id == CLIENT
        message = decode(FetchRequest, road.sent_version, sent, header.body_offset)
        assert (message.session_id, message.session_epoch, message.replica_id) == (0, -1, -1)
        outcome = self._said(road.place.cluster, message, road.sent_version, fate())
        view = self.world.view()
        if isinstance(outcome, RawResponse):
            found = road.answered(asking, outcome.frame)
            if found is not None:
                return found[0]
        return self._played(fetch.ended_astray(request, view, road, asking, outcome, None), fate)

    def _played(self, plan: Plan, fate: Callable[[], str]) -> Answer:
        result: Any = None
        while True:
            try:
                command = plan.send(result)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            result = None
            if isinstance(command, Gather):
                result = tuple(self._outcome(call, fate()) for call in command.calls)

    def _said(self, cluster: str, message: FetchRequest, version: int, fate: str) -> RawResponse | Unreachable:
        if fate != "now":
            return Unreachable(cluster, "connection lost")
        told = self.brokers[cluster].answer(message).decode(FetchResponse)
        if message.topics and self.chance.random() < 0.1:
            part = told.responses[0].partitions[0]
            part.error_code, part.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
            if version >= 12:
                part.current_leader.leader_id = 3
        frame = memoryview(bytearray(encode_response(told, version, 3)))
        header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, version)
        return RawResponse(frame, header.body_offset, version)

    def _outcome(self, call: Any, fate: str) -> Outcome | None:
        outcome = super()._outcome(call, fate)
        if isinstance(outcome, RawResponse) and outcome.version != call.version:
            frame = memoryview(bytearray(encode_response(outcome.decode(FetchResponse), call.version, 3)))
            header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, call.version)
            return RawResponse(frame, header.body_offset, call.version)
        return outcome

    def read_to_the_end(self) -> None:
        self.resume()
        for _ in range(20 * max(self.logs.values()) * len(self.slots) + 10):
            self._poll(lambda: "now")
            if self.client.wanted == self.logs and self.client.marks == self.logs:
                break
        assert self.client.wanted == self.logs
        assert self.client.marks == self.logs


@pytest.mark.parametrize("slots", [FEW, SOLE], ids=["few", "sole"])
@pytest.mark.parametrize(
    ("version", "in_session"),
    [
        *((version, False) for version in (4, 6, 8, 11, 12, 13, 18)),
        *((version, True) for version in (8, 11, 12, 13, 16, 18)),
    ],
)
def test_a_client_reads_all_and_nothing_twice(version: int, in_session: bool, slots: list[NamedSlot]) -> None:
    straight = by_plan = read_on = 0
    for seed in SEEDS:
        play = StraightPlay(seed, version, slots, in_session=in_session)
        for _ in range(STEPS):
            play.go_on()
        play.read_to_the_end()
        straight, by_plan, read_on = straight + play.straight, by_plan + play.by_plan, read_on + play.read_on
    assert straight > by_plan / 3, "most of it was to be tested straight on"
    assert read_on or slots is FEW or version < 7, "polls about one partition that read on are not read"
