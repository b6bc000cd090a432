"""Which connection a client's next small Produce takes: its own, or one that many share.

Theory of operation
1. As long as anything of a client is unanswered on one connection to a broker, what follows goes there too: its order
   holds. It changes over when nothing is unanswered.
2. Shared is what is small and what the broker answers right away: with acks 1, or where the partition has no other
   replica that must have it first. Acks 0 has the end of the connection for its only no, and never comes here; nor
   does anything else whose plan is looked at, or what is streamed. Nobody can tell when what was sent without acks has
   arrived, so who has sent such goes on with its own connection as long as that lives.
3. Who sends something large, has much unanswered at once, or is slowed down by a quota goes on with its own connection
   for a while: others must not stand behind that. So does who has had to wait long behind others, each time for twice
   as long. What such a client sends next waits until its last answer has come.
4. When a shared connection breaks, its broker was at the oldest request: whoever sent that one goes alone for long,
   lest it breaks the next one too.
"""

from typing import Final

from services.gateway import metrics
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.shared import SLOW_S, Pool, SharedConnection

SMALL_BYTES: Final = 8 * 1024
"""More takes a broker longer than the request behind it should wait."""
FAIR_SHARE: Final = 5
"""Unanswered requests of one client; producers have five at most if nobody tells them otherwise."""
REST_S: Final = 10.0
"""Who was too much for others comes back after so long; a producer that is large now and then stays away ..."""
LONGEST_REST_S: Final = 600.0
"""... where it has been slow again and again ..."""
THROTTLED_REST_S: Final = 60.0
"""... and one that was slowed down, so long: quotas are counted over some ten seconds."""
LOOK_AGAIN_S: Final = 0.1
"""Where no shared connection is to be had, for a while nobody looks."""


class Seat:
    """Of one client connection, for one broker."""

    __slots__ = ("_leaving", "_pool", "_rests_until", "_slow_rest_s", "own", "shared", "unanswered")

    def __init__(self, pool: Pool | None) -> None:
        """Without a pool nothing is shared."""
        self._pool = pool
        self._rests_until = 0.0
        self._slow_rest_s = REST_S
        self._leaving = False
        self.own: BrokerConnection | None = None
        """Not always alive."""
        self.shared: SharedConnection | None = None
        self.unanswered = 0
        """Of what was sent on the shared connection."""
        if pool is not None:
            pool.clients += 1

    def connection(self, size: int, now: float, *, quick: bool) -> BrokerConnection | None:
        """Where a request of `size` bytes goes; `quick`: its broker answers it right away.

        None: no connection may take it now. Its plan has to, as soon as nothing is `unanswered`.
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
            elif shared.takes_more:
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
        return own if own is not None and own.takes_more else None

    def _changed(self, pool: Pool, now: float) -> SharedConnection | None:
        """Another shared connection, if there is one to be had."""
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
        """On the shared connection."""
        self.unanswered += 1
        if self._pool is not None:
            self._pool.calls.total += 1

    def answered(self, sent_at: float, throttle_ms: int) -> None:
        """One of them is, now. `throttle_ms`: for so long the broker reads nothing from its connection."""
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
        """One of them will never be answered: the connection has ended."""
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
        """The client is gone. What it has sent is carried through."""
        pool, self._pool = self._pool, None
        if pool is not None:
            if self.shared is not None and not self._leaving:
                pool.left(self.shared)
            pool.went()
