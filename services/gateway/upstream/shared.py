"""Connections to a broker that the small Produce requests of many clients share.

Theory of operation
1. Most of what a small request costs are system calls. What many clients send to one broker within a turn of the event
   loop leaves in one write, and is answered in a few reads: half of the calls are gone.
2. A broker works on one request of a connection at a time, in order. So only what it answers right away comes here
   (`seats`), and nobody who is free to go elsewhere while the connection is full, while nothing has come back for a
   moment, or while its broker reads nothing from us because somebody has used up a quota.
3. There are as many as clients are worth, up to a bound, and none for a few clients. A client keeps to one of them.
4. The bytes of a turn are copied: a request lies in the receive buffer, which the next client's read overwrites.
5. When such a connection breaks, all who wait hear of it as if it had been their own.
"""

from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakSet

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.gateway import metrics
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.keyring import Keyring
from services.gateway.wire.primitives import Buffer

CLIENTS_EACH: Final = 25
"""So many clients are worth one more connection."""
MOST_UNANSWERED: Final = 100
"""On one connection, of all its clients: what a broker works off within some ten milliseconds."""
SLOW_S: Final = 0.25
"""Without an answer for so long, somebody's partition is slow: nobody new comes, and who has waited so long leaves."""
NO_LONGER_NEEDED = "its clients have gone"


class SharedConnection(BrokerConnection):
    """See above."""

    __slots__ = (
        "_muted_until",
        "_turn",
        "blamed",
        "clients",
        "moved_at",
    )

    def __init__(
        self,
        cluster: str,
        address: str,
        max_frame_bytes: int,
        answer_room: AnswerRoom,
        keyring: Keyring | None = None,
    ) -> None:
        super().__init__(cluster, address, max_frame_bytes, MOST_UNANSWERED, answer_room, keyring)
        self.clients = 0
        """Who keep to it."""
        self.blamed = False
        """Somebody was found whose request may have ended it."""
        self._turn = bytearray()
        """What leaves at the end of this turn of the event loop."""
        self.moved_at = 0.0
        """When an answer came last, or something was sent while none was due."""
        self._muted_until = 0.0

    def send(self, *pieces: Buffer) -> None:
        turn = self._turn
        if not turn:
            self._loop.call_soon(self._end_turn)
            if len(self._pending) <= 1:
                self.moved_at = self._loop.time()
        for piece in pieces:
            turn += piece

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, bytearray()
        super().send(turn)

    def buffer_updated(self, nbytes: int) -> None:
        self.moved_at = self._loop.time()
        super().buffer_updated(nbytes)

    def takes_from_anybody(self, now: float) -> bool:
        """Whether somebody who is free to go elsewhere should come here."""
        waiting = len(self._pending)
        return (
            self._ready
            and waiting < MOST_UNANSWERED
            and not (waiting and now - self.moved_at > SLOW_S)
            and now >= self._muted_until
            and self._retired is None
            and not self.congested
        )

    def mute(self, until: float) -> None:
        """The broker reads nothing from us until then."""
        self._muted_until = max(self._muted_until, until)


class Pool:
    """Those of one broker."""

    def __init__(
        self, cluster: str, most: int, from_clients: int, opened: Callable[[], SharedConnection | None]
    ) -> None:
        """At most so many, and none for fewer clients. `opened`: one more, None while none can be had."""
        self.cluster = cluster
        self.clients = 0
        """Who write to the broker, here or on connections of their own."""
        self.calls = metrics.shared_calls.labels(cluster)
        self._most = most
        self._from_clients = from_clients
        self._opened = opened
        self._connections: list[SharedConnection] = []
        _pools.add(self)

    @property
    def wanted(self) -> int:
        """How many connections its clients are worth."""
        if self.clients < self._from_clients:
            return 0
        return min(self._most, -(-self.clients // CLIENTS_EACH))

    @property
    def connections(self) -> list[SharedConnection]:
        """Those that live."""
        self._connections = self.living()
        return self._connections

    def living(self) -> list[SharedConnection]:
        """The same, from any thread."""
        return [each for each in self._connections if each.ended is None]

    def connection(self, now: float) -> SharedConnection | None:
        """The one for a client that comes now; None: it has to use its own."""
        wanted = self.wanted
        if not wanted:
            return None
        living = self.connections
        if len(living) < wanted:
            made = self._opened()
            if made is not None:
                living.append(made)
        free = [each for each in living if each.takes_from_anybody(now)]
        return min(free, key=lambda each: each.clients, default=None)

    def left(self, connection: SharedConnection) -> None:
        """A client of this connection goes its own way."""
        connection.clients -= 1
        self._trim()

    def went(self) -> None:
        """A client writes to the broker no more."""
        self.clients -= 1
        self._trim()

    def _trim(self) -> None:
        surplus = len(self.connections) - self.wanted
        if surplus > 0:
            for connection in [each for each in self._connections if not each.clients][:surplus]:
                connection.retire(NO_LONGER_NEEDED)

    def retire(self, reason: str) -> None:
        for connection in self.connections:
            connection.retire(reason)


_pools: "WeakSet[Pool]" = WeakSet()


class PoolGauges(Collector):
    """How much is shared, counted when somebody asks: in a thread, so nothing is changed."""

    def collect(self) -> Iterator[Metric]:
        clusters: dict[str, tuple[int, int, int]] = {}
        for pool in list(_pools):
            connections, clients, waiting = clusters.get(pool.cluster, (0, 0, 0))
            living = pool.living()
            clusters[pool.cluster] = (
                connections + len(living),
                clients + sum(each.clients for each in living),
                waiting + sum(each.in_flight for each in living),
            )
        told = (
            ("connections", "Connections to brokers that small Produce requests of many clients share."),
            ("clients", "Clients that keep to one of them."),
            ("waiting", "Requests of theirs that are not answered."),
        )
        for index, (what, documentation) in enumerate(told):
            family = GaugeMetricFamily(f"kafka_mesh_gateway_shared_{what}", documentation, labels=["cluster"])
            for cluster, numbers in clusters.items():
                family.add_metric([cluster], numbers[index])
            yield family


REGISTRY.register(PoolGauges())
