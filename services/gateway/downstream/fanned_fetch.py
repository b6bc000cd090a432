"""Fetches that go straight on to several brokers, or in a broker's session: see `requests.records.fetch_fan`.

A `FannedFetch` stands for such a poll among the slots of its client's connection. A `_Question` stands for the request
to one broker, among the requests that this broker's connection has sent. If a broker has not answered when the poll is
answered, its question stays in the client's lanes, as with plans. The next poll to this broker continues with the
question.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Protocol

from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.passing import Passed
from services.gateway.downstream.tables import Follower
from services.gateway.frame_stream import Passage
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Broker,
    Lane,
    MeshView,
    Outcome,
    RawResponse,
    Request,
    Unreachable,
)
from services.gateway.requests.records.fetch import ended_in_doubt
from services.gateway.requests.records.fetch_fan import FanPoll, FanQuestion, FetchFan, Part, Step
from services.gateway.requests.records.fetch_poll import GRACE_S
from services.gateway.requests.traffic.calls import count_fanned_fetch
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lanes import LaneKey, Lanes, LeftBehind
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import REQUEST_ID_AT, SIZE_BYTES, RequestHeader, parse_response_header
from services.gateway.wire.primitives import Buffer, unpack_int32

_NOTHING = memoryview(b"")


class Client(Protocol):
    """The connection of the client whose polls these are."""

    @property
    def is_open(self) -> bool: ...

    def view(self, header: RequestHeader) -> MeshView: ...

    def straight_fetch_ended(self, fetch: "FannedFetch", answer: Answer | Passed) -> None:
        """An answer in bytes may lie in a receive buffer."""


@dataclass(frozen=True, slots=True)
class Way:
    """The way to one broker."""

    connection: BrokerConnection
    place: tuple[int, Broker, Lane]
    """The key under which its answers are left behind."""
    calls: Count


@dataclass(frozen=True, slots=True)
class Look:
    """The result of checking a road. The result is valid as long as tables and clusters are these."""

    edition: int
    """The edition of the tables."""
    known: Mapping[str, ClusterKnowledge]
    """The knowledge of all clusters."""
    ways: Mapping[Part, Way]


class _Question:
    """A request to one broker, until the broker answers. It may outlast the poll that sent it."""

    __slots__ = ("_lanes", "_left", "_place", "_version", "correlation_id", "deadline")
    api_key = ApiKey.FETCH

    def __init__(self, lanes: Lanes, way: Way, left: LeftBehind, version: int, deadline: float) -> None:
        self._lanes = lanes
        self._place = way.place
        self._left = left
        self._version = version
        self.correlation_id = 0
        self.deadline = deadline

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return None

    def answered(self, frame: memoryview, owned: bool) -> None:
        header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, self._version)
        self._settled(RawResponse(frame, header.body_offset, self._version), owned)

    def failed(self, outcome: Unreachable) -> None:
        self._settled(outcome, True)

    def _settled(self, outcome: RawResponse | Unreachable, owned: bool) -> None:
        waiting, left = self._lanes.left_behind, self._left
        is_there = waiting.get(self._place) is left
        if left.taker is not None:
            if is_there:
                del waiting[self._place]
            left.taker(outcome, owned)
        elif is_there:
            left.keep(outcome if owned else _kept(outcome))


def _kept(outcome: Outcome) -> Outcome:
    """The same outcome, copied out of the receive buffer."""
    if not isinstance(outcome, RawResponse):
        return outcome
    return replace(outcome, frame=memoryview(bytearray(outcome.frame)))


class FannedFetch:
    """See above."""

    __slots__ = (
        "_way",
        "answer",
        "arrived",
        "began",
        "clients_id",
        "close",
        "clusters",
        "done",
        "ended",
        "exchange",
        "poll",
        "road",
        "ways",
    )
    api_key = ApiKey.FETCH
    produces = False

    def __init__(self, way: "FanWay", poll: FanPoll, look: Look, clients_id: int, arrived: float) -> None:
        self._way = way
        self.poll = poll
        self.road = poll.fan
        self.clusters = look.known
        self.ways = look.ways
        self.clients_id = clients_id
        """The correlation id that the client waits for."""
        self.arrived = arrived
        self.began = 0.0
        """The start by the clock of traffic."""
        self.ended = False
        """Whether the poll has ended: it takes no more answers. Its plan may still go on."""
        self.exchange: Exchange | None = None
        """The exchange of its plan, if the poll needs one."""
        self.done = False
        self.answer: list[Buffer] | None = None
        self.close: str | None = None

    @property
    def header(self) -> RequestHeader:
        return RequestHeader(ApiKey.FETCH, self.road.version, self.clients_id, self.road.client_id, 0)

    @property
    def is_over_at(self) -> float:
        """The time at which the client gets the answers that have come."""
        return self.arrived + self.poll.asking.limits.wait_s + GRACE_S

    def go_on(self) -> None:
        """Ask the brokers, now that the poll stands among its client's slots."""
        self._way.ask_all(self)

    def abandon(self) -> None:
        """The client is gone."""
        self.ended = True
        self._way.abandoned()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()


class FanWay:
    """The polls of one client connection that go to several brokers."""

    __slots__ = ("_client", "_current", "_follower", "_lanes", "_loop", "_mesh", "_session", "_timer", "_timer_at")

    def __init__(self, client: Client, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes) -> None:
        self._client = client
        self._mesh = mesh
        self._session = session
        self._follower = follower
        self._lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._current: FannedFetch | None = None
        """The poll that waits for several brokers, or for a question of an earlier poll."""
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all polls: when it fires, it checks the current poll."""
        self._timer_at = 0.0

    def begun(self, frame: memoryview, fan: FetchFan, now: float) -> FannedFetch | None:
        """The poll, if it may skip its plan: `go_on` then sends it to the brokers. None: the poll needs its plan."""
        mesh = self._mesh
        look: Look | None = fan.look
        if look is None or look.edition != mesh.tables.edition or look.known is not mesh.clusters.known:
            look = fan.look = self._look(fan)
            if look is None:
                return None
        waiting = self._lanes.left_behind
        for part, way in look.ways.items():
            if not way.connection.takes_more():
                fan.look = None  # it may have ended: then another one is in its place
                return None
            if part.fetches.on_its_way is not None:
                left = waiting.get(way.place)
                if left is None or left.key != (part.key, None):
                    return None
        asking = fan.take(frame, mesh.memory.fetch_sessions, now, mesh.clusters.answer_room)
        if asking is None:
            return None
        (clients_id,) = unpack_int32(frame, REQUEST_ID_AT)
        questions = [FanQuestion(part, part.fetches.on_its_way is not None) for part in asking.parts]
        fetch = FannedFetch(self, FanPoll(fan, asking, questions), look, clients_id, now)
        if mesh.memory.traffic is not None:
            fetch.began = mesh.memory.traffic.clock()
        return fetch

    def _look(self, fan: FetchFan) -> Look | None:
        """The ways of the road, if the tables and clusters in force still allow this road; else None."""
        clusters, tables = self._mesh.clusters, self._mesh.tables
        if (
            self._follower.view(fan.client_id).table is not fan.table
            or fan.version not in clusters.served.get(ApiKey.FETCH, ())
            or tables.canary is not None  # while a table is tried, every answer is decoded
        ):
            return None
        ways: dict[Part, Way] = {}
        for part in fan.parts:
            (cluster, broker_id), knowledge = part.place, part.knowledge
            if clusters.known.get(cluster) is not knowledge:
                return None
            if part.fetches.terms.version not in knowledge.versions.get(ApiKey.FETCH, ()):
                return None
            incarnation = clusters.incarnation(cluster)
            connection = self._lanes.get(LaneKey(incarnation, broker_id, Lane.FETCH))
            if connection is None:
                return None
            calls = metrics.upstream_calls.labels(cluster, api_name(ApiKey.FETCH))
            ways[part] = Way(connection, (incarnation, Broker(broker_id), Lane.FETCH), calls)
        return Look(tables.edition, clusters.known, ways)

    # --- questions -----------------------------------------------------------------------------------------------

    def ask_all(self, fetch: FannedFetch) -> None:
        questions, waiting = fetch.poll.questions, self._lanes.left_behind
        # kept from here on: asking the other brokers drops answers that have waited for long
        left = [(each, waiting[fetch.ways[each.part].place]) for each in questions if each.taken_up]
        for question in questions:
            if not question.taken_up and not fetch.ended:
                self._ask(fetch, question)
        if (len(questions) > 1 or left) and not fetch.ended:
            self._current = fetch
            self._watch(fetch.is_over_at)
        for question, behind in left:
            if not fetch.ended:
                self._take_up(fetch, question, behind)

    def _ask(self, fetch: FannedFetch, question: FanQuestion) -> None:
        lanes, part, way = self._lanes, question.part, fetch.ways[question.part]
        lanes.drop_old_left_behind()
        request = fetch.road.request(part, fetch.poll.asking)
        left = LeftBehind((part.key, None), taker=partial(self._came, fetch, question))
        lanes.left_behind[way.place] = left
        version = part.fetches.terms.version
        deadline = self._loop.time() + fetch.poll.asking.limits.wait_s + CALL_TIMEOUT_S
        way.calls.total += 1
        way.connection.pass_on_written(ApiKey.FETCH, version, request, _Question(lanes, way, left, version, deadline))

    def _take_up(self, fetch: FannedFetch, question: FanQuestion, left: LeftBehind) -> None:
        """Continue with a question that an earlier poll has asked."""
        left.taker = partial(self._came, fetch, question)
        outcome = left.outcome
        if outcome is not None:
            self._lanes.left_behind.pop(fetch.ways[question.part].place, None)
            left.taker(outcome, True)

    def _watch(self, over_at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= over_at:
                return
            self._timer.cancel()
        self._timer_at = over_at
        self._timer = self._loop.call_at(over_at, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        fetch = self._current
        if fetch is None or fetch.ended:
            return
        if fetch.is_over_at > self._timer_at:
            self._watch(fetch.is_over_at)
        elif fetch.poll.session_went_on:
            self._doubt(fetch)
        else:
            self._answer(fetch)

    def abandoned(self) -> None:
        self._current = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- answers -------------------------------------------------------------------------------------------------

    def _came(self, fetch: FannedFetch, question: FanQuestion, outcome: Outcome, owned: bool) -> None:
        if fetch.ended:
            return
        step = fetch.poll.come(question, outcome)
        if step is Step.ASK and not fetch.ways[question.part].connection.takes_more():
            step = Step.DOUBT
        match step:
            case Step.ANSWER:
                self._answer(fetch)
            case Step.ASK:
                self._ask(fetch, question)
            case Step.WAIT | Step.DOUBT:
                if not owned and question.outcome is not None:
                    question.outcome = _kept(outcome)
                if step is Step.DOUBT:
                    self._doubt(fetch)

    def _answer(self, fetch: FannedFetch) -> None:
        """Answer the poll with the answers that have come."""
        self._end(fetch)
        answer = fetch.poll.answer()
        traffic = self._mesh.memory.traffic
        if traffic is not None:
            count_fanned_fetch(traffic, self._session, fetch.road, fetch.began, fetch.poll.found)
        self._client.straight_fetch_ended(fetch, answer)

    def _end(self, fetch: FannedFetch) -> None:
        """End the poll, and leave behind its questions without an answer."""
        fetch.ended = True
        self._current = None
        waiting = self._lanes.left_behind
        for question in fetch.poll.questions:
            if question.outcome is None:
                left = waiting.get(fetch.ways[question.part].place)
                if left is not None:
                    left.taker = None

    def _doubt(self, fetch: FannedFetch) -> None:
        """Let a plan decide the client's answer, by the table that the request started with. The answers that have come
        are left behind for the plan, too."""
        self._end(fetch)
        waiting = self._lanes.left_behind
        for question in fetch.poll.questions:
            if question.outcome is not None:
                left = LeftBehind((question.part.key, None), question.outcome, monotonic())
                waiting[fetch.ways[question.part].place] = left
        if not self._client.is_open:
            return
        header, fan = fetch.header, fetch.road
        seen = self._mesh.tables.view_of(fan.table)
        clusters = seen.clusters(fetch.clusters)
        mesh = replace(self._client.view(header), table=fan.table, clusters=clusters, now=fetch.arrived)
        began = None if self._mesh.memory.traffic is None else fetch.began
        fetch.exchange = Exchange(
            ended_in_doubt(Request(header, _NOTHING), mesh, fetch.poll, began),
            self._mesh.clusters,
            self._mesh.conversions,
            self._lanes,
            header.client_id,
            lambda _, answer: self._client.straight_fetch_ended(fetch, answer),
            seen.names,
        )
        fetch.exchange.start()
