"""Divides a Fetch among the brokers that lead its partitions, if it needs no plan: see `fetch_forwarding`."""

from collections.abc import Mapping
from typing import Any, Final

from services.gateway import metrics
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.fetch_questions import Forwarder, Part, Way
from services.gateway.downstream.following import Following
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.tables import Follower
from services.gateway.requests.memory import Session
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Broker, Lane
from services.gateway.requests.records.broker_fetches import limits_of
from services.gateway.requests.records.fetch_poll import NAMES_UNTIL
from services.gateway.requests.records.fetch_routes import Route, route_to
from services.gateway.requests.records.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Position,
    Slot,
)
from services.gateway.requests.traffic.tally import Tally
from services.gateway.requests.transactions.holding import concerns, holds_known_to
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import request_prefix
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.walks import fetch_request, headers

BATCHES_SINCE: Final = 4
"""The first version without message sets, which a plan converts."""


class FetchPlacing(Following):
    """Follows the tables and clusters in force for one client connection."""

    __slots__ = ("_lanes", "_sessions", "idle")

    def __init__(self, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes) -> None:
        super().__init__(ApiKey.FETCH, BATCHES_SINCE, BATCHES_SINCE, route_to, mesh, session, follower)
        self._lanes = lanes
        self._sessions = mesh.memory.fetch_sessions
        self.idle: Tally | None = None
        """That of the client's requests without records, until it has ended."""

    def placed(
        self, forwarder: Forwarder, header: headers.RequestHeader, frame: memoryview, now: float
    ) -> FetchInFlight | None:
        """The request with the part of each broker, if it needs no plan. It counts in its client's session then."""
        version = header.api_version
        if not self._forwards(header.client_id, version) or len(self._session.read_replicas):
            return None
        try:
            scan = fetch_request.scan_fetch_request(frame, version, header.body_offset, len(frame))
        except WireError:  # bytes after the end of the request, among others: plans ignore them
            return None
        epoch, ours = scan.session_epoch, None
        if epoch == INITIAL_EPOCH or scan.forgotten_topics:
            return None
        if epoch != FINAL_EPOCH:
            ours = self._sessions.get(scan.session_id)
            if ours is None or ours.epoch != epoch or ours.by_ids != (version >= IDS_SINCE):
                return None
        elif scan.session_id != NO_SESSION:
            return None
        fetch = FetchInFlight(forwarder, header, scan.isolation_level, ours)
        if scan.isolation_level and concerns(self._table, scan.isolation_level):
            fetch.careful = True
            if holds_known_to(self._memory, self._table, now).by_place:
                return None
        named = self._positions(fetch, scan, now)
        if named is None or (ours is not None and not self._is_session_placed(fetch, ours, named, now)):
            return None
        if not fetch.parts:
            return None
        if ours is not None:
            self._sessions.update(ours, named, (), now)
            fetch.epoch = ours.epoch
        self._limit(fetch, scan)
        fetch.began = now
        fetch.table, fetch.clusters = self._table, self._clusters.known
        fetch.answers = self._answers_of(version)
        return fetch

    def _follow(self, client_id: str | None) -> None:
        Following._follow(self, client_id)
        self.idle = None

    def _route(self, key: str | bytes, now: float) -> Route | None:
        """The route of a topic whose cluster can be reached."""
        route: Route | None = self._routes.get(key)
        if route is None or route.edition != route.knowledge.leaders_edition:
            route = self._look_up(key, now)
        return None if route is None or route.knowledge.down is not None else route

    def _positions(
        self, fetch: FetchInFlight, scan: fetch_request.FetchRequestScan, now: float
    ) -> dict[Slot, Position] | None:
        """Positions of the partitions that the request names. Without a session it wants these, from their brokers."""
        session, by_ids, tenant = fetch.session, fetch.version >= IDS_SINCE, self._tenant
        if tenant is not None and not by_ids:
            fetch.tenant = tenant
        named: dict[Slot, Position] = {}
        part: Part | None = None
        for topic in scan.topics:
            key = topic.topic_id if by_ids else topic.name if tenant is None else tenant.full_topic(topic.name)
            route = self._route(key, now)
            if route is None:
                return None
            name = route.name
            if session is None:
                fetch.routes[name] = route
            for each in topic.partitions:
                slot = (name, each.partition)
                position = named[slot] = Position(each.fetch_offset, each.max_bytes)
                if session is None:
                    part = self._part_of(fetch, part, route, each.partition)
                    if part is None:
                        return None
                    there = _there(fetch, route, each.partition, position)
                    if there is None:
                        return None
                    part.wanted[slot] = there
                elif slot not in session.wanted:
                    return None
        fetch.wanted = named
        return named

    def _is_session_placed(
        self, fetch: FetchInFlight, session: FetchSession, named: dict[Slot, Position], now: float
    ) -> bool:
        """Divides the partitions of the client's session among the brokers. False: the request needs its plan."""
        wanted: Mapping[Any, Position] = session.wanted
        part: Part | None = None
        route: Route | None = None
        for slot, position in wanted.items():
            topic, number = slot
            if route is None or topic != route.name:
                route = self._route(topic, now) if isinstance(topic, str) else None
                if route is None:
                    return False
                fetch.routes[route.name] = route
            part = self._part_of(fetch, part, route, number)
            if part is None:
                return False
            there = _there(fetch, route, number, named.get(slot, position))
            if there is None:
                return False
            part.wanted[slot] = there
        fetch.wanted = session.wanted
        return True

    def _part_of(self, fetch: FetchInFlight, last: Part | None, route: Route, number: int) -> Part | None:
        """The part of the request that goes to the leader of this partition; `last`: that of the partition before."""
        leader = route.leaders[number] if 0 <= number < len(route.leaders) else None
        if leader is None:
            return None
        if last is not None and leader == last.way.broker_id and route.cluster == last.way.cluster:
            return last
        for part in fetch.parts:
            if leader == part.way.broker_id and route.cluster == part.way.cluster:
                return part
        return self._new_part(fetch, route, leader)

    def _new_part(self, fetch: FetchInFlight, route: Route, leader: int) -> Part | None:
        """The part for this broker, if nobody has to wait for the broker's connection."""
        fetches = self._session.broker_fetches.get((route.cluster, leader))
        if fetches is None or fetches.table is not self._table:
            return None
        version, terms = min(fetch.version, NAMES_UNTIL, route.highest), fetches.terms
        if version < route.lowest or version < BATCHES_SINCE or terms.version != version:
            return None
        if terms.isolation_level != fetch.isolation_level or terms.naming:
            return None
        way = self._ways.get((route.cluster, leader))
        if way is None or way.version != version:
            way = self._way(Place(route.cluster, leader), version)
            if way is None:
                return None
        if not way.connection.takes_more():
            del self._ways[route.cluster, leader]  # its connection may have ended: then another one is in its place
            return None
        part = Part(fetches, way)
        if fetches.on_its_way is not None:
            left = part.left = self._lanes.left_behind.get(way.kept_at)
            if left is None or left.key != (fetches.resume_key, None):
                return None
        fetch.parts.append(part)
        return part

    def _way(self, place: Place, version: int) -> Way | None:
        incarnation = self._clusters.incarnation(place.cluster, self._lanes)
        connection = self._lanes.get(LaneKey(incarnation, place.broker_id, Lane.FETCH))
        if connection is None:
            return None
        kept_at = (incarnation, Broker(place.broker_id), Lane.FETCH)
        header = bytes(request_prefix(ApiKey.FETCH, version, 0, self._client_id, 0))
        calls = metrics.upstream_calls.labels(place.cluster, api_name(ApiKey.FETCH))
        way = self._ways[place] = Way(place, connection, kept_at, version, header, calls)
        return way

    def _limit(self, fetch: FetchInFlight, scan: fetch_request.FetchRequestScan) -> None:
        limits = limits_of(scan.max_wait_ms, scan.min_bytes, scan.max_bytes, scan.rack_id)
        brokers, part = len(fetch.parts), fetch.parts[0]
        fetch.alone = brokers == 1 and part.left is None
        fetch.passes = (
            fetch.alone
            and len(part.wanted) == 1
            and not fetch.careful
            and not fetch.stitched
            and fetch.tenant is None
            and part.way.version == min(fetch.version, NAMES_UNTIL)
            and (fetch.session is None or part.fetches.epoch == INITIAL_EPOCH)
        )
        if not fetch.passes:
            limits = limits.within(self._clusters.answer_room.poll_bytes)
        fetch.limits, fetch.each = limits, limits.for_each_of(brokers)


def _there(fetch: FetchInFlight, route: Route, partition: int, position: Position) -> Position | None:
    """The position with the offset of the cluster; None: an older part of the log may have it."""
    present = route.present(partition)
    if present is None:
        return position
    if position.offset < present.start:
        return None
    fetch.stitched = True
    return Position(present.there(position.offset), position.max_bytes)
