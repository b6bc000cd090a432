"""The connections to the brokers of one cluster: one to each broker for short requests, and those of clients.

After a failed connection to a broker, calls to the broker fail for a short time. Then the next call tries again.
"""

import asyncio
import itertools
import weakref
from dataclasses import dataclass
from functools import partial

from services.gateway import metrics
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge
from services.gateway.requests.plan import Lane, Unreachable
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.keyring import Keyring
from services.gateway.upstream.lanes import LaneKey, Lanes
from services.gateway.upstream.lookup import Lookup
from services.gateway.upstream.shared import Pool, SharedConnection
from services.gateway.wire.messages import MetadataResponse

BROKER_REST_S = 1.0
"""After a failed connection, calls to that broker fail at once for so long."""
END_S = 0.5
"""The time for answers on connections whose identity no longer counts."""
LEFT = "the gateway has left the cluster"
GONE = "the broker has left the cluster"


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Bounds of every upstream connection."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 10.0
    max_frame_bytes: int = 256 * 1024 * 1024
    """A broker's answer may exceed what a client asked for by one batch."""
    max_in_flight: int = 10_000
    """Unanswered requests of one connection. Short questions of all clients share one: in a storm each has its own."""
    shared_connections: int = 8
    """To each broker, at most, for small Produce of many clients; 0: each client has its own (see `shared`) ..."""
    share_from_clients: int = 50
    """... as it has if fewer clients write to the broker."""
    max_identity_connections: int = 20_000
    """To each cluster, at most, by clients' own identities."""
    max_gathered_bytes: int = 256 * 1024 * 1024
    """Most bytes of all answers together that can't leave while they arrive."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one cluster that all its connections have in common, whatever their identity."""

    cluster: str
    knowledge: ClusterKnowledge
    limits: UpstreamLimits
    answer_room: AnswerRoom
    lookup: Lookup


_incarnations = itertools.count(1)


class Brokers:
    """See above. All methods run on the event loop."""

    def __init__(self, parts: Parts, keyring: Keyring) -> None:
        self.incarnation = next(_incarnations)
        """A number that no other cluster of this process has, not even another one of the same name."""
        self.broken = asyncio.Event()
        """Set when a connection has ended and the gateway did not close it."""
        self._cluster = parts.cluster
        self._knowledge = parts.knowledge
        self._limits = parts.limits
        self._answer_room = parts.answer_room
        self._lookup = parts.lookup
        self._loop = asyncio.get_running_loop()
        self._keyring = keyring
        self._shared: dict[int, BrokerConnection] = {}
        self._lanes: weakref.WeakSet[BrokerConnection] = weakref.WeakSet()
        """Connections that belong to clients, to one or to many."""
        self._pools: dict[int, Pool] = {}
        self._resting: dict[int, tuple[float, str]] = {}
        """Broker id -> until when calls fail at once, and why."""
        self._opening: set[asyncio.Task[None]] = set()

    async def leave(self) -> None:
        """End all connections; those of clients end when their sent requests are answered."""
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in list(self._shared.values()):
            connection.shut(LEFT)
        for connection in self._lanes:
            connection.retire(LEFT)

    def give_way(self) -> None:
        """Others take the calls from now on. Requests that have been sent stay here."""
        for connection in self._lanes:
            connection.superseded = True

    def end_clients(self, reason: str) -> None:
        """Clients have other connections from now on. Requests that have been sent have `END_S` for their answers."""
        self.give_way()
        for connection in self.living():
            connection.retire(reason)
        self._loop.call_later(END_S, self._shut_clients, self.living(), reason)

    @staticmethod
    def _shut_clients(connections: list[BrokerConnection], reason: str) -> None:
        for connection in connections:
            connection.shut(reason)

    def living(self) -> list[BrokerConnection]:
        """The connections of clients that have not ended."""
        return [each for each in self._lanes if each.ended is None]

    def learn(self, response: MetadataResponse) -> None:
        """Learn the cluster's brokers from its metadata. Connections to brokers that have left the cluster end."""
        self._knowledge.learn(response)
        for broker_id in [known for known in self._shared if known not in self._knowledge.brokers]:
            self._shared.pop(broker_id).shut(GONE)
        for broker_id in [known for known in self._pools if known not in self._knowledge.brokers]:
            pool = self._pools[broker_id]
            pool.retire(GONE)
            if not pool.clients:  # else it may come back, and they share what others do
                del self._pools[broker_id]

    def any(self) -> int | None:
        """A broker that answers; if none has answered yet, one to which a connection can be had, as far as is known."""
        now = self._loop.time()
        free = [each for each in self._knowledge.brokers if self._rest_of(each)[0] <= now]
        return next(filter(self._answers, free), next(iter(free), None))

    def _answers(self, broker_id: int) -> bool:
        """Whether the broker has answered on the connection for short requests: a machine that hangs takes connections,
        and says nothing."""
        shared = self._shared.get(broker_id)
        return shared is not None and shared.ended is None and shared.heard

    def connection(self, broker_id: int, lane: Lane, lanes: Lanes) -> BrokerConnection | Unreachable:
        """The connection of this lane, opened if there is none."""
        key = LaneKey(self.incarnation, broker_id, lane)
        if lane is Lane.SHARED:
            shared = self._shared.get(broker_id)
            if shared is not None and shared.ended is None:
                return shared
        else:
            if lanes.closed:
                return Unreachable(self._cluster, "the client is gone", never_sent=True)
            own = lanes.get(key)
            if own is not None:
                return own
        address = self._knowledge.brokers.get(broker_id)
        if address is None:
            return Unreachable(self._cluster, f"broker {broker_id} is not known", never_sent=True)
        until, why = self._rest_of(broker_id)
        if self._loop.time() < until:
            metrics.upstream_errors.labels(self._cluster, "connect").inc()
            return Unreachable(self._cluster, why, never_sent=True)
        connection = self.open(address)
        if lane is Lane.SHARED:
            self._shared[broker_id] = connection
        else:
            self._lanes.add(connection)
            lanes.add(key, connection)
        return connection

    def shared(self, address: BrokerAddress) -> BrokerConnection:
        """As `connection` of the shared lane, also while the broker rests."""
        found = self._shared.get(address.broker_id)
        if found is None or found.ended is not None:
            found = self._shared[address.broker_id] = self.open(address)
        return found

    def pool(self, broker_id: int) -> Pool | None:
        """The pool that clients of this broker share; None if they never share connections, however many there are."""
        limits = self._limits
        if not limits.shared_connections:
            return None
        pool = self._pools.get(broker_id)
        if pool is None:
            opened = partial(self._open_shared, broker_id)
            pool = self._pools[broker_id] = Pool(
                self._cluster, limits.shared_connections, limits.share_from_clients, opened
            )
        return pool

    def _open_shared(self, broker_id: int) -> SharedConnection | None:
        address = self._knowledge.brokers.get(broker_id)
        if address is None or self._loop.time() < self._rest_of(broker_id)[0]:
            return None
        place = f"{address.host}:{address.port}"
        connection = SharedConnection(
            self._cluster, place, self._limits.max_frame_bytes, self._answer_room, self._keyring
        )
        self._lanes.add(connection)
        self._begin(connection, address)
        return connection

    def open(self, address: BrokerAddress) -> BrokerConnection:
        """Open one more connection, which belongs to the caller."""
        place = f"{address.host}:{address.port}"
        limits = self._limits
        connection = BrokerConnection(
            self._cluster, place, limits.max_frame_bytes, limits.max_in_flight, self._answer_room, self._keyring
        )
        self._begin(connection, address)
        return connection

    def _begin(self, connection: BrokerConnection, address: BrokerAddress) -> None:
        connection.on_broken = self.broken.set
        name = f"connect to {self._cluster} {connection.address}"
        task = self._loop.create_task(self._opened(connection, address), name=name)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _opened(self, connection: BrokerConnection, address: BrokerAddress) -> None:
        fault = await connection.open(address.host, address.port, self._limits.connect_timeout_s, self._lookup)
        if fault is not None:
            self._resting[address.broker_id] = (self._loop.time() + BROKER_REST_S, fault)
        else:
            self._resting.pop(address.broker_id, None)

    def _rest_of(self, broker_id: int) -> tuple[float, str]:
        return self._resting.get(broker_id, (0.0, ""))
