"""Produce requests of one client that go straight on: see `requests.records.straight_road`, which knows which ones may.

One `StraightProduce` stands for such a request from its arrival to its answer. It is in three places: the slots of its
client's connection, the sent requests of its broker's connection, and the requests that a hold waits for.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol

from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.hold import Started
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.onward import Onward
from services.gateway.downstream.tables import Follower
from services.gateway.frame_stream import Passage
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Body,
    Lane,
    MeshView,
    NoAnswer,
    Plan,
    RawResponse,
    Request,
    Unreachable,
)
from services.gateway.requests.records.produce import ended_astray
from services.gateway.requests.records.roads import FLEXIBLE, Road, throttle_ms
from services.gateway.requests.records.straight_road import kept_batch
from services.gateway.requests.records.wide_roads import WideRoad
from services.gateway.requests.traffic.calls import count_straight, is_taken
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.seats import Seat
from services.gateway.upstream.shared import SharedConnection
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.batches import HEADER_BYTES, count_records
from services.gateway.wire.frames import (
    REQUEST_ID_AT,
    REQUEST_START_BYTES,
    SIZE_BYTES,
    RequestHeader,
    parse_response_header,
    request_start,
)
from services.gateway.wire.primitives import Buffer, unpack_int32

_NOTHING = memoryview(b"")


class Client(Protocol):
    """The connection of the client whose requests these are."""

    def view(self, header: RequestHeader) -> MeshView: ...

    def straight_answered(self, slot: "StraightProduce", frame: memoryview) -> None:
        """The broker's answer in these bytes may go to the client as it is. They may lie in a receive buffer."""

    def straight_ended(self, produce: "StraightProduce", answer: Answer) -> None:
        """An answer in bytes may lie in a receive buffer."""

    def onward_came(self, size: int, missing: int) -> None:
        """`size` more bytes of the request that is passed on while it arrives; `missing` bytes come after them."""


class StraightProduce:
    """See above. The part that all roads have in common; the subclasses add the rest."""

    __slots__ = (
        "answer",
        "began",
        "clients_id",
        "close",
        "correlation_id",
        "deadline",
        "done",
        "midway",
        "road",
        "seat",
        "sent_at",
        "sole",
        "way",
    )
    api_key = ApiKey.PRODUCE
    produces = True

    def __init__(
        self, way: "StraightWay", road: Road | WideRoad, place: tuple[str, int], clients_id: int, deadline: float
    ) -> None:
        self.way = way
        self.road = road
        self.sole = place
        """The cluster and broker id that the request goes to."""
        self.clients_id = clients_id
        """The correlation id that the client waits for ..."""
        self.correlation_id: int
        """... and that of the request to the broker, once it has been sent."""
        self.deadline = deadline
        self.began: float
        """The start by the clock of traffic; set only if traffic is reported."""
        self.seat: Seat | None = None
        """The seat, if the request shares a connection with other clients ..."""
        self.sent_at: float
        """... and the time at which it was sent there."""
        self.midway: Onward | None = None
        """The passage of a request that still arrives from its client."""
        self.done = False
        self.answer: list[Buffer] | None = None
        self.close: str | None = None

    @property
    def header(self) -> RequestHeader:
        road = self.road
        return RequestHeader(ApiKey.PRODUCE, road.version, self.clients_id, road.client_id, 0)

    # --- for the broker's connection -----------------------------------------------------------------------------

    def answered(self, frame: memoryview, owned: bool) -> None:
        raise NotImplementedError

    def _is_heard(self, frame: memoryview) -> None:
        """The broker has answered."""
        if self.seat is not None:
            self.seat.answered(self.sent_at, throttle_ms(frame, flexible=self.road.version >= FLEXIBLE))
            self.seat = None

    def _went_astray(self, frame: memoryview, owned: bool, version: int) -> None:
        """The answer does not confirm that all records are stored."""
        header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.PRODUCE, version)
        kept = frame if owned else memoryview(bytearray(frame))
        self.way.astray(self, RawResponse(kept, header.body_offset, version))

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return None  # longer than a plain confirmation: the plan has to read the answer

    def failed(self, outcome: Unreachable) -> None:
        if self.seat is not None:
            self.seat.failed()
            self.seat = None
        if self.midway is not None:
            self.midway.failed(outcome)
        else:
            self.way.astray(self, outcome)

    # --- for other Produce requests of the client ----------------------------------------------------------------

    def sent_to(self, topic: str, partition: int) -> tuple[str, int] | None:
        raise NotImplementedError

    # --- for its client's connection -----------------------------------------------------------------------------

    def ended_astray(self, request: Request, mesh: MeshView, outcome: RawResponse | Unreachable) -> Plan:
        """The plan of the client's answer if the broker has not simply stored the records."""
        raise NotImplementedError

    def count(self, traffic: ClientTraffic, session: Session, heard: Answer | None) -> None:
        """Count the request as traffic. `heard` is the client's answer if the records were not simply stored."""
        raise NotImplementedError


class NarrowProduce(StraightProduce):
    """A Produce to one partition."""

    __slots__ = ("batch_header", "records", "size")
    road: Road
    batch_header: bytes
    records: int
    size: int
    """Records and size are set only if traffic is reported."""

    def answered(self, frame: memoryview, owned: bool) -> None:
        road = self.road
        if self.seat is not None:
            self._is_heard(frame)
        if not road.is_stored(frame):
            self._went_astray(frame, owned, road.sent_version)
            return
        named = road.named
        if named is None:
            self.way.stored(self, frame)
        else:
            self.way.ended(self, Body((named.topic_with_id, frame[named.goes_on_at :])), is_stored=True)

    def sent_to(self, topic: str, partition: int) -> tuple[str, int] | None:
        road = self.road
        return road.place if topic == road.topic and partition == road.partition else None

    def ended_astray(self, request: Request, mesh: MeshView, outcome: RawResponse | Unreachable) -> Plan:
        road, batch = self.road, kept_batch(self.batch_header)
        batches = {} if batch is None else {(road.topic, road.partition): batch}
        return ended_astray(request, mesh, road.scan, road.place, batches, outcome)

    def count(self, traffic: ClientTraffic, session: Session, heard: Answer | None) -> None:
        failed = heard is not None and not is_taken(heard)
        records, size = (0, 0) if failed else (self.records, self.size)
        count_straight(traffic, session, self.road, self.began, records, size, failed)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of checking a road. The result is valid as long as tables and clusters are these."""

    edition: int
    """The edition of the tables."""
    known: object
    """The knowledge of all clusters."""
    seat: Seat
    calls: Count
    timeout_s: float
    started: Started
    """The topics and client of the requests on this road, for a hold. A connection may have several clients."""


class StraightWay:
    """The straight Produce requests of one client connection."""

    __slots__ = ("_client", "_follower", "_lanes", "_mesh", "_session")

    def __init__(self, client: Client, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes) -> None:
        self._client = client
        self._mesh = mesh
        self._session = session
        self._follower = follower
        self._lanes = lanes

    def begun(self, frame: memoryview, now: float) -> StraightProduce | None:
        """The request, if it may skip its plan: it has then been sent. None: the request needs its plan."""
        road = self._found(frame, now)
        if road is None or (where := road.records(frame)) is None:
            return None
        start, stop = where
        mesh = self._mesh
        look: Look = road.look
        seat = look.seat
        connection = seat.connection(len(frame), now, quick=road.is_quick)
        if connection is None:
            road.look = None  # the connection may have ended: then another one is in its place
            return None
        produce = self._taken(road, look, frame, start, now + look.timeout_s)
        if isinstance(connection, SharedConnection):
            produce.seat, produce.sent_at = seat, now
            seat.sent()
        traffic = mesh.memory.traffic
        if traffic is not None:
            produce.began = traffic.clock()
            produce.records = count_records(frame, start, stop)
            produce.size = stop - start
        named = road.named
        if named is None:
            connection.pass_on(frame, produce)
        else:
            body = frame[road.head_end :]
            connection.pass_on_rewritten(ApiKey.PRODUCE, named.version, (named.head, body), produce)
        mesh.producing[produce] = look.started
        return produce

    def begun_in_part(self, beginning: memoryview, missing: int, now: float) -> "Onward | None":
        """As `begun`, for a large request of which only the beginning has come."""
        road = self._found(beginning, now)
        mesh, size = self._mesh, len(beginning) + missing
        if road is None or (where := road.sole_batch(beginning, size)) is None:
            return None
        start, batch = where
        look: Look = road.look
        connection = look.seat.connection(size, now, quick=road.is_quick)
        if connection is None or isinstance(connection, SharedConnection):  # others must not wait for its end
            road.look = None
            return None
        produce = self._taken(road, look, beginning, start, math.inf)
        traffic = mesh.memory.traffic
        if traffic is not None:
            produce.began = traffic.clock()
            produce.records = 0 if batch.is_control else batch.record_count
            produce.size = batch.end
        named = road.named
        produce.midway = onward = Onward(self, produce, connection, look.timeout_s)
        if named is None:
            connection.begin_passing_on(beginning, None, produce)
        else:
            head_end = road.head_end
            sent_size = REQUEST_START_BYTES + len(named.head) + size - head_end
            start_of_it = bytearray(request_start(sent_size, ApiKey.PRODUCE, named.version, 0) + named.head)
            connection.begin_passing_on(start_of_it, beginning[head_end:], produce)
        mesh.producing[produce] = look.started._replace(break_off=onward.break_off)
        return onward

    def _taken(self, road: Road, look: "Look", frame: memoryview, start: int, deadline: float) -> NarrowProduce:
        """The request, whose records begin at `start`."""
        produce = NarrowProduce(self, road, road.place, unpack_int32(frame, REQUEST_ID_AT)[0], deadline)
        produce.batch_header = frame[start : start + HEADER_BYTES].tobytes()
        look.calls.total += 1
        self._session.producing.append(produce)
        return produce

    def _found(self, frame: memoryview, now: float) -> Road | None:
        """The road of a request whose head has come, if the request may take it now; the road then has a valid look."""
        mesh, session = self._mesh, self._session
        road = session.roads.find(frame)
        if road is None:
            return None
        look: Look | None = road.look
        if look is None or look.edition != mesh.tables.edition or look.known is not mesh.clusters.known:
            look = road.look = self._look(road)
            if look is None:
                return None
        if not road.leads_on(mesh.memory, now) or session.overtakes(road.topic, road.partition, road.place):
            return None
        return road

    def _look(self, road: Road) -> Look | None:
        """The check of the road, if the tables and clusters in force still allow this road; else None."""
        if not self._is_in_force(road, road.place[0], road.knowledge, road.sent_version):
            self._session.roads.leave(road)
            return None
        return self._look_at(road.place, road.scan.timeout_ms, road.topics)

    def _is_in_force(self, road: Road | WideRoad, cluster: str, knowledge: ClusterKnowledge, sent_version: int) -> bool:
        """Whether the road's table, cluster, and served and spoken versions are still in force."""
        clusters = self._mesh.clusters
        return (
            self._follower.view(road.client_id).table is road.table
            and clusters.known.get(cluster) is knowledge
            and road.version in clusters.served.get(ApiKey.PRODUCE, ())
            and sent_version in knowledge.versions.get(ApiKey.PRODUCE, ())
        )

    def _look_at(self, place: tuple[str, int], timeout_ms: int, topics: tuple[str, ...]) -> Look | None:
        """The seat and its limits for this cluster and broker id, for the client whose table was checked last."""
        clusters, tables = self._mesh.clusters, self._mesh.tables
        if tables.canary is not None:  # while a table is tried, every answer is decoded
            return None
        cluster, broker_id = place
        lanes, key = self._lanes, LaneKey(clusters.incarnation(cluster), broker_id, Lane.PRODUCE)
        own, seat = lanes.get(key), lanes.seats.get(key)
        if seat is None:
            if own is None:
                return None
            seat = lanes.seats[key] = Seat(clusters.pool(cluster, broker_id))
        seat.own = own
        calls = metrics.upstream_calls.labels(cluster, api_name(ApiKey.PRODUCE))
        timeout_s = max(0, timeout_ms) / 1000 + CALL_TIMEOUT_S
        return Look(tables.edition, clusters.known, seat, calls, timeout_s, Started(topics, self._follower.client))

    # --- answers -------------------------------------------------------------------------------------------------

    def astray(self, produce: StraightProduce, outcome: RawResponse | Unreachable) -> None:
        """Let a plan decide the client's answer, by the table that the request started with."""
        header = produce.header
        mesh = replace(self._client.view(header), table=produce.road.table)
        plan = produce.ended_astray(Request(header, _NOTHING), mesh, outcome)
        exchange = Exchange(
            plan,
            self._mesh.clusters,
            self._mesh.conversions,
            self._lanes,
            header.client_id,
            lambda _, answer: self.ended(produce, answer),
        )
        exchange.start()

    def stored(self, produce: StraightProduce, frame: memoryview) -> None:
        """The usual end: the broker's answer goes to the client."""
        self._session.producing.remove(produce)
        mesh = self._mesh
        mesh.produce_ended(produce)
        if mesh.memory.traffic is not None:
            self._count(produce, None)
        self._client.straight_answered(produce, frame)

    def ended(self, produce: StraightProduce, answer: Answer, *, is_stored: bool = False) -> None:
        self._session.producing.remove(produce)
        self._mesh.produce_ended(produce)
        self._count(produce, None if is_stored else answer)
        self._client.straight_ended(produce, answer)

    def settled(self, produce: StraightProduce) -> None:
        """The records certainly won't be stored: nobody has to wait for them."""
        self._mesh.produce_ended(produce)

    def dropped(self, produce: StraightProduce) -> None:
        """The client has left before all of its request had come: no broker has got the request."""
        self._session.producing.remove(produce)
        self._mesh.produce_ended(produce)
        self._client.straight_ended(produce, NoAnswer())

    def onward_came(self, size: int, missing: int) -> None:
        self._client.onward_came(size, missing)

    def _count(self, produce: StraightProduce, heard: Answer | None) -> None:
        traffic = self._mesh.memory.traffic
        if traffic is not None:
            produce.count(traffic, self._session, heard)
