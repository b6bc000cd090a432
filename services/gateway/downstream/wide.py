"""Produce requests with several partitions that go straight on: see `requests.records.wide_road`."""

from dataclasses import dataclass

from services.gateway.downstream.hold import Started
from services.gateway.downstream.onward import Onward
from services.gateway.downstream.straight import Look, StraightProduce, StraightWay
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Answer, Body, MeshView, Plan, RawResponse, Request, Unreachable
from services.gateway.requests.records.produce import ended_astray
from services.gateway.requests.records.roads import CORRELATION_END, FLEXIBLE
from services.gateway.requests.records.wide_roads import Course, WideRoad
from services.gateway.requests.traffic.calls import count_wide
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.shared import SharedConnection
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import REQUEST_ID_AT
from services.gateway.wire.primitives import Buffer, WireError, unpack_int32
from services.gateway.wire.scanner import Produced, count_produced
from services.gateway.wire.scanner.produce_response import produce_response_is_clean, with_topic_ids


class WideProduce(StraightProduce):
    """A Produce to several partitions of one broker."""

    __slots__ = ("brought", "course")
    road: WideRoad

    def __init__(
        self, way: "WideWay", road: WideRoad, course: Course, place: tuple[str, int], clients_id: int, deadline: float
    ) -> None:
        super().__init__(way, road, place, clients_id, deadline)
        self.course = course
        self.brought: Produced
        """The counts of the request; set only if traffic is reported."""

    def answered(self, frame: memoryview, owned: bool) -> None:
        road, version = self.road, self.course.sent_version
        if self.seat is not None:
            self._is_heard(frame)
        start, end = CORRELATION_END + (version >= FLEXIBLE), len(frame)
        pieces: list[Buffer] | None = None
        try:
            if version != road.version:
                ids = {leg.name.encode(): leg.topic_id for leg in self.course.legs}
                pieces = with_topic_ids(frame, version, start, end, ids)
                is_stored = pieces is not None
            else:
                is_stored = produce_response_is_clean(frame, version, start, end)
            is_stored = is_stored and (version < FLEXIBLE or not frame[CORRELATION_END])
        except WireError:  # the decoder refuses it
            is_stored = False
        if not is_stored:
            self._went_astray(frame, owned, version)
        elif pieces is None:
            self.way.stored(self, frame)
        else:
            self.way.ended(self, Body(tuple(pieces)), is_stored=True)

    def sent_to(self, topic: str, partition: int) -> tuple[str, int] | None:
        return self.sole if self.course.is_to(topic, partition) else None

    def ended_astray(self, request: Request, mesh: MeshView, outcome: RawResponse | Unreachable) -> Plan:
        course = self.course
        return ended_astray(request, mesh, course.named(), Place(*self.sole), course.batches(), outcome)

    def count(self, traffic: ClientTraffic, session: Session, heard: Answer | None) -> None:
        count_wide(traffic, session, self.road.client_id, self.began, self.course, self.brought, heard)


@dataclass(frozen=True, slots=True)
class _Start:
    """A look, with the broker, the cluster's knowledge and the version that it was about."""

    look: Look
    place: tuple[str, int]
    knowledge: ClusterKnowledge
    sent_version: int


class WideWay(StraightWay):
    """The wide Produce requests of one client connection."""

    __slots__ = ()

    def begun(self, frame: memoryview, now: float) -> WideProduce | None:
        session, mesh = self._session, self._mesh
        road = session.wide_roads.find(frame)
        if road is None:
            return None
        course = road.course(frame, mesh.memory, now)
        if course is None:
            return None
        start = self._start(road, course)
        if start is None:
            return None
        look, place = start.look, start.place
        if self._overtakes(course, place):
            return None
        connection = look.seat.connection(len(frame), now, quick=road.is_quick(course.legs))
        if connection is None:
            road.looks.pop(place, None)  # the connection may have ended: then another one is in its place
            return None
        (clients_id,) = unpack_int32(frame, REQUEST_ID_AT)
        produce = WideProduce(self, road, course, place, clients_id, now + look.timeout_s)
        look.calls.total += 1
        session.producing.append(produce)
        if isinstance(connection, SharedConnection):
            produce.seat, produce.sent_at = look.seat, now
            look.seat.sent()
        traffic = mesh.memory.traffic
        if traffic is not None:
            produce.began = traffic.clock()
            produce.brought = count_produced(frame, course.scan)
        if course.sent_version == road.version:
            connection.pass_on(frame, produce)
        else:
            connection.pass_on_rewritten(ApiKey.PRODUCE, course.sent_version, course.rewritten(frame), produce)
        mesh.producing[produce] = Started(course.topics, look.started.client)
        return produce

    def begun_in_part(self, beginning: memoryview, missing: int, now: float) -> Onward | None:
        return None  # the bytes that its plan would read have not come yet

    def _start(self, road: WideRoad, course: Course) -> _Start | None:
        """The start, if the tables and clusters in force still allow this road; else None."""
        start: _Start | None = road.looks.get(course.place)
        tables, clusters, first = self._mesh.tables, self._mesh.clusters, course.legs[0]
        knowledge, version = first.knowledge, first.sent_version
        if (
            start is None
            or start.look.edition != tables.edition
            or start.look.known is not clusters.known
            or start.knowledge is not knowledge
            or start.sent_version != version
        ):
            if not self._is_in_force(road, course.place[0], knowledge, version):
                self._session.wide_roads.leave(road)
                return None
            look = self._look_at(course.place, road.timeout_ms, course.topics)
            if look is None:
                return None
            start = road.looks[course.place] = _Start(look, course.place, knowledge, version)
        return start

    def _overtakes(self, course: Course, place: tuple[str, int]) -> bool:
        """Whether the request may arrive before an earlier batch of its connection (`Session.overtakes`)."""
        session = self._session
        for other in session.producing:
            sole = other.sole
            if sole is not place and sole != place:
                break
        else:
            return False
        return any(
            session.overtakes(leg.name, part.partition, place)
            for topic, leg in zip(course.scan.topics, course.legs, strict=True)
            for part in topic.partitions
        )
