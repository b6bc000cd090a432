"""The map: clients, topics with their rules, and clusters; what flows between them, what is away, what moves now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import admin, clients, replays, topic_moves, topics, traffic
from mesh.wording import short, word
from services.console import words
from services.console.asking import Ask
from services.console.flows import (
    MOST_CLIENTS,
    MOST_ROWS,
    MOST_TOPICS,
    Counted,
    Flow,
    LiveClient,
    Who,
    counted,
    live_clients,
    shown_topics,
)
from services.console.graphs import Edge, Node, drawn
from services.console.outcomes import CallError
from services.console.parts import Cell, Cells, Graph, Notice, Page, Part, Table, Tone
from services.console.views.moves import OPEN as MOVES_OPEN
from services.console.views.overview import moving, notices
from services.console.views.traffic import DIMENSIONS

WINDOW_MIN = 5
"""Minutes of traffic: rows of traffic are of whole minutes."""
MOST_LINES = 150
"""Lines from clients to topics, and rows of their table."""
MOST_CLUSTERS = 30
CLIENTS, TOPICS, CLUSTERS = range(3)
OTHERS = "others"
LEAD = "From left to right: clients that are connected, the busiest topics with their rules, and the clusters."
NOT_COUNTED = "Rates of topics are not known"


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the map shows."""

    status: admin.MeshStatus
    live: Mapping[Who, LiveClient]
    traffic: Counted | None
    shown: Sequence[str]
    places: Mapping[str, topics.Topic]
    total: int
    moves: Mapping[str, str]
    """Topic -> the cluster that it moves to."""

    @property
    def busiest(self) -> dict[Who, LiveClient]:
        return dict(list(self.live.items())[:MOST_CLIENTS])

    def cluster(self, topic: str) -> str:
        """By the rules; if its cluster does not answer, by its traffic."""
        if topic in self.places:
            return self.places[topic].cluster
        counts = {} if self.traffic is None else self.traffic.places
        return next((cluster for name, cluster in counts if name == topic), "")

    def rule(self, topic: str) -> str:
        if topic in self.places:
            return self.places[topic].rule
        return "" if self.traffic is None else self.traffic.rules.get(topic, "")

    def flow(self, topic: str) -> Flow | None:
        return None if self.traffic is None else self.traffic.topics.get(topic, Flow())

    def of_client(self, who: Who, topic: str) -> Flow | None:
        return None if self.traffic is None else self.traffic.of_clients.get((who, topic), Flow())


async def page(ask: Ask) -> Page:
    stubs = ask.caller.stubs
    now = datetime.now(UTC)
    status, running, moves, found, (flows, trouble), first = await asyncio.gather(
        ask.caller.call(stubs.decisions.GetStatus, admin.GetStatusRequest()),
        ask.caller.call(stubs.replays.ListReplays, replays.ListReplaysRequest(open_only=True, page_size=20)),
        ask.caller.call(stubs.topic_moves.ListTopicMoves, topic_moves.ListTopicMovesRequest(page_size=100)),
        ask.caller.call(stubs.clients.ListClients, clients.ListClientsRequest(page_size=MOST_ROWS)),
        _traffic(ask, now),
        ask.caller.call(stubs.topics.ListTopics, topics.ListTopicsRequest(page_size=MOST_TOPICS)),
    )
    moved = {each.spec.topic: each.copy.target_cluster for each in moves.topic_moves if each.state in MOVES_OPEN}
    live = live_clients(found.clients)
    shown = shown_topics(moved, flows, live.values(), (short(each.name) for each in first.topics))
    request = topics.ListTopicsRequest(topics=shown, page_size=MOST_TOPICS)
    listed = await ask.caller.call(stubs.topics.ListTopics, request) if shown else topics.ListTopicsResponse()
    places = {short(each.name): each for each in listed.topics}
    seen = Seen(status, live, flows, shown, places, first.total, moved)
    parts: list[Part] = [*notices(status)]
    if first.problems:
        parts.append(Notice("This map is not complete", Tone.WARNING, list(first.problems)))
    if trouble:
        parts.append(Notice(f"{NOT_COUNTED}: {trouble}", Tone.WARNING))
    parts += [_graph(seen), moving(status, running.replays, moves.topic_moves), _topic_table(seen)]
    parts += [_deeds(seen), _client_table(seen, found)]
    return Page("Map", parts, lead=LEAD, live="map")


async def _traffic(ask: Ask, now: datetime) -> tuple[Counted | None, str]:
    """The traffic of the last minutes, or a sentence that says why it is not known."""
    start = now.replace(second=0, microsecond=0) - timedelta(minutes=WINDOW_MIN)
    since = Timestamp()
    since.FromDatetime(start)
    asked = [
        ask.caller.call(
            ask.caller.stubs.traffic.TopTalkers,
            traffic.TopTalkersRequest(
                by=[DIMENSIONS[each] for each in by], measure=traffic.TRAFFIC_MEASURE_BYTES, start_time=since,
                limit=MOST_ROWS,
            ),
        )
        for by in (("topic", "rule", "cluster", "api"), ("client", "principal", "topic", "api"))
    ]  # fmt: skip
    try:
        by_place, by_client = await asyncio.gather(*asked)
    except CallError as failure:
        return None, str(failure)
    found = counted(by_place, by_client, start)
    trouble: str = by_place.freshness.problem
    if found is None and not trouble:
        trouble = f"no traffic of the last {WINDOW_MIN} minutes is in the tables yet."
    return found, trouble


def _graph(seen: Seen) -> Graph:
    nodes = [*_client_nodes(seen), *_topic_nodes(seen), *_cluster_nodes(seen)]
    edges = [*_client_edges(seen), *_topic_edges(seen)]
    note = "Rates beside clients are live, and of all their topics together. "
    if seen.traffic is not None:
        note += f"Rates beside topics are of the last {WINDOW_MIN} minutes, as far as a pipeline has counted them. "
    return drawn("The mesh now", ("Clients", "Topics", "Clusters"), nodes, edges, f"{note}The tables say the same.")


def _client_nodes(seen: Seen) -> Iterable[Node]:
    for who, client in seen.busiest.items():
        href = f"/clients?{_query(who)}"
        lines = [who[1] or "no principal", words.count(client.connections, "connection")]
        yield Node(f"client {who}", CLIENTS, _called(who), lines, href)
    more = len(seen.live) - len(seen.busiest)
    if more:
        yield Node(f"client {OTHERS}", CLIENTS, f"and {words.count(more, 'more client')}", (), "/clients", Tone.QUIET)


def _query(who: Who) -> str:
    return urlencode({name: value for name, value in zip(("client_id", "principal"), who, strict=True) if value})


def _called(who: Who) -> str:
    return who[0] or "(no client.id)"


def _topic_nodes(seen: Seen) -> Iterable[Node]:
    for topic in seen.shown:
        rule = short(seen.rule(topic))
        lines = [f"rule {rule}" if rule else "its place is not known"]
        if topic in seen.moves:
            lines.append(f"moves to {seen.moves[topic]}")
        tone = Tone.WARNING if topic in seen.moves else Tone.PLAIN
        yield Node(f"topic {topic}", TOPICS, topic, lines, f"/topics/{topic}", tone)
    more = seen.total - len(seen.places)
    if more > 0:
        yield Node(f"topic {OTHERS}", TOPICS, f"and {words.count(more, 'more topic')}", (), "/topics", Tone.QUIET)


def _cluster_nodes(seen: Seen) -> Iterable[Node]:
    for each in seen.status.clusters[:MOST_CLUSTERS]:
        name = each.spec.cluster_name
        is_away = each.state == admin.CLUSTER_STATE_UNREACHABLE
        state = word(admin.ClusterState, each.state, "not asked yet")
        lines = ["away: does not answer" if is_away else state, words.count(len(each.brokers), "broker")]
        title = f"{name} (home)" if each.home else name
        tone = Tone.BAD if is_away else Tone.PLAIN
        yield Node(f"cluster {name}", CLUSTERS, title, lines, f"/topics?cluster={quote(name)}", tone)
    more = len(seen.status.clusters) - MOST_CLUSTERS
    if more > 0:
        yield Node(f"cluster {OTHERS}", CLUSTERS, f"and {words.count(more, 'more cluster')}", (), "/", Tone.QUIET)


def _client_edges(seen: Seen) -> Iterable[Edge]:
    most = max((each.flow.both for each in seen.busiest.values()), default=0.0)
    drawn_so_far = 0
    for who, client in seen.busiest.items():
        labels, shown = client.flow.labels, [topic for topic in seen.shown if topic in client.topics]
        for topic in shown[: MOST_LINES - drawn_so_far]:
            text = f"{_called(who)} {client.does(topic)} {topic}"
            flow = seen.of_client(who, topic)
            share = 0.0 if flow is None or not most else flow.both / most
            yield Edge(f"client {who}", f"topic {topic}", f"{text}: {flow.text}" if flow else text, labels, share=share)
            labels = ("", "")
            drawn_so_far += 1
        if client.topics - set(shown):
            text = f"{_called(who)} uses {words.count(len(client.topics - set(shown)), 'more topic')}"
            yield Edge(f"client {who}", f"topic {OTHERS}", text, labels, dashed=True)


def _topic_edges(seen: Seen) -> Iterable[Edge]:
    away = {each.spec.cluster_name for each in seen.status.clusters if each.state == admin.CLUSTER_STATE_UNREACHABLE}
    most = max((flow.both for topic in seen.shown if (flow := seen.flow(topic))), default=0.0)
    for topic in seen.shown:
        cluster, flow = seen.cluster(topic), seen.flow(topic) or Flow()
        text = f"{topic} lives on {cluster}" + (f": {flow.text}" if seen.traffic is not None else "")
        tone = Tone.BAD if cluster in away else Tone.PLAIN
        share = flow.both / most if most else 0.0
        yield Edge(f"topic {topic}", f"cluster {cluster}", text, flow.labels, tone, share=share)
        if topic in seen.moves:
            text = f"{topic} moves to {seen.moves[topic]}"
            yield Edge(f"topic {topic}", f"cluster {seen.moves[topic]}", text, tone=Tone.WARNING, dashed=True)
    if seen.traffic is None or not seen.traffic.is_complete:
        return
    rest: dict[str, Flow] = {}
    for (topic, cluster), flow in seen.traffic.places.items():
        if topic not in seen.shown:
            whole = rest.setdefault(cluster, Flow())
            whole.written, whole.read = whole.written + flow.written, whole.read + flow.read
    labels = Flow(sum(each.written for each in rest.values()), sum(each.read for each in rest.values())).labels
    for cluster, flow in rest.items():
        text = f"other topics on {cluster}: {flow.text}"
        yield Edge(f"topic {OTHERS}", f"cluster {cluster}", text, labels, dashed=True)
        labels = ("", "")


def _topic_table(seen: Seen) -> Table:
    rows: list[Cells] = []
    for topic in seen.shown:
        flow, rule = seen.flow(topic), seen.rule(topic)
        rows.append([
            Cell(topic, f"/topics/{topic}"), seen.cluster(topic) or words.NONE,
            Cell(short(rule), f"/{rule}") if rule else words.NONE,
            f"{words.size(round(flow.written))}" if flow else words.NONE,
            f"{words.size(round(flow.read))}" if flow else words.NONE,
            Cell(f"to {seen.moves[topic]}", tone=Tone.WARNING) if topic in seen.moves else words.NONE,
        ])  # fmt: skip
    more = seen.total - len(seen.places)
    note = f"{words.count(more, 'more topic')} of {seen.total:,}: see Topics." if more > 0 else ""
    columns = ("Topic", "Cluster", "Rule", "Written a second", "Read a second", "Moves")
    return Table("Topics on the map", columns, rows, "No client can reach a topic.", note)


def _deeds(seen: Seen) -> Table:
    rows: list[Cells] = []
    for who, client in seen.busiest.items():
        for topic in (each for each in seen.shown if each in client.topics):
            flow = seen.of_client(who, topic)
            rows.append([
                _called(who), who[1] or words.NONE, client.does(topic), topic,
                words.size(round(flow.written)) if flow else words.NONE,
                words.size(round(flow.read)) if flow else words.NONE,
            ])  # fmt: skip
    more = len(rows) - MOST_LINES
    note = f"{more:,} more lines are not shown." if more > 0 else ""
    columns = ("Client id", "Principal", "Does", "Topic", "Written a second", "Read a second")
    return Table("From clients to topics", columns, rows[:MOST_LINES], "No client uses a topic of the map.", note)


def _client_table(seen: Seen, found: clients.ListClientsResponse) -> Table:
    rows: list[Cells] = [
        [
            Cell(_called(who), f"/clients?{_query(who)}"), who[1] or words.NONE, f"{client.connections:,}",
            f"{client.requests:.1f}", words.size(round(client.flow.written)), words.size(round(client.flow.read)),
        ]
        for who, client in seen.busiest.items()
    ]  # fmt: skip
    notes = []
    if more := len(seen.live) - len(rows):
        notes.append(f"{words.count(more, 'more client')}: see Clients.")
    if found.next_page_token:
        notes.append(f"Only the first {MOST_ROWS:,} kinds of connections were looked at.")
    if left := sum(each.connections for each in found.left_out):
        notes.append(f"Gateways leave out {words.count(left, 'connection')}, the idlest.")
    columns = ("Client id", "Principal", "Connections", "Requests a second", "In a second", "Out a second")
    return Table("Clients on the map", columns, rows, "No client is connected.", " ".join(notes))
