"""Share sessions (KIP-932) on both sides: one that the client has with the gateway, one with each broker behind it.

Theory of operation
1. A client believes that one node leads all partitions of a cluster, or of all clusters, and keeps a session with each
   node that it sees. The client names partitions once, and counts its requests by an epoch. Really they have several
   leaders. Each leader keeps its own session of the member, with its own epoch, for as long as the gateway's connection
   on which the session began.
2. `ShareSession` knows the partitions that the client wants, and `BrokerSession` those that a broker knows of. The
   difference goes into the next request to that broker.
3. An acknowledgement goes to the broker that gave the records, which is the one whose session has the partition.
4. If a request to a broker fails, the broker's session ends, and the next request begins a new one. The broker gives
   the acquired records to another member; the client's acknowledgements of these records get INVALID_RECORD_STATE.
5. A session belongs to a member of a group and to a node, as on a broker: the member may send each request on another
   connection. The session ends with the connection on which the session began.
6. The client's epoch counts when a request arrives. The requests of one session go to the brokers one after the other,
   because two connections to a broker keep no order between them.
7. If a topic moves to another cluster, the same offsets are other records there. Until the old cluster's locks on the
   records that it gave have run out, acknowledgements mean those records: so nothing is read at the new cluster before.
   Offsets of a stitched log are those of one record each, so nothing waits there (`share_parts`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
Leader = tuple[str, int]
"""Cluster, broker id."""


class Giver(NamedTuple):
    """The place that has given records of a partition to the member."""

    slot: Slot
    cluster: str | None
    """None: the topic's log is not stitched, so it is the broker that has the partition."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1


class Given(NamedTuple):
    """Records of a partition that a cluster has given to the member."""

    cluster: str
    until: float
    """The end of the cluster's lock on the latest of them, by the clock of `MeshView.now`."""


@dataclass(slots=True)
class BrokerSession:
    """The partitions that the gateway has named to one broker."""

    leader: Leader
    member_id: str = ""
    epoch: int = INITIAL_EPOCH
    slots: dict[Slot, None] = field(default_factory=dict)
    left: dict[Slot, None] = field(default_factory=dict)
    """Partitions that the broker knew of earlier: it still takes acknowledgements of their records."""

    @property
    def is_new(self) -> bool:
        return self.epoch == INITIAL_EPOCH

    def goes_on(self, told: Iterable[Slot]) -> None:
        """A request was answered; these are all partitions that the broker knows of now."""
        self.epoch = next_epoch(self.epoch)
        known = dict.fromkeys(told)
        self.left = {slot: None for slot in (*self.left, *self.slots) if slot not in known}
        self.slots = known


@dataclass(slots=True)
class ShareSession:
    """The partitions that one member of one group has asked one node for."""

    node: int | None = None
    """The virtual node; None as long as nothing has shown which node the client means."""
    origin: object = None
    """The client's connection on which the session began."""
    given: dict[Slot, Given] = field(default_factory=dict)
    """The latest records of each partition; shared by all sessions of the member."""
    epoch: int = INITIAL_EPOCH
    wanted: dict[Slot, None] = field(default_factory=dict)
    brokers: dict[Leader, BrokerSession] = field(default_factory=dict)
    ids: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """The topic ids by which brokers know the topics, by cluster and topic."""
    quiet: dict[Leader, float] = field(default_factory=dict)
    """Brokers that are asked for nothing but old parts -> the time until which they are not asked again."""
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

    def meets(self, ids: Mapping[tuple[str, str], bytes]) -> None:
        """Takes over the topic ids of the next requests.

        A topic that was deleted and made again has a new id, which its brokers do not know: their sessions begin anew.
        """
        renewed = {place[0] for place, topic_id in ids.items() if self.ids.get(place, topic_id) != topic_id}
        for leader in [leader for leader in self.brokers if leader[0] in renewed]:
            self.lost(leader)
        self.ids.update(ids)

    def topics_by_id(self, cluster: str) -> dict[bytes, str]:
        """The topics that requests to brokers of the cluster have named."""
        return {topic_id: topic for (place, topic), topic_id in self.ids.items() if place == cluster}

    def goes_on(self) -> None:
        self.epoch = next_epoch(self.epoch)

    def want(self, slots: Iterable[Slot]) -> None:
        self.wanted.update(dict.fromkeys(slots))

    def forget(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self.wanted.pop(slot, None)

    def gave(self, slot: Slot, cluster: str, until: float) -> None:
        self.given[slot] = Given(cluster, until)

    def waits_for_locks(self, slot: Slot, cluster: str, now: float) -> bool:
        """Whether another cluster still has locks on records of this partition that it has given to the member."""
        given = self.given.get(slot)
        return given is not None and given.cluster != cluster and now < given.until

    def giver(self, slot: Slot, cluster: str | None = None) -> BrokerSession | None:
        """The broker that has given out this partition's records; `cluster`: the broker is there."""
        brokers = [each for each in self.brokers.values() if cluster in (None, each.leader[0])]
        return next((each for each in brokers if slot in each.slots), None) or next(
            (each for each in brokers if slot in each.left), None
        )

    def knows(self, slot: Slot) -> bool:
        return slot in self.wanted or self.giver(slot) is not None

    def lost(self, leader: Leader) -> None:
        """The broker's session has ended, or may have."""
        self.brokers.pop(leader, None)


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
    session: ShareSession,
    leaders: Mapping[Slot, Sequence[Leader]],
    acknowledged: Mapping[Giver, Sequence[Any]],
    named_as: Callable[[Leader], str],
) -> tuple[list[Errand], list[Slot]]:
    """The requests for each broker, and the partitions whose acknowledgements have no broker to go to any more.

    `named_as`: the member's id in a new session with a broker.
    """
    by_leader: dict[Leader, dict[Slot, None]] = {leader: {} for leader in session.brokers}
    for slot in session.wanted:
        for leader in leaders.get(slot, ()):
            by_leader.setdefault(leader, {})[slot] = None
    batches: dict[Leader, dict[Slot, Sequence[Any]]] = {}
    stranded: list[Slot] = []
    for (slot, cluster), given in acknowledged.items():
        giver = session.giver(slot, cluster)
        if giver is None:
            stranded.append(slot)
        else:
            batches.setdefault(giver.leader, {})[slot] = given
    found = []
    for leader, wanted in by_leader.items():
        there = session.brokers.get(leader) or BrokerSession(leader, named_as(leader))
        mine = batches.get(leader, {})
        # a broker that gets acknowledgements of a partition learns in a later request that the client wants no more
        # records of it
        told = {**wanted, **dict.fromkeys(mine)}
        named = {slot: mine.get(slot, ()) for slot in told if slot not in there.slots or slot in mine}
        forgotten = [slot for slot in there.slots if slot not in told]
        if told or forgotten:
            session.brokers[leader] = there
            found.append(Errand(there, told, named, forgotten))
    return found, stranded


Nodes = dict[int | None, ShareSession]


class ShareSessions:
    """All share sessions of one gateway process, by member and node."""

    __slots__ = ("_count", "_sessions", "capacity")

    def __init__(self, capacity: int = SHARE_SESSIONS_KEPT) -> None:
        self.capacity = capacity
        self._sessions: dict[Member, Nodes] = {}
        self._count = 0

    def of(self, member: Member) -> Mapping[int | None, ShareSession]:
        return self._sessions.get(member, {})

    def has(self, member: Member, session: ShareSession) -> bool:
        """Whether the session goes on."""
        return self.of(member).get(session.node) is session

    def begin(self, member: Member, node: int | None, origin: object) -> ShareSession | None:
        """A new session of the member with the node, in place of an earlier one; None if there is no room for it.

        Brokers take a first epoch as the beginning of a new session, too.
        """
        mine = self.of(member)
        if node not in mine and self._count >= self.capacity:
            return None
        given = next((session.given for session in mine.values()), {})
        session = ShareSession(node, origin, given)
        self._put(member, session)
        return session

    def move(self, member: Member, session: ShareSession, node: int) -> None:
        """The session is with another node than it seemed to be."""
        if self.has(member, session):
            self.end(member, session)
            session.node = node
            self._put(member, session)

    def end(self, member: Member, session: ShareSession) -> None:
        """The member may have begun another session meanwhile: that session goes on."""
        if self.has(member, session):
            nodes = self._sessions[member]
            del nodes[session.node]
            self._count -= 1
            if not nodes:
                del self._sessions[member]

    def __len__(self) -> int:
        return self._count

    def _put(self, member: Member, session: ShareSession) -> None:
        nodes = self._sessions.setdefault(member, {})
        self._count += session.node not in nodes
        nodes[session.node] = session
