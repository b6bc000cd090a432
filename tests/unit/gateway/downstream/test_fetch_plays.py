"""Fetch as a whole, forwarded wherever it may be: the client of `test_fetch_always` reads partitions of two clusters in
each way in which clients ask. Brokers are late, lost or do not lead a partition. The client reads all, nothing twice,
and knows all marks in the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from services.gateway.downstream.fetch_forwarding import FetchForwarder
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.mesh import ClientLimits, Mesh
from services.gateway.downstream.tables import Follower
from services.gateway.requests.plan import (
    Answer,
    Broker,
    Call,
    Gather,
    Lane,
    Outcome,
    Plan,
    RawResponse,
    Request,
    Unreachable,
)
from services.gateway.requests.records import fetch
from services.gateway.requests.records.broker_fetches import NamedSlot
from services.gateway.requests.table import HANDLERS
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.awaiting import Awaiting
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.codec import decode
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import (
    SIZE_BYTES,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
)
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.primitives import Buffer
from tests.unit.gateway.replaceable import ToBroker
from tests.unit.gateway.requests.records.fetching import answer_of, asked, topic_id
from tests.unit.gateway.requests.records.test_fetch_always import BUSY, SLOTS, Client, Play

SOLE: list[NamedSlot] = [("apples", 1)]
FEW: list[NamedSlot] = [("apples", 0), ("apples", 1), ("bananas", 0)]
STEPS = 100
SEEDS = range(4)
IDS = {topic_id(topic): topic for topic in ("apples", "bananas")}
CLIENT = "test"
PLACES = {"c1": 1, "c2": 2}
"""Each cluster has one broker; both have the same number."""
Place = tuple[int, Broker, Lane]


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


class TwoClusters(Clusters):
    """With one broker each, whose connections write down what they are given."""

    def __init__(self, play: "ForwardedPlay") -> None:
        self.known = play.world.clusters
        self.served = {key: handler.versions for key, handler in HANDLERS.items()}
        self.answer_room = AnswerRoom(1 << 30)

    def follow(self, table: object) -> None:
        """Two clusters, always."""

    def incarnation(self, cluster: str, lanes: Lanes) -> int:
        return PLACES[cluster]


class Connection(ToBroker):
    """To the broker of a cluster of the play."""

    def __init__(self, play: "ForwardedPlay", cluster: str) -> None:
        super().__init__(cluster, cluster, 1 << 20, 1000, AnswerRoom(1 << 30))
        self._ready = True
        self.play = play

    def pass_on(self, sent: bytearray | memoryview, awaiting: Awaiting) -> None:
        header = parse_request_header(sent, SIZE_BYTES, len(sent))
        version = header.api_version
        assert header.client_id == CLIENT
        place = place_of(self.cluster)
        on_its_way = self.play.world.session.broker_fetches[place[1]].on_its_way
        assert on_its_way is not None
        assert bytes(sent) == encode_request(on_its_way.message, version, 0, CLIENT), "as its plan writes it"
        message = decode(FetchRequest, version, sent, header.body_offset)
        told = self.play.brokers[self.cluster].answer(message).decode(FetchResponse)
        self.play.unheard[place[0]] = (awaiting, self.play.with_fault(told, version))


def place_of(cluster: str) -> tuple[Place, tuple[str, int]]:
    number = PLACES[cluster]
    return (number, Broker(number), Lane.FETCH), (cluster, number)


def response(told: FetchResponse, version: int) -> RawResponse:
    frame = memoryview(bytearray(encode_response(told, version, 3)))
    header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, version)
    return RawResponse(frame, header.body_offset, version)


class Hearing:
    """The client's connection and its slots, as its forwarder knows them."""

    is_open = True
    answer: Any = None

    def is_next(self, slot: object) -> bool:
        return True

    def answered(self, slot: FetchInFlight, pieces: tuple[Buffer, ...]) -> None:
        frame = memoryview(bytearray().join(pieces))
        header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, slot.version)
        self.answer = RawResponse(frame, header.body_offset, slot.version)

    def has_answer(self, slot: FetchInFlight, answer: Any) -> None:
        self.answer = answer


class Doubting(FetchForwarder):
    """Says whether a plan has to continue."""

    _doubted = False

    def _doubt(self, fetch: FetchInFlight) -> None:
        self._end(fetch)
        fetch.leave_behind(self._lanes.left_behind)
        self._doubted = True

    def has_doubted(self) -> bool:
        """Since the last look."""
        doubted, self._doubted = self._doubted, False
        return doubted


class ForwardedPlay(Play):
    """Its brokers also say that they do not lead a partition."""

    def __init__(self, seed: int, version: int, slots: list[NamedSlot], *, in_session: bool) -> None:
        super().__init__(seed)
        self.version, self.slots = version, slots
        self.client = Asker(dict.fromkeys(slots, 0), version=version, in_session=in_session)
        self.logs.clear()
        self.logs.update(dict.fromkeys(slots, 0))
        self.unheard: dict[Place, tuple[Awaiting | LeftBehind, RawResponse]] = {}
        """Answers that brokers have given and nobody has heard."""
        self.mesh = Mesh(TwoClusters(self), "mesh-id", ClientLimits(), memory=self.world.memory)
        self.forwarded = self.of_several = self.by_plan = 0
        self.connect()

    def connect(self) -> None:
        self.lanes, self.hearing = Lanes(), Hearing()
        for cluster, number in PLACES.items():
            self.lanes.connections[LaneKey(number, number, Lane.FETCH)] = Connection(self, cluster)
        session: Any = self.world.session
        follower = Follower(self.mesh.tables, session)
        hearing: Any = self.hearing
        self.forwarder = Doubting(hearing, hearing, self.mesh, session, follower, self.lanes)
        self.unheard.clear()

    def connect_anew(self) -> None:
        super().connect_anew()
        self.connect()

    def go_on(self) -> None:
        if self.chance.random() < 0.6:
            self.poll()
        else:
            super().go_on()

    def move(self) -> None:
        if self.chance.random() < 0.3:
            super().move()

    def poll(self) -> None:
        self._poll(lambda: self.chance.choice(["now"] * 4 + ["late"] * 3 + ["lost"]))

    def with_fault(self, told: FetchResponse, version: int) -> RawResponse:
        if told.responses and self.chance.random() < 0.05:
            first = told.responses[0].partitions[0]
            first.error_code, first.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
            if version >= 12:
                first.current_leader.leader_id = 3
        return response(told, version)

    def _slot(self) -> NamedSlot:
        return self.chance.choice([slot for slot in BUSY if slot in self.slots] or self.slots)

    def _poll(self, fate: Callable[[], str]) -> None:
        if self.mesh.table is not self.world.table:
            self.mesh.run_table(self.world.table)
        frame = memoryview(bytearray(encode_request(self.client.request(), self.version, 7, CLIENT)))
        request = Request(parse_request_header(frame, SIZE_BYTES, len(frame)), frame)
        answer = self._forwarded(request, fate)
        if answer is None:
            self.by_plan += 1
            answer = self._played(fetch.handle(request, self.world.view()), fate)
        self.client.take(answer_of(answer, self.version))

    def _forwarded(self, request: Request, fate: Callable[[], str]) -> Answer | None:
        forwarder = self.forwarder
        found = forwarder.place(request.header, request.frame, self.world.now)
        if found is None:
            return None
        self.forwarded += 1
        self.of_several += len(found.parts) > 1
        self.hearing.answer = None
        forwarder.ask(found)
        while not found.ended:
            places: list[Place] = [part.way.kept_at for part in found.parts if part.outcome is None]  # type: ignore[misc]
            place = self.chance.choice(places)
            what = fate()
            if what != "late":
                self._hear(place, what)
            elif not found.alone and self.chance.random() < 0.5:
                found.began -= 60  # its wait is over
                forwarder._look_at_the_time()
        forwarder.abandoned(found)
        if forwarder.has_doubted():
            return self._played(fetch.ended_in_doubt(request, self.world.view(), found, None), fate)
        answer: Answer = self.hearing.answer
        return answer

    def _hear(self, place: Place, what: str) -> None:
        waiter, told = self.unheard.pop(place)
        cluster = "c1" if place[0] == PLACES["c1"] else "c2"
        outcome = told if what == "now" else Unreachable(cluster, "connection lost")
        if not isinstance(waiter, LeftBehind):
            raise AssertionError(waiter)
        taker = waiter.taker
        if isinstance(outcome, RawResponse) and hasattr(waiter, "answered"):
            waiter.answered(outcome.frame, False)
        elif hasattr(waiter, "failed"):
            waiter.failed(outcome)
        else:
            assert taker is not None
            self.lanes.left_behind.pop(place)
            taker(outcome, True)

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

    def _outcome(self, call: Call, what: str) -> Outcome | None:
        place, waiting = place_of(call.cluster)[0], self.lanes.left_behind
        left = waiting.get(place)
        told: Outcome | None = None
        if left is not None and left.key == (call.resume_key, None):
            told = left.outcome if left.outcome is not None else self.unheard.pop(place)[1]
        else:
            message = self.brokers[call.cluster].answer(asked(call)).decode(FetchResponse)
            told = response(message, call.version)
        waiting.pop(place, None)
        self.unheard.pop(place, None)
        if what == "late":
            left = waiting[place] = LeftBehind((call.resume_key, None))
            if isinstance(told, RawResponse) and self.chance.random() < 0.5:
                self.unheard[place] = (left, told)
            else:
                left.keep(told)
            return None
        return told if what == "now" else Unreachable(call.cluster, "connection lost")


@pytest.mark.parametrize("slots", [SOLE, FEW, SLOTS], ids=["sole", "few", "all"])
@pytest.mark.parametrize(
    ("version", "in_session"),
    [
        *((version, False) for version in (4, 6, 8, 11, 12, 13, 18)),
        *((version, True) for version in (7, 9, 11, 12, 13, 18)),
    ],
)
async def test_a_client_reads_all_and_nothing_twice(version: int, in_session: bool, slots: list[NamedSlot]) -> None:
    forwarded = by_plan = of_several = 0
    for seed in SEEDS:
        play = ForwardedPlay(seed, version, slots, in_session=in_session)
        for _ in range(STEPS):
            play.go_on()
        play.read_to_the_end()
        forwarded, by_plan = forwarded + play.forwarded, by_plan + play.by_plan
        of_several += play.of_several
    assert forwarded > by_plan / 3, "most of it was to be forwarded"
    assert of_several or slots is SOLE
