"""Fetches of one client that go straight on: see `requests.records.fetch_road`, which knows which ones may.

A `StraightFetch` stands for such a poll among the slots of its client's connection, and among the sent requests of its
broker's connection. A client's connection has one `StraightFetch` at a time: its polls follow one another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.passing import Passed, Source
from services.gateway.downstream.tables import Follower
from services.gateway.frame_stream import Passage
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    Lane,
    MeshView,
    RawResponse,
    Request,
    Unreachable,
)
from services.gateway.requests.records.fetch import ended_astray
from services.gateway.requests.records.fetch_road import Asking, FetchRoad, RoadTopic
from services.gateway.requests.traffic.calls import count_passed_fetch, count_straight_fetch
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import REQUEST_ID_AT, SIZE_BYTES, RequestHeader, parse_response_header
from services.gateway.wire.passing_records import PassingRecords
from services.gateway.wire.primitives import Buffer, unpack_int32

_NOTHING = memoryview(b"")


class Client(Protocol):
    """The connection of the client whose polls these are."""

    @property
    def is_open(self) -> bool: ...

    def view(self, header: RequestHeader) -> MeshView: ...

    def is_next(self, slot: object) -> bool: ...

    def answer_begun(self, slot: object, pieces: Sequence[Buffer], source: Source) -> Passage | None: ...

    def straight_answered(self, slot: "StraightFetch", frame: memoryview) -> None:
        """The broker's answer in these bytes may go to the client as it is. They may lie in a receive buffer."""

    def straight_fetch_ended(self, fetch: "StraightFetch", answer: Answer | Passed) -> None:
        """An answer in bytes may lie in a receive buffer."""


class StraightFetch:
    """See above."""

    __slots__ = (
        "_way",
        "answer",
        "arrived",
        "asking",
        "began",
        "brought",
        "clients_id",
        "close",
        "clusters",
        "connection",
        "correlation_id",
        "deadline",
        "done",
        "exchange",
        "road",
    )
    api_key = ApiKey.FETCH
    produces = False

    def __init__(
        self,
        way: "FetchWay",
        road: FetchRoad,
        asking: Asking,
        clusters: Mapping[str, ClusterKnowledge],
        connection: BrokerConnection,
        clients_id: int,
        arrived: float,
    ) -> None:
        self._way = way
        self.road = road
        self.asking = asking
        self.clusters = clusters
        self.connection = connection
        self.clients_id = clients_id
        """The correlation id that the client waits for ..."""
        self.correlation_id = 0
        """... and that of the request to the broker."""
        self.arrived = arrived
        self.deadline = arrived + asking.limits.wait_s + CALL_TIMEOUT_S
        self.began = 0.0
        """The start by the clock of traffic."""
        self.brought: Brought | None = None
        """The content of an answer that passes while it arrives, if traffic is counted."""
        self.exchange: Exchange | None = None
        """The exchange of its plan, if the poll needs one."""
        self.done = False
        self.answer: list[Buffer] | None = None
        self.close: str | None = None

    @property
    def version(self) -> int:
        return self.road.version

    @property
    def answers(self) -> Count:
        """The count of answered requests."""
        road = self.road
        if road.answers is None:
            road.answers = metrics.ended_requests(ApiKey.FETCH, road.version)
        return road.answers

    @property
    def header(self) -> RequestHeader:
        road = self.road
        return RequestHeader(ApiKey.FETCH, road.version, self.clients_id, road.client_id, 0)

    def go_on(self) -> None:
        """Nothing to do when the poll stands among its client's slots: it has been sent already."""

    def abandon(self) -> None:
        """The client is gone."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()

    # --- for the broker's connection -----------------------------------------------------------------------------

    def answered(self, frame: memoryview, owned: bool) -> None:
        self._way.answered(self, frame, owned)

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return self._way.begun_to_come(self, beginning, missing)

    def failed(self, outcome: Unreachable) -> None:
        self._way.astray(self, outcome)

    # --- for the client's connection -----------------------------------------------------------------------------

    def passed_on(self) -> None:
        self._way.passed_on(self)


class Brought:
    """The content of an answer that passes while it arrives."""

    __slots__ = ("records", "size", "topic")

    def __init__(self, topic: RoadTopic, size: int) -> None:
        self.topic = topic
        self.size = size
        self.records = PassingRecords(size)


class _CountedPassage:
    """A passage whose records are counted."""

    __slots__ = ("_brought", "_passage")

    def __init__(self, passage: Passage, brought: Brought) -> None:
        self._passage = passage
        self._brought = brought

    def take(self, piece: memoryview, missing: int) -> None:
        self._brought.records.come(piece)
        self._passage.take(piece, missing)

    def cut(self, reason: str) -> None:
        self._passage.cut(reason)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of checking a road. The result is valid as long as tables and clusters are these."""

    edition: int
    """The edition of the tables."""
    known: Mapping[str, ClusterKnowledge]
    """The knowledge of all clusters."""
    connection: BrokerConnection
    calls: Count


class FetchWay:
    """The straight polls of one client connection."""

    __slots__ = ("_client", "_follower", "_lanes", "_mesh", "_session")

    def __init__(self, client: Client, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes) -> None:
        self._client = client
        self._mesh = mesh
        self._session = session
        self._follower = follower
        self._lanes = lanes

    def begun(self, frame: memoryview, road: FetchRoad, now: float) -> StraightFetch | None:
        """The poll, if it may skip its plan: it has then been sent. None: the poll needs its plan."""
        mesh = self._mesh
        look: Look | None = road.look
        if look is None or look.edition != mesh.tables.edition or look.known is not mesh.clusters.known:
            look = road.look = self._look(road)
            if look is None:
                return None
        connection = look.connection
        if not connection.takes_more():
            road.look = None  # it may have ended: then another one is in its place
            return None
        memory = mesh.memory
        asking = road.take(frame, memory.fetch_sessions, now, mesh.clusters.answer_room)
        if asking is None:
            return None
        (clients_id,) = unpack_int32(frame, REQUEST_ID_AT)
        fetch = StraightFetch(self, road, asking, look.known, connection, clients_id, now)
        if memory.traffic is not None:
            fetch.began = memory.traffic.clock()
        look.calls.total += 1
        connection.pass_on_written(ApiKey.FETCH, road.sent_version, asking.request, fetch)
        return fetch

    def _look(self, road: FetchRoad) -> Look | None:
        """The check of the road, if the tables and clusters in force still allow this road; else None."""
        clusters, tables = self._mesh.clusters, self._mesh.tables
        cluster, broker_id = road.place
        if (
            self._follower.view(road.client_id).table is not road.table
            or clusters.known.get(cluster) is not road.knowledge
            or road.version not in clusters.served.get(ApiKey.FETCH, ())
            or road.sent_version not in road.knowledge.versions.get(ApiKey.FETCH, ())
            or tables.canary is not None  # while a table is tried, every answer is decoded
        ):
            return None
        connection = self._lanes.get(LaneKey(clusters.incarnation(cluster), broker_id, Lane.FETCH))
        if connection is None:
            return None
        calls = metrics.upstream_calls.labels(cluster, api_name(ApiKey.FETCH))
        return Look(tables.edition, clusters.known, connection, calls)

    # --- answers -------------------------------------------------------------------------------------------------

    def answered(self, fetch: StraightFetch, frame: memoryview, owned: bool) -> None:
        """Raises WireError for what can't be read."""
        road = fetch.road
        found = road.answered(fetch.asking, frame)
        if found is None:
            version = road.sent_version
            header = parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.FETCH, version)
            kept = frame if owned else memoryview(bytearray(frame))
            self.astray(fetch, RawResponse(kept, header.body_offset, version))
            return
        answer, scan = found
        traffic = self._mesh.memory.traffic
        if traffic is not None:
            count_straight_fetch(traffic, self._session, road, fetch.began, frame, scan)
        if isinstance(answer, RawResponse):
            self._client.straight_answered(fetch, answer.frame)
        else:
            self._client.straight_fetch_ended(fetch, answer)

    def begun_to_come(self, fetch: StraightFetch, beginning: memoryview, missing: int) -> Passage | None:
        """A large answer has begun to arrive. It may pass if its beginning already shows that it is clean."""
        client, road, asking = self._client, fetch.road, fetch.asking
        found = road.begun(asking, beginning, missing) if client.is_next(fetch) else None
        if found is None:
            return None
        if self._mesh.memory.traffic is not None:
            fetch.brought = Brought(road.by_upstream[found.topic], found.record_bytes)
            fetch.brought.records.come(beginning[found.records_at :])
        pieces = road.passing(asking, found, beginning, missing, fetch.clients_id)
        passage = client.answer_begun(fetch, pieces, fetch.connection)
        return passage if passage is None or fetch.brought is None else _CountedPassage(passage, fetch.brought)

    def passed_on(self, fetch: StraightFetch) -> None:
        traffic, brought = self._mesh.memory.traffic, fetch.brought
        if traffic is not None and brought is not None:
            records = brought.records.records
            count_passed_fetch(traffic, self._session, fetch.road, fetch.began, brought.topic, records, brought.size)
        self._client.straight_fetch_ended(fetch, Passed())

    def astray(self, fetch: StraightFetch, outcome: RawResponse | Unreachable) -> None:
        """Let a plan decide the client's answer, by the table that the request started with."""
        if not self._client.is_open:
            return
        header, road = fetch.header, fetch.road
        seen = self._mesh.tables.view_of(road.table)
        mesh = replace(
            self._client.view(header), table=road.table, clusters=seen.clusters(fetch.clusters), now=fetch.arrived
        )
        began = None if self._mesh.memory.traffic is None else fetch.began
        plan = ended_astray(Request(header, _NOTHING), mesh, road, fetch.asking, outcome, began)
        fetch.exchange = Exchange(
            plan,
            self._mesh.clusters,
            self._mesh.conversions,
            self._lanes,
            header.client_id,
            lambda _, answer: self._client.straight_fetch_ended(fetch, answer),
            seen.names,
        )
        fetch.exchange.start()
