"""Connections to a broker that the small Produce requests of many clients share.

Theory of operation
1. System calls are most of the cost of a small request. The requests of many clients to one broker within a turn of
   the event loop leave in one write, and are answered in a few reads. This saves half of the calls.
2. A broker works on one request of a connection at a time, in order. So only requests that it answers right away come
   here (`seats`). A client that is free to use another connection does not come while the connection is full, while no
   answer comes for a moment, or while a quota stops the broker from reading.
3. The number of connections follows the number of clients, up to a bound; a few clients get none. A client keeps to one
   connection.
4. The bytes of a turn are copied: a request lies in the receive buffer, which the next client's read overwrites.
5. When such a connection breaks, all its clients get the same outcome as if it had been their own.
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
"""The number of clients for each shared connection."""
MOST_UNANSWERED: Final = 100
"""Most unanswered requests of all clients of a connection: a broker answers them within some ten milliseconds."""
SLOW_S: Final = 0.25
"""If no answer comes for so long, a partition is slow. No new client comes, and a client that waited so long leaves."""
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
        """The number of clients that keep to this connection."""
        self.blamed = False
        """Whether a client was found whose request may have ended the connection."""
        self._turn = bytearray()
        """The bytes that leave at the end of this turn of the event loop."""
        self.moved_at = 0.0
        """The time of the last answer, or of a request that was sent while no answer was due."""
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
        """Whether a client that is free to use another connection should use this one."""
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
        """The broker reads nothing from this connection until then."""
        self._muted_until = max(self._muted_until, until)


class Pool:
    """The shared connections of one broker."""

    def __init__(
        self, cluster: str, most: int, from_clients: int, opened: Callable[[], SharedConnection | None]
    ) -> None:
        """The pool has at most `most` connections, and none for fewer clients than `from_clients`. `opened` opens one
        more, or returns None while none can be had."""
        self.cluster = cluster
        self.clients = 0
        """The number of clients that write to the broker, here or on connections of their own."""
        self.calls = metrics.shared_calls.labels(cluster)
        self._most = most
        self._from_clients = from_clients
        self._opened = opened
        self._connections: list[SharedConnection] = []
        _pools.add(self)

    @property
    def wanted(self) -> int:
        """The number of connections that its clients need."""
        if self.clients < self._from_clients:
            return 0
        return min(self._most, -(-self.clients // CLIENTS_EACH))

    @property
    def connections(self) -> list[SharedConnection]:
        """The connections that live."""
        self._connections = self.living()
        return self._connections

    def living(self) -> list[SharedConnection]:
        """The same connections; may be called from any thread."""
        return [each for each in self._connections if each.ended is None]

    def connection(self, now: float) -> SharedConnection | None:
        """The connection for a client that comes now; None: the client has to use its own."""
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
        """A client of this connection uses its own connection from now on."""
        connection.clients -= 1
        self._trim()

    def went(self) -> None:
        """A client no longer writes to the broker."""
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
    """The metrics of sharing, counted at each scrape. The scrape runs in a thread, so it changes nothing."""

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
