"""Ends the connections of listeners that were closed or have changed, at once or within the drain time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

import structlog

from services.gateway import metrics
from services.gateway.downstream.client import ClientConnection
from services.gateway.downstream.entrance import Entrance
from services.gateway.listeners import Listener
from services.gateway.wanted_listeners import Fate, fate

CHANGED: Final = "its listener has changed"
SLACK_S: Final = 0.01
"""A timer may come so much before its time."""

log = structlog.get_logger(__name__)


class ChangedListeners:
    """See above."""

    def __init__(self, connections: Collection[ClientConnection], drain_s: float, last_answers_s: float) -> None:
        """`last_answers_s`: the bound for answers of a connection that takes no more requests."""
        self._connections = connections
        self._drain_s = drain_s
        self._last_answers_s = last_answers_s
        self._ends: dict[ClientConnection, float] = {}
        """When connections take no more requests, by the clock of the event loop."""
        self._timers: set[asyncio.TimerHandle] = set()
        metrics.draining_connections.set_function(lambda: sum(self.draining().values()))

    def changed(self, name: str, after: Listener | None, *, is_open: bool) -> None:
        """`after`: the listener as it is wanted now; None: it is closed."""
        counts = self._judge(self._of(name), after, is_open=is_open)
        if counts:
            log.info(
                "connections of a listener that has changed",
                listener=name,
                closed=counts[Fate.CLOSE],
                draining=counts[Fate.DRAIN],
                staying=counts[Fate.STAY],
            )

    def opened(self, entrance: Entrance) -> None:
        """The listener is open by its new policy, which counts for the connections that stay."""
        earlier = [each for each in self._of(entrance.of.name) if each.entrance is not entrance]
        self._judge(earlier, entrance.of, is_open=True)
        for connection in earlier:
            if connection.is_open and connection not in self._ends:
                connection.goes_on_at(entrance)

    def _of(self, name: str) -> list[ClientConnection]:
        return [each for each in self._connections if each.entrance.of.name == name]

    def _judge(
        self, connections: Iterable[ClientConnection], after: Listener | None, *, is_open: bool
    ) -> Counter[Fate]:
        counts: Counter[Fate] = Counter()
        for connection in connections:
            found = fate(connection.entrance.of, after, connection.session.proved.proof)
            if found is Fate.STAY and not is_open:
                found = Fate.DRAIN
            counts[found] += 1
            match found:
                case Fate.CLOSE:
                    self._ends.pop(connection, None)
                    metrics.ended_by_listeners.labels("closed").inc()
                    connection.close(CHANGED)
                case Fate.DRAIN:
                    self._ends.setdefault(connection, self._now() + self._drain_s)
                case Fate.STAY:
                    self._ends.pop(connection, None)
        if counts[Fate.DRAIN]:
            self._later(self._drain_s, self._drain)
        return counts

    def draining(self) -> Counter[str]:
        """The number of connections that are going to end, by the name of their listener."""
        return Counter(each.entrance.of.name for each in list(self._ends) if each in self._connections)

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _later(self, after_s: float, work: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timers = {each for each in self._timers if not each.cancelled() and each.when() > loop.time()}
        self._timers.add(loop.call_later(after_s + SLACK_S, work))

    def _drain(self) -> None:
        now = self._now()
        due = [connection for connection, at in self._ends.items() if at <= now]
        for connection in due:
            del self._ends[connection]
        leaving = [connection for connection in due if connection in self._connections]
        for connection in leaving:
            metrics.ended_by_listeners.labels("drained").inc()
            connection.drain(CHANGED)
        if leaving:
            self._later(self._last_answers_s, partial(self._cut, leaving))

    def _cut(self, leaving: Sequence[ClientConnection]) -> None:
        for connection in leaving:
            if connection in self._connections:
                connection.abort(CHANGED)
