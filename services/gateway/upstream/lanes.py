"""The upstream connections that belong to one client connection, by broker and lane."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple

from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Lane
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.upstream.seats import Seat


class LaneKey(NamedTuple):
    """`incarnation` is the cluster's: the same name may come to stand for another cluster."""

    incarnation: int
    broker_id: int
    lane: Lane


LEFT_BEHIND_S: Final = 30.0
"""How long an answer that its poll did not wait for is kept while its client goes on asking elsewhere."""


@dataclass(slots=True)
class Lanes:
    """One for each client connection; closed with it."""

    session: Session | None = None
    """The client, whose identity may count; None: the gateway's own work."""
    connections: dict[LaneKey, BrokerConnection] = field(default_factory=dict)
    left_behind: dict[object, LeftBehind] = field(default_factory=dict)
    """At most one for each (cluster, target, lane), and each no larger than its client asked for."""
    on_congestion: Callable[[bool], None] | None = None
    on_unheard: Callable[[], None] | None = None
    """Called when a broker ends a connection on which requests without acks were sent: its only way to refuse."""
    seats: dict[LaneKey, Seat] = field(default_factory=dict)
    """The seats of forwarded Produce, by the lane that other Produce requests take."""
    closed: bool = False

    def drop_old_left_behind(self) -> None:
        """Drop old calls that no poll has asked for: their partitions are read from another broker, or not at all."""
        oldest = monotonic() - LEFT_BEHIND_S
        waiting = self.left_behind
        for place in [place for place, left in waiting.items() if left.outcome is not None and left.arrived < oldest]:
            del waiting[place]

    def get(self, key: LaneKey) -> BrokerConnection | None:
        """The connection of a lane, if it still lives."""
        connection = self.connections.get(key)
        if connection is not None and connection.ended is not None:
            del self.connections[key]
            return None
        return connection

    def add(self, key: LaneKey, connection: BrokerConnection) -> None:
        tell_cluster = connection.on_broken

        def broken() -> None:
            if tell_cluster is not None:
                tell_cluster()
            if connection.unheard and self.on_unheard is not None:
                self.on_unheard()

        connection.on_broken = broken
        connection.on_congestion = self._congestion
        self.connections = {there: each for there, each in self.connections.items() if each.ended is None}
        self.connections[key] = connection
        seat = self.seats.get(key)
        if seat is not None:  # its unanswered requests decide whether the client may go elsewhere
            seat.own = connection

    def _congestion(self, congested: bool) -> None:
        if self.on_congestion is not None:
            self.on_congestion(congested or any(c.congested for c in self._living()))

    @property
    def must_be_heard_first(self) -> bool:
        """Whether Produce is unanswered elsewhere than where the next one would go, which would overtake it: on
        connections that many share, or on those to a cluster that has been described anew since."""
        return any(seat.unanswered for seat in self.seats.values()) or any(
            connection.superseded and connection.in_flight and key.lane is Lane.PRODUCE
            for key, connection in self.connections.items()
        )

    def _living(self) -> Iterator[BrokerConnection]:
        return (c for c in self.connections.values() if c.ended is None)

    def close(self, reason: str) -> None:
        """The client is gone. Records that it has produced still arrive, as they would on a broker."""
        self.closed = True
        self.on_congestion = self.on_unheard = None
        self.left_behind.clear()
        for seat in self.seats.values():
            seat.give_up()
        self.seats.clear()
        connections, self.connections = self.connections, {}
        for key, connection in connections.items():
            if key.lane is Lane.PRODUCE:
                connection.retire(reason)
            else:
                connection.shut(reason)
