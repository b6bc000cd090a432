"""Chooses the connection of a client's next small Produce: the client's own, or one that many clients share.

Theory of operation
1. As long as a client has unanswered requests on one connection to a broker, its next requests go there too: their
   order holds. The client changes its connection when all requests are answered.
2. Small requests that the broker answers right away are shared: those with acks 1, or to a partition without another
   replica that must have the records first. Requests with acks 0 are never shared, because a broker can refuse them
   only by closing the connection. Requests that go by a plan, or that are streamed, are not shared either. Nobody can
   tell when a request without acks has arrived. Its client therefore keeps its own connection as long as this lives.
3. A client that sends a large request, has many unanswered requests, or is slowed down by a quota uses its own
   connection for a while: others must not wait behind its requests. A client that has waited long behind others does
   the same, each time for twice as long. The next request of such a client waits until its last answer has come.
4. When a shared connection breaks, its broker was working on the oldest request. The client of this request uses its
   own connection for long, lest its requests break the next shared connection too.
"""

from typing import Final

from services.gateway import metrics
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.shared import SLOW_S, Pool, SharedConnection

SMALL_BYTES: Final = 8 * 1024
"""A larger request takes a broker longer than the request behind it should wait."""
FAIR_SHARE: Final = 5
"""Most unanswered requests of one client; by default a producer has five at most."""
REST_S: Final = 10.0
"""A client that was too much for others shares again after this time; this holds for an occasional large request ..."""
LONGEST_REST_S: Final = 600.0
"""... this is the longest time, for a client that has been slow again and again ..."""
THROTTLED_REST_S: Final = 60.0
"""... and this is the time after a throttle: quotas are counted over some ten seconds."""
LOOK_AGAIN_S: Final = 0.1
"""If no shared connection can be had, the time until the next attempt."""


class Seat:
    """The seat of one client connection, for one broker."""

    __slots__ = ("_leaving", "_pool", "_rests_until", "_slow_rest_s", "own", "shared", "unanswered")

    def __init__(self, pool: Pool | None) -> None:
        """Without a pool the client shares nothing."""
        self._pool = pool
        self._rests_until = 0.0
        self._slow_rest_s = REST_S
        self._leaving = False
        self.own: BrokerConnection | None = None
        """The client's own connection; it may have ended."""
        self.shared: SharedConnection | None = None
        self.unanswered = 0
        """Unanswered requests on the shared connection."""
        if pool is not None:
            pool.clients += 1

    def connection(self, size: int, now: float, quick: bool) -> BrokerConnection | None:
        """The connection for a request of `size` bytes; `quick` says whether its broker answers right away.

        None: no connection may take the request now. Its plan takes it as soon as nothing is `unanswered`.
        """
        shared, pool = self.shared, self._pool
        if pool is None:
            pass
        elif self.unanswered and shared is not None:
            if self._leaving:
                return None
            if not quick or size > SMALL_BYTES:
                self._leave(now + REST_S, "large" if quick else "replicas")
            elif self.unanswered >= FAIR_SHARE:
                self._leave(now + REST_S, "many")
            elif shared.takes_more():
                return shared
            return None
        elif quick and size <= SMALL_BYTES and now >= self._rests_until:
            own = self.own
            if own is None or not (own.in_flight or own.unheard):
                if shared is not None and not self._leaving and shared.takes_from_anybody(now):
                    return shared
                shared = self._changed(pool, now)
                if shared is not None:
                    return shared
        own = self.own
        return own if own is not None and own.takes_more() else None

    def _changed(self, pool: Pool, now: float) -> SharedConnection | None:
        """Another shared connection, if one can be had."""
        found = pool.connection(now)
        if found is None:
            self._rests_until = now + LOOK_AGAIN_S
        elif found is not self.shared or self._leaving:
            if self.shared is not None and not self._leaving:
                pool.left(self.shared)
            found.clients += 1
            self.shared, self._leaving = found, False
        return found

    def sent(self) -> None:
        """A request was sent on the shared connection."""
        self.unanswered += 1
        if self._pool is not None:
            self._pool.calls.total += 1

    def answered(self, sent_at: float, throttle_ms: int) -> None:
        """A request on the shared connection is answered. The broker reads nothing from it for `throttle_ms`."""
        self.unanswered -= 1
        shared = self.shared
        if shared is None:
            return
        now = shared.moved_at
        if throttle_ms > 0:
            shared.mute(now + throttle_ms / 1000)
            self._leave(now + THROTTLED_REST_S, "throttled")
        elif now - sent_at > SLOW_S and not self._leaving:
            self._leave(now + self._slow_rest_s, "slow")
            self._slow_rest_s = min(2 * self._slow_rest_s, LONGEST_REST_S)

    def failed(self) -> None:
        """A request on the shared connection will never be answered: the connection has ended."""
        self.unanswered -= 1
        shared = self.shared
        if shared is not None and not shared.blamed:
            shared.blamed = True
            self._leave(shared.moved_at + LONGEST_REST_S, "broken")

    def _leave(self, until: float, reason: str) -> None:
        """Go on with the own connection."""
        self._rests_until = max(self._rests_until, until)
        if self._pool is not None and self.shared is not None and not self._leaving:
            self._leaving = True
            self._pool.left(self.shared)
            metrics.left_shared.labels(self._pool.cluster, reason).inc()

    def give_up(self) -> None:
        """The client is gone. The requests that it has sent are carried through."""
        pool, self._pool = self._pool, None
        if pool is not None:
            if self.shared is not None and not self._leaving:
                pool.left(self.shared)
            pool.went()
