"""The place where Fetch requests of quiet consumers wait while polls of the gateway's own watch for news.

`requests.records.log_ends` says which requests wait, and until when. This is the I/O: connections of watches, and time.
Requests whose waits end within the same `TICK_S` are in one bucket with one timer, so no timer is set for a request.
Many requests that end or are woken at once go on in portions.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final

from services.gateway import metrics
from services.gateway.requests.plan import Broker, Call, Lane, Outcome, RawResponse, Sent
from services.gateway.requests.records.broker_fetches import SESSIONS_SINCE
from services.gateway.requests.records.fetch_poll import scan_of
from services.gateway.requests.records.log_ends import (
    RENEWED_AFTER_S,
    SHORTEST_WAIT_S,
    UNUSED_S,
    WATCH_MS,
    BrokerLogEnds,
    LogEnd,
    LogEndWatch,
)
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.connection import OUR_CLIENT_ID
from services.gateway.upstream.lanes import Lanes

if TYPE_CHECKING:
    from services.gateway.downstream.fetch_in_flight import FetchInFlight
    from services.gateway.downstream.fetch_questions import Way

TICK_S: Final = 0.004
"""The precision of waits; brokers', too, end a few milliseconds late."""
PORTION: Final = 100
"""Requests that go on within one turn of the event loop: some 3 ms."""
OVERDUE_S: Final = 1.0
"""An answer of a watch that is later than this ends the watch. Until then a broker that hangs is not noticed."""
REST_S: Final = 5.0
"""How long a broker whose watch has failed is not watched."""
SOONEST_S: Final = 0.1
"""Between two requests of a watch, if the broker brings no news and does not wait."""

Key = tuple[int, int]
"""The incarnation of the cluster, and the broker's id."""


@dataclass(eq=False, slots=True)
class _Watched:
    """One watch, and its connection."""

    cluster: str
    key: Key
    watch: LogEndWatch
    lanes: Lanes
    timer: asyncio.TimerHandle | None = None
    """The bound of the request that is on its way, also while a connection for it is opened."""


class WaitingRoom:
    """The one of all clients of the process."""

    __slots__ = (
        "_brokers", "_buckets", "_clusters", "_goes_on", "_loop", "_no_client", "_over", "_resting", "_watched",
        "_woken", "waiting",
    )  # fmt: skip

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._loop: asyncio.AbstractEventLoop | None = None
        self._brokers: dict[Key, BrokerLogEnds] = {}
        self._resting: dict[Key, float] = {}
        """Until when a broker is not watched."""
        self._watched: dict[LogEndWatch, _Watched] = {}
        self._no_client = Lanes()
        self._buckets: dict[int, dict[FetchInFlight, None]] = {}
        self._woken: deque[FetchInFlight] = deque()
        self._over: deque[FetchInFlight] = deque()
        self._goes_on = False
        """Whether the next portion has its turn in the event loop."""
        self.waiting = 0
        """The requests that wait."""

    @property
    def watches(self) -> int:
        return sum(len(each.watches) for each in list(self._brokers.values()))

    def takes(self, fetch: "FetchInFlight") -> bool:
        """Whether the request waits here. Its forwarder hears of the end by `woken` or `waited_out`."""
        limits, now = fetch.limits, fetch.began
        if limits.min_bytes < 1 or not SHORTEST_WAIT_S <= limits.wait_s <= RENEWED_AFTER_S:
            return False
        ends: list[LogEnd] | None = []
        for part in fetch.parts:
            broker = self._broker(part.way, now) if part.left is None else None
            if broker is None:
                return False
            found = broker.standing(part.wanted, part.fetches.marks, fetch.isolation_level != 0, now)
            ends = None if found is None or ends is None else ends + found
        if not ends:
            return False
        stay: list[dict[FetchInFlight, None]] = [self._bucket(now + limits.wait_s)]
        stay += [end.waiting for end in ends]
        for each in stay:
            each[fetch] = None
        fetch.stay = stay
        self.waiting += 1
        return True

    def leave(self, fetch: "FetchInFlight") -> None:
        """The request waits no more, if it did."""
        stay, fetch.stay = fetch.stay, None
        if stay is not None:
            self.waiting -= 1
            for each in stay:
                each.pop(fetch, None)

    # --- time ----------------------------------------------------------------------------------------------------

    def _bucket(self, over_at: float) -> "dict[FetchInFlight, None]":
        tick = ceil(over_at / TICK_S)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            self._running_loop().call_at(tick * TICK_S, self._end_bucket, tick)
        return bucket

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _end_bucket(self, tick: int) -> None:
        self._over.extend(self._buckets.pop(tick))
        if not self._goes_on:
            self._go_on()

    def _go_on(self) -> None:
        """The next portion: first those for whom there are records."""
        self._goes_on = False
        try:
            for _ in range(PORTION):
                if self._woken:
                    fetch = self._woken.popleft()
                    if fetch.stay is not None:
                        self.leave(fetch)
                        fetch.forwarder.woken(fetch)
                elif self._over:
                    fetch = self._over.popleft()
                    if fetch.stay is not None:
                        self.leave(fetch)
                        fetch.forwarder.waited_out(fetch)
                else:
                    return
        finally:  # whatever happens to one of them
            if self._woken or self._over:
                self._goes_on = True
                self._running_loop().call_soon(self._go_on)

    def _wake(self, fetches: "list[FetchInFlight]", why: str) -> None:
        if fetches:
            metrics.ended_waits.labels(why).total += len(fetches)
            self._woken.extend(fetches)
            if not self._goes_on:
                self._go_on()

    # --- watches -------------------------------------------------------------------------------------------------

    def _broker(self, way: "Way", now: float) -> BrokerLogEnds | None:
        """The log ends of this broker; None if nobody may wait for it.

        A watch has the mesh's own identity, so clients with others at the cluster don't wait.
        """
        found = way.log_ends
        if found is None or not found.watches:
            found = way.log_ends = self._look_up(way, now)
        return found

    def _look_up(self, way: "Way", now: float) -> BrokerLogEnds | None:
        cluster = way.cluster
        key = (self._clusters.incarnation(cluster, self._no_client), way.broker_id)
        if way.kept_at != (key[0], Broker(way.broker_id), Lane.FETCH):
            return None
        found = self._brokers.get(key)
        if found is None:
            if self._resting.get(key, now) > now or way.version < SESSIONS_SINCE:
                return None
            self._resting.pop(key, None)
            found = self._brokers[key] = BrokerLogEnds(way.version, lambda watch: self._begin(cluster, key, watch))
        return found

    def _is_same(self, cluster: str, key: Key) -> bool:
        """Whether the name still stands for the same cluster."""
        return self._clusters.incarnation(cluster, self._no_client) == key[0]

    def _begin(self, cluster: str, key: Key, watch: LogEndWatch) -> None:
        watched = self._watched.get(watch)
        if watched is None:
            watched = self._watched[watch] = _Watched(cluster, key, watch, Lanes())
        self._ask(watched)

    def _look(self, watched: _Watched) -> None:
        """The watch had no ends a while ago."""
        if not watched.watch.goes_on:
            self._ask(watched)

    def _ask(self, watched: _Watched) -> None:
        cluster, key, watch, now = watched.cluster, watched.key, watched.watch, monotonic()
        if watch not in self._watched:
            return
        if not self._is_same(cluster, key):
            self._lost(watched)
            return
        request = watch.ask(now)
        if request is None:
            if watch in watch.broker.watches:
                self._running_loop().call_later(UNUSED_S, self._look, watched)
            else:
                self._ended(watched, "nobody waits")
            return
        broker = watch.broker
        timeout_s = WATCH_MS / 1000 + OVERDUE_S
        call = Call(cluster, request.message, broker.version, Broker(key[1]), Lane.FETCH, timeout_s, raw=True)
        watched.timer = self._running_loop().call_later(timeout_s + OVERDUE_S, self._lost, watched)
        self._clusters.submit(call, watched.lanes, OUR_CLIENT_ID, partial(self._settled, watched, now))

    def _settled(self, watched: _Watched, asked_at: float, outcome: Outcome | Sent, _: bool) -> None:
        if watched.watch not in self._watched:
            return  # it has ended meanwhile
        if watched.timer is not None:
            watched.timer.cancel()
            watched.timer = None
        scan = scan_of(outcome) if isinstance(outcome, RawResponse) else None
        if scan is None:
            self._lost(watched)
            return
        watch = watched.watch
        woken = watch.answered(scan)
        if watch not in watch.broker.watches:
            self._ended(watched, "the broker has refused")
        elif woken or monotonic() - asked_at >= SOONEST_S:
            self._ask(watched)
        else:
            self._running_loop().call_later(SOONEST_S, self._ask, watched)
        self._wake(woken, "news")

    def _lost(self, watched: _Watched) -> None:
        self._resting[watched.key] = monotonic() + REST_S
        woken = watched.watch.lost()
        self._ended(watched, "not watched")
        self._wake(woken, "lost")

    def _ended(self, watched: _Watched, reason: str) -> None:
        del self._watched[watched.watch]
        if watched.timer is not None:
            watched.timer.cancel()
        watched.lanes.close(reason)
        if not watched.watch.broker.watches and self._brokers.get(watched.key) is watched.watch.broker:
            del self._brokers[watched.key]
