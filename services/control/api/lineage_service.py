"""LineageService: the way of records through applications, topics and groups, as control has seen it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from mesh.routing import RoutingTable
from mesh.rpc import lineage, lineage_grpc
from services.control.api import pages
from services.control.api.access_gate import AccessGate
from services.control.api.calls import present_principal
from services.control.decisions.lineage.walking import walked
from services.control.domain.access.things import Kind, Thing
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.lineage.applications import application_named
from services.control.domain.lineage.edges import Edge, EdgeKind, Node, NodeKind
from services.control.domain.lineage.memory import LONGEST_NAME, Look, Seen
from services.control.domain.lineage.places import place_of, present_name
from services.control.domain.lineage.rates import Rate, rates_of
from services.control.domain.lineage.ways import Direction, is_shared
from services.control.steady_clock import Clock
from services.control.store.journal import Journal
from services.control.store.lineage import LineageTables
from services.control.store.traffic import TrafficTables

USUAL_DEPTH, DEEPEST = 4, 20
USUAL_EDGES, MOST_EDGES = 1_000, 5_000
"""5,000 edges are about 1 MB."""
AT_ONCE = 500
"""Edges that are written into an answer before other calls have their turn."""
SILENT_AFTER_S: Final = 60.0
"""Without a look for so long, somebody has to find out why."""
QUERY: Final = "/mesh.v1.LineageService/QueryLineage"
NODE_KINDS = {
    NodeKind.TOPIC: lineage.LINEAGE_NODE_KIND_TOPIC,
    NodeKind.GROUP: lineage.LINEAGE_NODE_KIND_GROUP,
    NodeKind.APPLICATION: lineage.LINEAGE_NODE_KIND_APPLICATION,
    NodeKind.BACKEND: lineage.LINEAGE_NODE_KIND_BACKEND,
}
EDGE_KINDS = {
    EdgeKind.PRODUCES: lineage.LINEAGE_EDGE_KIND_PRODUCES,
    EdgeKind.CONSUMES: lineage.LINEAGE_EDGE_KIND_CONSUMES,
    EdgeKind.MEMBER: lineage.LINEAGE_EDGE_KIND_MEMBER,
    EdgeKind.COPIES: lineage.LINEAGE_EDGE_KIND_COPIES,
    EdgeKind.DELIVERS: lineage.LINEAGE_EDGE_KIND_DELIVERS,
}
_BOTH: Final = (Direction.UPSTREAM, Direction.DOWNSTREAM)
DIRECTIONS = {
    lineage.LINEAGE_DIRECTION_UNSPECIFIED: _BOTH,
    lineage.LINEAGE_DIRECTION_UPSTREAM: (Direction.UPSTREAM,),
    lineage.LINEAGE_DIRECTION_DOWNSTREAM: (Direction.DOWNSTREAM,),
    lineage.LINEAGE_DIRECTION_BOTH: _BOTH,
}


class LineageService(lineage_grpc.LineageServiceServicer):
    """See LineageService in lineage.proto."""

    def __init__(
        self,
        journal: Journal,
        tables: LineageTables,
        traffic: TrafficTables,
        gate: AccessGate,
        clock: Clock,
        most_edges: int,
    ) -> None:
        """`most_edges`: how many edges control keeps; 0 if it gathers none."""
        self._journal = journal
        self._tables = tables
        self._traffic = traffic
        self._gate = gate
        self._clock = clock
        self._most_edges = most_edges

    async def QueryLineage(self, request: lineage.QueryLineageRequest, context: Any) -> lineage.QueryLineageResponse:
        self._journal.require_loaded()
        table = self._journal.view.state.effective
        start = present_name(_start(request), table)
        self._check_sight(start)
        if request.direction not in DIRECTIONS:
            raise InvalidField("direction", f"{request.direction} is no direction that this release knows")
        depth = _within("depth", request.depth, USUAL_DEPTH, DEEPEST)
        most = min(_within("most_edges", request.most_edges, USUAL_EDGES), MOST_EDGES)
        found = await walked(self._journal, self._tables, start, DIRECTIONS[request.direction], self._sees, depth, most)
        gathering = self._gathering(await self._tables.last_look())
        if not found.edges and not found.hidden:
            why = gathering.problem or "it has seen no client or record rule that uses it"
            way = "" if request.direction in (0, lineage.LINEAGE_DIRECTION_BOTH) else " in that direction"
            raise Unknown(
                f"{start.kind.value}s/{start.name}", f"control knows no lineage of {_text(start)}{way}: {why}"
            )
        rates = await self._rates([each.edge for _, each in found.edges])
        answer = lineage.QueryLineageResponse(
            start=_node(start, table), truncated=found.truncated, hidden=found.hidden, gathering=gathering
        )
        for number, (distance, each) in enumerate(found.edges):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            answer.edges.append(_edge(each, table, distance, rates.get(each.edge)))
        return answer

    async def _rates(self, edges: Sequence[Edge]) -> Mapping[Edge, Rate]:
        """The rates of edges. An application may also be a member of groups that the edges do not have."""
        topics = {node.name for edge in edges for node in (edge.source, edge.target) if node.kind is NodeKind.TOPIC}
        counted = await self._traffic.of_clients(topics)
        applications = {edge.target for edge in edges if edge.kind is EdgeKind.MEMBER}
        if not counted or not applications:
            return rates_of(edges, counted)
        more = await self._tables.into(applications, MOST_EDGES)
        return rates_of({*edges, *(each.edge for each in more)}, counted)

    async def ListLineage(self, request: lineage.ListLineageRequest, context: Any) -> lineage.ListLineageResponse:
        self._journal.require_loaded()
        table = self._journal.view.state.effective
        listing, size = pages.listing_of("lineage", request), pages.page_size(request.page_size)
        since = request.since_time.ToDatetime(self._clock().tzinfo) if request.HasField("since_time") else None
        found = await self._tables.page(_place(listing, request.page_token), since, size + 1)
        return lineage.ListLineageResponse(
            edges=[_edge(each, table) for _, each in found[:size]],
            next_page_token=pages.token(listing, found[size - 1][0]) if len(found) > size else "",
            gathering=self._gathering(await self._tables.last_look()),
        )

    def _sees(self, node: Node) -> bool:
        """Whether the present caller may see a node. A caller without a proved name sees all."""
        principal = present_principal()
        if principal is None or node.kind is not NodeKind.TOPIC:
            return True
        place = place_of(node, self._journal.view.state.effective)
        things = [Thing(Kind.TOPIC, node.name), *([] if place is None else [Thing(Kind.CLUSTER, place.cluster)])]
        return self._gate.sees(principal, QUERY, things)

    def _check_sight(self, start: Node) -> None:
        """A place may be a topic whose name the caller may not see."""
        if start.kind is NodeKind.TOPIC and not self._sees(start):
            raise Unknown(f"topics/{start.name}", f"control knows no lineage of {_text(start)} that you may see")

    def _gathering(self, look: Look | None) -> lineage.LineageGathering:
        if not self._most_edges:
            return lineage.LineageGathering(problem="control gathers no lineage: its setting LINEAGE_EDGES is 0")
        if look is None:
            return lineage.LineageGathering(problem="no control has ever gathered lineage")
        shape = lineage.LineageGathering(edges=look.edges, left_out=look.left_out, problem=look.problem)
        shape.time.FromDatetime(look.time)
        silent_s = (self._clock() - look.time).total_seconds()
        if silent_s > SILENT_AFTER_S:
            shape.problem = f"no control has gathered lineage for {int(silent_s)} s"
        return shape


def _start(request: lineage.QueryLineageRequest) -> Node:
    match request.WhichOneof("start"):
        case "topic":
            node = Node(NodeKind.TOPIC, request.topic)
        case "group":
            node = Node(NodeKind.GROUP, request.group)
        case "application":
            node = Node(NodeKind.APPLICATION, request.application)
            if application_named(request.application) is None:
                raise InvalidField(
                    "application", f"{request.application!r} is no application; write it as User:alice/orders"
                )
        case _:
            raise InvalidField("start", "is required: a topic, an application or a group")
    if not 1 <= len(node.name) <= LONGEST_NAME or "\0" in node.name:
        raise InvalidField(node.kind.value, f"needs 1 to {LONGEST_NAME} characters other than NUL")
    return node


def _within(field: str, wanted: int, usual: int, most: int | None = None) -> int:
    if wanted < 0:
        raise InvalidField(field, f"{wanted} is negative; 0 means {usual}")
    if most is not None and wanted > most:
        raise InvalidField(field, f"{wanted} is more than {most}")
    return wanted or usual


def _place(listing: str, page_token: str) -> str:
    place = pages.place_of(listing, page_token)
    try:
        return "" if place is None else str(UUID(str(place)))
    except ValueError:
        raise InvalidField("page_token", "not a token of this list; take next_page_token of the page before") from None


def _text(node: Node) -> str:
    return f"{node.kind.value} {node.name!r}"


def _edge(seen: Seen, table: RoutingTable, distance: int = 0, rate: Rate | None = None) -> lineage.LineageEdge:
    edge = seen.edge
    shape = lineage.LineageEdge(
        source=_node(present_name(edge.source, table), table),
        target=_node(present_name(edge.target, table), table),
        kind=EDGE_KINDS[edge.kind],
        rule=edge.rule,
        present=seen.present,
        distance=distance,
    )
    shape.first_time.FromDatetime(seen.first)
    shape.last_time.FromDatetime(seen.last)
    if rate is not None:
        shape.records_per_second, shape.bytes_per_second = rate.records, rate.bytes
    return shape


def _node(node: Node, table: RoutingTable) -> lineage.LineageNode:
    shape = lineage.LineageNode(kind=NODE_KINDS[node.kind], name=node.name, shared=is_shared(node))
    if (place := place_of(node, table)) is not None:
        shape.cluster, shape.upstream_topic = place
        known = table.clusters.get(place.cluster)
        shape.bootstrap_servers.extend(() if known is None else known.bootstrap_servers)
    if node.kind is NodeKind.APPLICATION and (application := application_named(node.name)) is not None:
        shape.principal, shape.client = application.principal, application.client
    return shape
