"""Share sessions (KIP-932) on both sides: one that the client has with the gateway, one with each broker behind it.

Theory of operation
1. A client believes that one node leads all partitions of a cluster, and keeps one session with this node. The client
   names partitions once, and counts its requests by an epoch. Really they have several leaders. Each leader keeps its
   own session of the member, with its own epoch, for as long as the gateway's connection on which the session began.
2. `ShareSession` knows the partitions that the client wants, and `BrokerSession` those that a broker knows of. The
   difference goes into the next request to that broker.
3. An acknowledgement goes to the broker that gave the records, which is the one whose session has the partition.
4. If a request to a broker fails, the broker's session ends, and the next request begins a new one. The broker gives
   the acquired records to another member; the client's acknowledgements of these records get INVALID_RECORD_STATE.
5. A session belongs to a member of a group, as on a broker: the member may send each request on another connection. The
   session ends with the connection on which the session began.
6. The client's epoch counts when a request arrives. The requests of one session go to the brokers one after the other,
   because two connections to a broker keep no order between them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH = 0x7FFF_FFFF
SHARE_SESSIONS_KEPT = 10_000
"""Share sessions of one gateway process; a broker keeps 2,000 (`group.share.max.share.sessions`)."""


class Slot(NamedTuple):
    topic: str
    partition: int


Member = tuple[str, str]
"""Group id, member id."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1


@dataclass(slots=True)
class BrokerSession:
    """The partitions that the gateway has named to one broker."""

    broker_id: int
    epoch: int = INITIAL_EPOCH
    slots: dict[Slot, None] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        return self.epoch == INITIAL_EPOCH

    def goes_on(self, told: Iterable[Slot]) -> None:
        """A request was answered; these are all partitions that the broker knows of now."""
        self.epoch = next_epoch(self.epoch)
        self.slots = dict.fromkeys(told)


@dataclass(slots=True)
class ShareSession:
    """The partitions that one member of one group has asked for."""

    cluster: str
    epoch: int = INITIAL_EPOCH
    wanted: dict[Slot, None] = field(default_factory=dict)
    brokers: dict[int, BrokerSession] = field(default_factory=dict)
    ids: Mapping[str, bytes] = field(default_factory=dict)
    """The topic ids by which brokers know the topics."""
    busy: bool = False
    """A request of this session is under way."""

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Marks the session as busy. If the request is broken off, no broker's epoch is known any more."""
        self.busy, complete = True, False
        try:
            yield
            complete = True
        finally:
            self.busy = False
            if not complete:
                self.brokers.clear()

    def meets(self, ids: Mapping[str, bytes]) -> None:
        """Takes over the topic ids of the next requests.

        A topic that was deleted and made again has a new id, which brokers do not know: their sessions begin anew.
        """
        if any(self.ids.get(topic, topic_id) != topic_id for topic, topic_id in ids.items()):
            self.brokers.clear()
        self.ids = {**self.ids, **ids}

    def goes_on(self) -> None:
        self.epoch = next_epoch(self.epoch)

    def want(self, slots: Iterable[Slot]) -> None:
        self.wanted.update(dict.fromkeys(slots))

    def forget(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self.wanted.pop(slot, None)

    def giver(self, slot: Slot) -> BrokerSession | None:
        """The broker that has given out this partition's records."""
        return next((each for each in self.brokers.values() if slot in each.slots), None)

    def lost(self, broker_id: int) -> None:
        """The broker's session has ended, or may have."""
        self.brokers.pop(broker_id, None)


@dataclass(frozen=True, slots=True)
class Errand:
    """One request to one broker, made from the sessions."""

    session: BrokerSession
    told: Mapping[Slot, None]
    """All partitions that the broker knows of afterwards."""
    named: Mapping[Slot, Sequence[Any]]
    """Partitions that the request names: new ones, and those with acknowledgements (the batches)."""
    forgotten: Sequence[Slot]


def errands(
    session: ShareSession, leaders: Mapping[Slot, int], acknowledged: Mapping[Slot, Sequence[Any]]
) -> tuple[list[Errand], list[Slot]]:
    """The requests for each broker, and the partitions whose acknowledgements have no broker to go to any more."""
    by_broker: dict[int, dict[Slot, None]] = {broker_id: {} for broker_id in session.brokers}
    for slot in session.wanted:
        leader = leaders.get(slot)
        if leader is not None:
            by_broker.setdefault(leader, {})[slot] = None
    batches: dict[int, dict[Slot, Sequence[Any]]] = {}
    stranded: list[Slot] = []
    for slot, given in acknowledged.items():
        giver = session.giver(slot)
        if giver is None:
            stranded.append(slot)
        else:
            batches.setdefault(giver.broker_id, {})[slot] = given
    found = []
    for broker_id, wanted in by_broker.items():
        there = session.brokers.get(broker_id) or BrokerSession(broker_id)
        mine = batches.get(broker_id, {})
        # a broker that gets acknowledgements of a partition learns in a later request that the client wants no more
        # records of it
        told = {**wanted, **dict.fromkeys(slot for slot in mine if slot in there.slots)}
        named = {slot: mine.get(slot, ()) for slot in told if slot not in there.slots or slot in mine}
        forgotten = [slot for slot in there.slots if slot not in told]
        if told or forgotten:
            session.brokers[broker_id] = there
            found.append(Errand(there, told, named, forgotten))
    return found, stranded


class ShareSessions:
    """All share sessions of one gateway process, by member."""

    __slots__ = ("_sessions", "capacity")

    def __init__(self, capacity: int = SHARE_SESSIONS_KEPT) -> None:
        self.capacity = capacity
        self._sessions: dict[Member, ShareSession] = {}

    def get(self, member: Member) -> ShareSession | None:
        return self._sessions.get(member)

    def begin(self, member: Member, cluster: str) -> ShareSession | None:
        """A new session of the member, in place of an earlier one; None if there is no room for another session.

        Brokers take a first epoch as the beginning of a new session, too.
        """
        if member not in self._sessions and len(self._sessions) >= self.capacity:
            return None
        session = self._sessions[member] = ShareSession(cluster)
        return session

    def end(self, member: Member, session: ShareSession) -> None:
        """The member may have begun another session meanwhile: that session goes on."""
        if self._sessions.get(member) is session:
            del self._sessions[member]

    def __len__(self) -> int:
        return len(self._sessions)
