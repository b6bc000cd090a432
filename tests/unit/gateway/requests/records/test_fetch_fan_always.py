"""Fetch as a whole, straight on to two brokers or in a broker's session wherever that may be: the client of
`test_fetch_always` reads many partitions of two clusters. It reads all, nothing twice, and knows all marks in the end.
"""

from collections.abc import Callable

import pytest

from services.gateway.requests.plan import Answer, Broker, Outcome, RawResponse, Request, Unreachable
from services.gateway.requests.records import fetch
from services.gateway.requests.records.broker_fetches import NamedSlot
from services.gateway.requests.records.fetch_fan import FanAsking, FanPoll, FanQuestion, FetchFan, Part, Step
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
from tests.unit.gateway.requests.records.test_fetch_always import BUSY, SLOTS, Play
from tests.unit.gateway.requests.records.test_fetch_straight_always import CLIENT, START_BYTES, Asker, StraightPlay

FEW = [*BUSY, ("bananas", 1)]
STEPS = 100
SEEDS = range(25)


class FanPlay(StraightPlay):
    """Brokers are late, or say that they do not lead a partition."""

    def __init__(self, seed: int, version: int, slots: list[NamedSlot], *, in_session: bool) -> None:
        Play.__init__(self, seed)
        self.version, self.slots = version, slots
        self.client = Asker(dict.fromkeys(slots, 0), version=version, in_session=in_session)
        self.logs.clear()
        self.logs.update(dict.fromkeys(slots, 0))
        self.straight = self.by_plan = 0

    def go_on(self) -> None:
        if self.chance.random() < 0.5:
            self.poll()
        else:
            Play.go_on(self)

    def poll(self) -> None:
        self._poll(lambda: self.chance.choice(["now"] * 4 + ["late"] * 3 + ["lost"]))

    def move(self) -> None:
        if self.chance.random() < 0.3:
            Play.move(self)

    def _slot(self) -> NamedSlot:
        return self.chance.choice(BUSY)

    def _straight(self, frame: memoryview, request: Request, fate: Callable[[], str]) -> Answer | None:
        fan = self.world.session.fetch_road
        if not isinstance(fan, FetchFan) or fan.table is not self.world.table:
            return None
        for part in fan.parts:
            if part.fetches.on_its_way is not None and self.left.get(_place(part), (None, None))[0] != part.key:
                return None
        asking = fan.take(frame, self.world.memory.fetch_sessions, self.world.now, self.world)
        if asking is None:
            return None
        self.straight += 1
        poll = FanPoll(fan, asking, [FanQuestion(part, part.fetches.on_its_way is not None) for part in asking.parts])
        for question in poll.questions:
            if not question.taken_up:
                self._ask(fan, asking, question.part)
        return self._come(poll, request, fate)

    def _come(self, poll: FanPoll, request: Request, fate: Callable[[], str]) -> Answer:
        step = Step.WAIT
        left = list(poll.questions)
        self.chance.shuffle(left)
        while left and step not in (Step.ANSWER, Step.DOUBT):
            question, outcome = left[0], self._comes(left[0].part, fate())
            step = Step.WAIT
            if outcome is None:
                left.pop(0)
                continue
            step = poll.come(question, outcome)
            if step is Step.ASK:
                self._ask(poll.fan, poll.asking, question.part)
            else:
                left.pop(0)
        if step is not Step.DOUBT:
            return poll.answer()
        for question in poll.questions:
            if question.outcome is not None:
                self.left[_place(question.part)] = (question.part.key, question.outcome)  # type: ignore[assignment]
        return self._played(fetch.ended_in_doubt(request, self.world.view(), poll, None), fate)

    def _ask(self, fan: FetchFan, asking: FanAsking, part: Part) -> None:
        version = part.fetches.terms.version
        request = fan.request(part, asking)
        sent = request_start(START_BYTES + len(request), ApiKey.FETCH, version, 7) + request
        header = parse_request_header(sent, SIZE_BYTES, len(sent))
        assert header.client_id == CLIENT
        message = decode(FetchRequest, version, sent, header.body_offset)
        on_its_way = part.fetches.on_its_way
        assert on_its_way is not None
        assert sent[SIZE_BYTES:] == encode_request(on_its_way, version, 7, CLIENT)[SIZE_BYTES:], "as its plan writes it"
        told = self.brokers[part.place.cluster].answer(message).decode(FetchResponse)
        if told.responses and self.chance.random() < 0.05:
            first = told.responses[0].partitions[0]
            first.error_code, first.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
        frame = memoryview(bytearray(encode_response(told, version, 3)))
        body_at = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, version).body_offset
        self.left[_place(part)] = (part.key, RawResponse(frame, body_at, version))

    def _comes(self, part: Part, fate: str) -> Outcome | None:
        if fate == "late":
            return None
        _, answer = self.left.pop(_place(part))
        return answer if fate == "now" else Unreachable(part.place.cluster, "connection lost")


def _place(part: Part) -> tuple[str, object]:
    return part.place.cluster, Broker(part.place.broker_id)


@pytest.mark.parametrize(
    ("version", "slots", "in_session"),
    [
        *((version, slots, True) for version in (7, 9, 12, 13, 18) for slots in (SLOTS, FEW)),
        *((version, slots, False) for version in (4, 11, 12, 18) for slots in (SLOTS, FEW)),
    ],
)
def test_a_client_reads_all_and_nothing_twice(version: int, slots: list[NamedSlot], in_session: bool) -> None:
    straight = by_plan = 0
    for seed in SEEDS:
        play = FanPlay(seed, version, slots, in_session=in_session)
        for _ in range(STEPS):
            play.go_on()
        play.read_to_the_end()
        straight, by_plan = straight + play.straight, by_plan + play.by_plan
    assert straight > by_plan / 3, "most of it was to be tested straight on"
