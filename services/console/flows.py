"""The nodes of the map and what flows between them, from answers of control: the busiest ones, within bounds. No I/O.

Theory of operation
1. A rate of a client is live: gateways measure it, and control has it within seconds. It is about all topics of the
   client together.
2. A rate of a topic is that of the last minutes: the pipeline counts bytes for each client, topic and cluster.
3. The map shows the clients and topics with the highest rates, and a topic that moves in each case. The others are one
   node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mesh.rpc import clients, traffic
from services.console import words

MOST_CLIENTS = MOST_TOPICS = 12
"""Boxes of a column: as many as a screen has."""
MOST_ROWS = 1000
"""The most rows that an answer about traffic may have."""
WRITES, READS = ("Produce",), ("Fetch", "ShareFetch")
"""As gateways count them. A sidecar's own counts are of the same records again."""


@dataclass(slots=True)
class Flow:
    """Bytes a second: written to the mesh, and read from it."""

    written: float = 0.0
    read: float = 0.0

    @property
    def both(self) -> float:
        return self.written + self.read

    def add(self, api: str, rate: float) -> None:
        if api in WRITES:
            self.written += rate
        elif api in READS:
            self.read += rate

    @property
    def labels(self) -> tuple[str, str]:
        """Nothing flows: no label."""
        return (
            f"in {words.size(round(self.written))}/s" if self.written else "",
            f"out {words.size(round(self.read))}/s" if self.read else "",
        )

    @property
    def text(self) -> str:
        return f"{words.size(round(self.written))} in, {words.size(round(self.read))} out a second"


Who = tuple[str, str]
"""client.id and principal."""


@dataclass(slots=True)
class LiveClient:
    """All connections of a client.id of a principal."""

    connections: int = 0
    requests: float = 0.0
    flow: Flow = field(default_factory=Flow)
    writes: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)

    @property
    def topics(self) -> set[str]:
        return self.writes | self.reads

    def does(self, topic: str) -> str:
        return " and ".join(deed for deed, names in (("writes", self.writes), ("reads", self.reads)) if topic in names)


def live_clients(found: Iterable[clients.Client]) -> dict[Who, LiveClient]:
    """The busiest first."""
    by_who: dict[Who, LiveClient] = {}
    for each in found:
        client = by_who.setdefault((each.client_id, each.principal), LiveClient())
        client.connections += each.connections
        client.requests += each.rates.requests
        client.flow.written += each.rates.bytes_in
        client.flow.read += each.rates.bytes_out
        client.writes.update(each.produces_to)
        client.reads.update(each.consumes_from)
    return dict(sorted(by_who.items(), key=lambda one: (-one[1].flow.both, one[0])))


@dataclass(frozen=True, slots=True)
class Counted:
    """The traffic of the last minutes."""

    topics: Mapping[str, Flow]
    """The busiest first."""
    places: Mapping[tuple[str, str], Flow]
    """Topic and cluster."""
    rules: Mapping[str, str]
    """Topic -> the rule that routed most of it."""
    of_clients: Mapping[tuple[Who, str], Flow]
    """Client and topic."""
    is_complete: bool
    """All topics are there: the answer was not cut at its bound."""


def counted(
    by_place: traffic.TopTalkersResponse, by_client: traffic.TopTalkersResponse, start: datetime
) -> Counted | None:
    """None: no traffic since `start` is complete yet."""
    fresh = by_place.freshness
    if not fresh.HasField("complete_until"):
        return None
    seconds = fresh.complete_until.ToMilliseconds() / 1000 - start.timestamp()
    if seconds <= 0:
        return None
    topics: dict[str, Flow] = {}
    places: dict[tuple[str, str], Flow] = {}
    rules: dict[str, str] = {}
    for each in by_place.talkers:  # the most bytes first
        who, rate = each.who, each.figures.bytes / seconds
        if not who.topic or who.api not in (*WRITES, *READS):
            continue
        topics.setdefault(who.topic, Flow()).add(who.api, rate)
        places.setdefault((who.topic, who.cluster), Flow()).add(who.api, rate)
        rules.setdefault(who.topic, who.rule)
    of_clients: dict[tuple[Who, str], Flow] = {}
    for each in by_client.talkers:
        who = each.who
        flow = of_clients.setdefault(((who.client, who.principal), who.topic), Flow())
        flow.add(who.api, each.figures.bytes / seconds)
    busiest = dict(sorted(topics.items(), key=lambda one: (-one[1].both, one[0])))
    return Counted(busiest, places, rules, of_clients, len(by_place.talkers) < MOST_ROWS)


def shown_topics(
    moving: Iterable[str], traffic_of: Counted | None, live: Iterable[LiveClient], others: Iterable[str]
) -> list[str]:
    """Those that move, then by rates, then those that clients use, then the others, within the bound."""
    used = (topic for client in live for topic in sorted(client.topics))
    names = dict.fromkeys([*moving, *(() if traffic_of is None else traffic_of.topics), *used, *others])
    return list(names)[:MOST_TOPICS]
