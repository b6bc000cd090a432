"""The figures of clients at /metrics, by who they are: requests, errors, bytes and connections, within a budget.

Theory of operation
1. Each connection counts its own calls anyway (`ClientCalls`). A scrape adds to the totals of its client what is new,
   so requests cost nothing more. A connection that ends adds the rest.
2. A client is a client id, a principal and a software. The first `MOST_CLIENTS` have series of their own. All others
   share `other`, and a gauge says how many they are. A client that was away for `KEPT_S` makes room.
3. Scrapes come on a thread of their own. The loop never waits for one: a connection that ends meanwhile is left in a
   queue, which the scrape empties.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.gateway.downstream.group_names import MOST_GROUPS, GroupNames
from services.gateway.requests.client_calls import ClientCalls, Totals
from services.gateway.requests.memory import Session
from services.gateway.requests.uses import shortened

MOST_CLIENTS: Final = 200
KEPT_S: Final = 3600.0
AT_ONCE: Final = 64
"""Connections behind which a scrape lets the loop go on: some 0.3 ms."""
LABELS: Final = ("client_id", "principal", "software")


class Who(NamedTuple):
    """A client, as the labels of its series have it."""

    client_id: str
    principal: str
    software: str


OTHER: Final = Who("other", "other", "other")


class _Figures:
    """The totals of one client."""

    __slots__ = ("last", "totals")

    def __init__(self) -> None:
        self.totals = Totals()
        self.last = 0.0
        """When it was last there."""


class ClientFigures(Collector):
    """Read by the management thread; `left` is called by the loop."""

    def __init__(self, sessions: Callable[[], Iterable[Session]], now: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._now = now
        self._scraping = threading.Lock()
        self._figures: dict[Who, _Figures] = {}
        self._left: deque[Session] = deque()
        self._groups = GroupNames()

    def left(self, session: Session) -> None:
        """A client's connection has ended."""
        self._left.append(session)
        if self._scraping.acquire(blocking=False):
            try:
                self._take_left()
            finally:
                self._scraping.release()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        with self._scraping:
            self._take_left()
            now = self._now()
            kept = ((who, each) for who, each in self._figures.items() if who == OTHER or now - each.last <= KEPT_S)
            self._figures = dict(kept)
            connections: Counter[Who] = Counter()
            unnamed: set[Who] = set()
            members: Counter[str] = Counter()
            for number, session in enumerate(self._sessions()):
                if number % AT_ONCE == 0:
                    time.sleep(0)
                who = _who(session)
                named = self._add(who, session.calls)
                connections[named] += 1
                members.update(map(self._groups.label, list(session.uses.groups)))
                if named == OTHER:
                    unnamed.add(who)
            shown = {who: each.totals for who, each in self._figures.items()}
        yield from _families(shown, connections, len(unnamed))
        by_group = GaugeMetricFamily(
            "kafka_mesh_gateway_group_connections",
            "Open connections that have joined a group, or committed for it: one for each member of usual clients. "
            f"Groups beyond {MOST_GROUPS} count as `other`.",
            labels=("group",),
        )
        for group, count in members.items():
            by_group.add_metric((group,), count)
        yield by_group

    def _take_left(self) -> None:
        while self._left:
            session = self._left.popleft()
            self._add(_who(session), session.calls)

    def _add(self, who: Who, calls: ClientCalls) -> Who:
        """Returns the client by whose name it counts."""
        figures = self._figures.get(who)
        if figures is None:
            if len(self._figures) - (OTHER in self._figures) >= MOST_CLIENTS:
                who = OTHER
            figures = self._figures.setdefault(who, _Figures())
        figures.totals = figures.totals.plus(calls.since_last_scrape())
        figures.last = self._now()
        return who


def _who(session: Session) -> Who:
    software = f"{session.software_name}/{session.software_version}" if session.software_name else ""
    return Who(shortened(session.client_id or ""), shortened(session.principal), shortened(software))


def _families(shown: dict[Who, Totals], connections: Counter[Who], unnamed: int) -> Iterator[Metric]:
    prefix, more = "kafka_mesh_gateway", f"Clients beyond {MOST_CLIENTS} count as `other`."
    requests = CounterMetricFamily(f"{prefix}_client_requests", f"Answered requests of a client. {more}", labels=LABELS)
    errors = CounterMetricFamily(
        f"{prefix}_client_errors",
        "Error codes in answers to a client; an answer counts once for each code in it.",
        labels=LABELS,
    )
    sizes = CounterMetricFamily(
        f"{prefix}_client_traffic_bytes",
        "Bytes of frames from (in) and to (out) a client.",
        labels=(*LABELS, "direction"),
    )
    opened = GaugeMetricFamily(f"{prefix}_client_open_connections", "Open connections of a client.", labels=LABELS)
    for who, totals in shown.items():
        requests.add_metric(who, totals.requests)
        errors.add_metric(who, totals.errors)
        sizes.add_metric((*who, "in"), totals.bytes_in)
        sizes.add_metric((*who, "out"), totals.bytes_out)
        opened.add_metric(who, connections[who])
    yield from (requests, errors, sizes, opened)
    told = "Clients with open connections that count as `other` in the series of clients."
    yield GaugeMetricFamily(f"{prefix}_unnamed_clients", told, value=unnamed)
