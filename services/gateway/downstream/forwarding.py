"""Produce that one broker gets as a whole: forwarded without a plan, and its answer forwarded to the client.

Theory of operation
1. A request is scanned once. Each of its topics has a `Route`: what the topic's plan would find in the table, in the
   metadata of its cluster and in the memory of seams. A route ends with the table, with the clusters' knowledge, and as
   soon as leaders of its cluster may have changed. Nothing else is remembered from one request to the next.
2. A request is forwarded if one broker leads all its partitions and nothing has to be asked, held or refused. Then its
   bytes leave as they came, but for the correlation id, and for names in the place of topic ids, or of a tenant's own
   names. All other requests go by their plan (`requests.records.produce`), and so does the first one to a broker, which
   opens the connection.
3. A clean answer goes to the client in the order of its requests, with the client's correlation id and topic ids. With
   any other answer, or with none, the plan decides (`produce.ended_astray`). The headers of the batches are kept for
   this case.
4. A request of 64 KiB or more with one batch leaves while it still arrives, on a connection that belongs to its client
   alone. None of it is kept, and it has no deadline until its end. If the client disconnects in the middle, the broker
   never gets the rest, and drops the part that it has: the request is stored nowhere. If the broker's connection ends
   in the middle, or a hold loses its patience (`Hold`), the gateway reads and drops the rest. It then answers as for a
   request that was never sent. If nothing moves for too long, `Reading` finds out whether client or broker stalls.
"""

from dataclasses import replace
from typing import Final, Protocol

from services.gateway import clock, metrics
from services.gateway.counting import Count
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.following import Following
from services.gateway.downstream.in_flight import FLEXIBLE, InFlight
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.tables import Follower
from services.gateway.requests.memory import Session
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Lane,
    MeshView,
    RawResponse,
    Request,
    Unreachable,
)
from services.gateway.requests.records.produce import ended_astray
from services.gateway.requests.records.produce_routes import Route, route_to
from services.gateway.requests.records.stitched import Part
from services.gateway.requests.traffic.calls import count_forwarded, produce_tally
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.tenancy.translation import Translation
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.seats import Seat
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.batches import HEADER_BYTES, read_kept_header
from services.gateway.wire.frames import (
    REQUEST_ID_AT,
    REQUEST_START_BYTES,
    SIZE_BYTES,
    Pieces,
    request_start,
)
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.walks import headers, produce

PARTITIONS_AT_MOST: Final = 1_000
"""Partitions of one request. For each of them some 200 bytes stay until the answer, and no limit of memory counts these
bytes. Requests with more partitions get a plan."""
HEAD_AT: Final = REQUEST_ID_AT + INT32.size
"""The place behind the correlation id of a request."""
NAMES_UNTIL: Final = IDS_SINCE - 1
BATCHES_SINCE: Final = 3
"""The first version without message sets, which a plan converts."""
_NOTHING = memoryview(b"")


class Client(Protocol):
    """The connection of the client whose requests these are."""

    def view(self, header: headers.RequestHeader) -> MeshView: ...

    def answered(self, slot: InFlight, pieces: Pieces) -> None:
        """The client's answer, which lacks only its number. Its pieces may lie in a receive buffer."""

    def has_answer(self, slot: InFlight, answer: Answer) -> None:
        """An answer in bytes may lie in a receive buffer."""

    def arrived(self, size: int, missing: int) -> None:
        """`size` more bytes of the request that leaves while it arrives; `missing` bytes come after them."""


class Way:
    """The way to one broker, as long as the tables and clusters are these."""

    __slots__ = ("calls", "place", "seat")

    def __init__(self, place: Place, seat: Seat, calls: Count) -> None:
        self.place = place
        self.seat = seat
        self.calls = calls


class Forwarder(Following):
    """Forwards the requests of one client connection."""

    __slots__ = ("_lanes", "_producing", "_refused", "_tracing", "_underway", "client")

    def __init__(self, client: Client, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes) -> None:
        super().__init__(ApiKey.PRODUCE, BATCHES_SINCE, FLEXIBLE, route_to, mesh, session, follower)
        self.client = client
        self._lanes = lanes
        self._producing, self._underway = session.producing, mesh.producing
        self._refused = mesh.memory.refusals.waiting
        self._tracing = mesh.tracing

    def forward(self, header: headers.RequestHeader, frame: memoryview, now: float) -> InFlight | None:
        """Send the request to its broker and return it; None if the request needs a plan."""
        try:
            scan = produce.scan_produce(frame, header.api_version, header.body_offset, len(frame))
        except WireError:  # its plan reports it
            return None
        kept = produce.first_headers(frame, scan)
        if kept is None:
            return None
        request = InFlight(self, header, scan, kept)
        way = self._choose_broker(request, now)
        if way is None:
            return None
        connection = self._connection(request, way, len(frame), now)
        if connection is None:
            return None
        request.deadline = now + request.timeout_s
        if connection is not way.seat.own:
            request.seat, request.sent_at = way.seat, now
            way.seat.sent()
        request.began = now
        if self._tracing is not None:
            request.traces = self._tracing.found(frame, scan)
        self._taken(request, way)
        if request.sent_version == request.version and request.tenant is None:
            connection.pass_on(frame, request)
        else:
            connection.pass_on_rewritten(ApiKey.PRODUCE, request.sent_version, _with_names(frame, request), request)
        request.asked_at = clock.now()
        return request

    def begun_in_part(self, beginning: memoryview, missing: int, now: float) -> InFlight | None:
        """As `begun`, for a large request of which only the beginning has come."""
        size = len(beginning) + missing
        try:
            header = headers.parse_request_header(beginning, SIZE_BYTES, len(beginning))
            if header.api_key != ApiKey.PRODUCE:
                return None
            scan = produce.scan_produce_beginning(
                beginning, header.api_version, header.body_offset, len(beginning), size
            )
        except WireError:
            return None
        if scan is None:
            return None
        topic = scan.topics[0]
        part = topic.partitions[0]
        kept = bytes(beginning[part.records_start : part.records_start + HEADER_BYTES])
        batch = read_kept_header(kept)
        if batch is None or batch.end != part.records_end - part.records_start:
            return None
        part.records = topic.records = 0 if batch.is_control else batch.record_count
        topic.record_bytes = batch.end
        request = InFlight(self, header, scan, kept)
        way = self._choose_broker(request, now)
        if way is None:
            return None
        connection = self._connection(request, way, size, now)
        if connection is None or connection is not way.seat.own:  # others must not wait for its end
            return None
        request.connection = connection
        if self._tracing is not None:
            request.traces = self._tracing.found(beginning, scan)
        self._taken(request, way)
        if request.sent_version == request.version and request.tenant is None:
            connection.begin_passing_on(beginning, None, request)
        else:
            pieces = _with_names(beginning, request)
            sent_size = REQUEST_START_BYTES + sum(map(len, pieces)) + missing
            start = request_start(sent_size, ApiKey.PRODUCE, request.sent_version, 0)
            connection.begin_passing_on(bytearray().join((start, *pieces[:-1])), memoryview(pieces[-1]), request)
        return request

    def _choose_broker(self, request: InFlight, now: float) -> Way | None:
        """The broker that leads every partition of the request, if nothing has to be asked first; notes the routes."""
        scan, version = request.scan, request.version
        if scan.transactional_id is not None or scan.acks == 0:
            return None
        if not self._forwards(request.client_id, version) or self._refused:
            return None
        by_id, entries, tenant = version >= IDS_SINCE, 0, self._tenant
        if tenant is not None and not by_id:
            request.tenant = tenant
        first: Route | None = None
        broker: int | None = None
        for topic in scan.topics:
            key = topic.topic_id if by_id else topic.name if tenant is None else tenant.full_topic(topic.name)
            route = self._routes.get(key)
            if route is None or route.edition != route.knowledge.leaders_edition:
                route = self._look_up(key, now)
                if route is None:
                    return None
            if route.knowledge.down is not None:
                return None
            if route.before is not None and not route.is_settled(topic, self._memory, now):
                return None
            leader = produce.led_by(topic, route.leaders)
            if first is None:
                first, broker = route, leader
            elif leader != broker or route.knowledge is not first.knowledge:
                return None
            if route.shifts:
                request.stitched = True
            if route.acknowledged is not None:
                request.under_standby = True
            request.routes.append(route)
            entries += len(topic.partitions)
        if first is None or broker is None or entries > PARTITIONS_AT_MOST:
            return None
        sent_version = min(NAMES_UNTIL, first.highest) if by_id else version
        if sent_version < first.lowest or sent_version > first.highest or (by_id and sent_version < FLEXIBLE):
            return None
        request.sent_version = sent_version
        way = self._ways.get((first.cluster, broker))
        if way is None:
            way = self._way(Place(first.cluster, broker))
            if way is None:
                return None
        return None if self._overtakes(request, way.place) else way

    def _way(self, place: Place) -> Way | None:
        lanes, clusters = self._lanes, self._clusters
        key = LaneKey(clusters.incarnation(place.cluster, lanes), place.broker_id, Lane.PRODUCE)
        own, seat = lanes.get(key), lanes.seats.get(key)
        if seat is None:
            if own is None:
                return None
            seat = lanes.seats[key] = Seat(clusters.pool(place.cluster, place.broker_id, lanes))
        seat.own = own
        calls = metrics.upstream_calls.labels(place.cluster, api_name(ApiKey.PRODUCE))
        way = self._ways[place] = Way(place, seat, calls)
        return way

    def _overtakes(self, request: InFlight, place: Place) -> bool:
        """Whether the request may arrive before an earlier batch of its connection (`Session.overtakes`)."""
        session = self._session
        for other in self._producing:
            sole = other.sole
            if sole is not place and sole != place:
                for topic, route in zip(request.scan.topics, request.routes, strict=True):
                    for part in topic.partitions:
                        if session.overtakes(route.name, part.partition, place):
                            return True
                return False
        return False

    def _connection(self, request: InFlight, way: Way, size: int, now: float) -> BrokerConnection | None:
        scan = request.scan
        quick = True
        if scan.acks != 1:
            for route in request.routes:
                quick = quick and route.is_single
        connection = way.seat.connection(size, now, quick)
        if connection is None:
            self._ways.pop(way.place, None)  # the connection may have ended: then another one is in its place
            return None
        request.timeout_s = max(0, scan.timeout_ms) / 1000 + CALL_TIMEOUT_S
        return connection

    def _taken(self, request: InFlight, way: Way) -> None:
        request.sole = way.place
        request.table, request.client = self._table, self._follower.client
        request.answers = self._answers_of(request.version)
        way.calls.total += 1
        self._producing.append(request)
        self._underway[request] = request

    # --- answers -------------------------------------------------------------------------------------------------

    def stored(self, request: InFlight, frame: memoryview) -> None:
        """The usual end: this answer goes to the client."""
        self._producing.remove(request)
        del self._underway[request]
        if request.stitched:
            self._memory.on_part(Part.PRESENT)
        hold, traffic = self._mesh.hold, self._memory.traffic
        if hold is not None:
            hold.answered(request)
        if traffic is not None:
            self._count(traffic, request)
        self.client.answered(request, (frame,))

    def _count(self, traffic: ClientTraffic, request: InFlight) -> None:
        """Count the batches of each topic as stored."""
        ms = (request.asked_at + request.upstream_s - request.began) * 1000
        topics, routes = request.scan.topics, request.routes
        for place in range(len(topics)):
            topic, route = topics[place], routes[place]
            tally = route.tally
            if tally is None or tally.ended:
                tally = produce_tally(traffic, self._session, request.client_id, route)
            tally.add(topic.records, topic.record_bytes, 0)
            tally.took(ms)

    def astray(self, request: InFlight, outcome: RawResponse | Unreachable) -> None:
        """Let a plan decide the client's answer, by the table that the request started with."""
        header = request.header
        view = replace(self.client.view(header), table=request.table)
        plan = ended_astray(Request(header, _NOTHING), view, request.named(), request.sole, request.batches(), outcome)
        exchange = Exchange(
            plan,
            self._clusters,
            self._mesh.conversions,
            self._lanes,
            header.client_id,
            lambda exchange, answer: self._decided(request, exchange, answer),
        )
        exchange.start()

    def _decided(self, request: InFlight, exchange: Exchange, answer: Answer) -> None:
        request.upstream_s += exchange.upstream_s
        self.ended(request, answer)

    def ended(self, request: InFlight, answer: Answer, *, counts: bool = True) -> None:
        self._producing.remove(request)
        self._mesh.produce_ended(request)
        if counts and self._memory.traffic is not None:
            count_forwarded(self._memory.traffic, self._session, request, answer)
        if request.tenant is not None:
            answer = Translation(request.tenant, ApiKey.PRODUCE, request.version).answer(answer)
        self.client.has_answer(request, answer)

    def settled(self, request: InFlight) -> None:
        """The records certainly won't be stored: nobody has to wait for them."""
        self._mesh.produce_ended(request)

    def came(self, size: int, missing: int) -> None:
        self.client.arrived(size, missing)


def _with_names(frame: memoryview, request: InFlight) -> list[Buffer]:
    """The request with the names of the mesh in the place of ids, or of other names, behind its correlation id."""
    pieces: list[Buffer] = []
    at = HEAD_AT
    for topic, route in zip(request.scan.topics, request.routes, strict=True):
        pieces += (frame[at : topic.start], route.written)
        at = topic.partitions_at
    pieces.append(frame[at:])
    return pieces
