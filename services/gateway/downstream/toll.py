"""Charges the requests of one connection to the quotas of its client, and pauses the connection for an excess.

Theory of operation
1. A Produce is charged when it comes, by its size; a Fetch when its answer leaves, by the size of that. So is the time
   that the gateway's thread works for a request until it is passed on, and for each further step of its plan.
2. An excess pauses the connection as brokers do (KIP-219). The gateway answers at once, with the rest of the pause as
   throttle time. Then it reads nothing from the connection until the pause is over. So a client that does not heed
   the throttle time does not gain. A longer throttle time of a broker stays in the answer.
3. Requests that were read before the pause are carried out. Each is charged, so it makes the pause longer.
4. A Fetch may ask for more than its client may have at once. Then the gateway lowers the bytes that it asks for, as
   brokers do, so that no answer costs a pause of a minute.
5. If an address opens connections too fast, the gateway accepts the next one, reads nothing from it, and closes it
   after a pause (KIP-612). The connection is then not counted.
6. A paused connection is not read, so the loop does not see the client leave: the toll looks every `LOOK_S`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from mesh.quotas import Key
from services.gateway import clock, metrics
from services.gateway.downstream.reading import Reading
from services.gateway.quotas.accounts import WINDOW_S, Account, Quotas
from services.gateway.requests.memory import Session
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.primitives import INT32, Buffer
from services.gateway.wire.scanner.walks import headers
from services.gateway.wire.throttle_times import with_throttle_time

LOOK_S: Final = 5.0
MOST_FOR_OTHERS_S: Final = 1.0
"""The longest pause for an excess of time or of connections, as on brokers."""
SHORTEST_S: Final = 0.001
"""A shorter pause is no throttle time, which is in milliseconds."""
MAX_BYTES_SINCE: Final = 3
"""The first version of Fetch with a bound of the whole answer ..."""
WITHOUT_REPLICA: Final = 15
"""... and the first that does not begin with the id of a replica."""
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)


class Toll:
    """See above."""

    __slots__ = (
        "_client_id", "_closed", "_edition", "_loop", "_proved", "_quotas", "_reading", "_session", "_timer",
        "fetched", "is_due", "produced", "until", "worked",
    )  # fmt: skip

    def __init__(self, quotas: Quotas, session: Session, reading: Reading) -> None:
        self._quotas = quotas
        self._session = session
        self._reading = reading
        self._loop = asyncio.get_running_loop()
        self._edition = -1
        self._client_id: str | None = None
        self._proved = session.proved
        self.produced: Account | None = None
        self.fetched: Account | None = None
        self.worked: Account | None = None
        self.until = 0.0
        """The end of the pause; 0: there is none."""
        self._closed = False
        self.is_due = False
        """Whether answers are charged, or tell of a pause."""
        self._timer: asyncio.TimerHandle | None = None

    def connected(self, address: str) -> None:
        """The connection has come from this address."""
        pause = self._quotas.connected(address, clock.now())
        if pause > 0.0:
            metrics.throttled.labels(Key.CONNECTION_CREATION_RATE.value).inc()
            self._reading.turn_away(min(pause, MOST_FOR_OTHERS_S))

    def came(self, header: headers.RequestHeader, frame: memoryview, now: float) -> None:
        """A whole request has come; a Fetch that asks for too much is changed."""
        self._follow(header.client_id)
        if header.api_key == _PRODUCE:
            if self.produced is not None:
                self._charge(self.produced, len(frame), now)
        elif header.api_key == _FETCH and self.fetched is not None:
            self._bound(self.fetched, header, frame)

    def comes(self, client_id: str | None, size: int) -> None:
        """A large Produce passes while it still comes."""
        self._follow(client_id)
        if self.produced is not None:
            self._charge(self.produced, size, clock.now())

    def work(self, began: float, now: float) -> None:
        """The gateway's thread has worked for a request since then."""
        if self.worked is not None:
            self._charge(self.worked, 100.0 * (now - began), now)

    def leaves(self, api_key: int, version: int, pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
        """The pieces of an answer of this size, as they are to leave."""
        if api_key == _FETCH and self.fetched is not None:
            self._charge(self.fetched, size, clock.now())
        if not self.until:
            return pieces
        rest_ms = round(1000.0 * (self.until - clock.now()))
        return with_throttle_time(api_key, version, pieces, rest_ms) if rest_ms > 0 else pieces

    def _follow(self, client_id: str | None) -> None:
        quotas, session = self._quotas, self._session
        if self._edition == quotas.edition and client_id == self._client_id and session.proved is self._proved:
            return
        self._edition, self._client_id, self._proved = quotas.edition, client_id, session.proved
        user, called, now, groups = session.proved.name, client_id or "", clock.now(), session.proved.groups
        self.produced = quotas.account(Key.PRODUCER_BYTE_RATE, user, called, now, groups)
        self.fetched = quotas.account(Key.CONSUMER_BYTE_RATE, user, called, now, groups)
        self.worked = quotas.account(Key.REQUEST_PERCENTAGE, user, called, now, groups)
        self._note_due()

    def _note_due(self) -> None:
        self.is_due = self.fetched is not None or self.until > 0.0

    def _bound(self, account: Account, header: headers.RequestHeader, frame: memoryview) -> None:
        version = header.api_version
        at = header.body_offset + INT32.size * (3 if version < WITHOUT_REPLICA else 2)
        if version < MAX_BYTES_SINCE or len(frame) < at + INT32.size or frame.readonly:
            return
        most = max(1, int(account.rate.quota * WINDOW_S))
        if INT32.unpack_from(frame, at)[0] > most:
            INT32.pack_into(frame, at, most)

    def _charge(self, account: Account, amount: float, now: float) -> None:
        pause = account.charge(amount, now)
        if pause >= SHORTEST_S and not self._closed:
            self._pause(account, pause, now)

    # --- pauses --------------------------------------------------------------------------------------------------

    def _pause(self, account: Account, pause: float, now: float) -> None:
        if account is self.worked:
            pause = min(pause, MOST_FOR_OTHERS_S)
        metrics.throttled.labels(account.key.value).inc()
        metrics.throttle_seconds.labels(account.key.value).inc(max(0.0, now + pause - max(now, self.until)))
        if now + pause <= self.until:
            return
        if not self.until:
            metrics.throttled_connections.inc()
            self._quotas.on_change.add(self.end)
        self.until = now + pause
        self._note_due()
        self._reading.muted = True
        self._reading.update()
        if self._timer is None:
            self._watch(now)

    def _watch(self, now: float) -> None:
        self._timer = self._loop.call_at(min(self.until, now + LOOK_S), self._look)

    def _look(self) -> None:
        self._timer = None
        now = clock.now()
        if now >= self.until - SHORTEST_S:
            self.end()
        else:
            self._reading.look_at_the_client()
            if self.until:
                self._watch(now)

    def close(self) -> None:
        """The connection is gone. Its last requests are charged all the same."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """The pause is over."""
        if not self.until:
            return
        self.until = 0.0
        self._note_due()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        metrics.throttled_connections.dec()
        self._quotas.on_change.discard(self.end)
        self._reading.muted = False
        self._reading.update()
