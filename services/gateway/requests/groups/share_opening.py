"""The part that ShareFetch and ShareAcknowledge share: the session that a request continues, and its partitions."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from services.gateway.requests.groups.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Member,
    ShareSession,
    ShareSessions,
    Slot,
)
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Command, Gather, MeshView
from services.gateway.requests.topic_ids import mesh_topic_id, topic_name, topic_names
from services.gateway.wire.error_words import worded
from services.gateway.wire.errors import ErrorCode

GONE = ErrorCode.INVALID_RECORD_STATE
GONE_TEXT = worded(GONE, "the broker that gave these records is not reached any more: it gives them to another member")
ELSEWHERE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
"""Share consumers show this error to their application."""
BUSY_PAUSE_S = 0.01
"""Seconds between two checks whether the earlier request of the session, on another connection, is done. A client sends
one request of a session at a time."""


class Refused(NamedTuple):
    """The whole request fails."""

    code: int
    text: str

    @classmethod
    def because(cls, code: int, sentence: str) -> "Refused":
        return cls(code, worded(code, sentence))


def opened(
    member: Member, epoch: int, topics: Sequence["AskedTopic"], mesh: MeshView
) -> Generator[Command, Any, ShareSession | Refused]:
    """The session that a request of this member and epoch belongs to, once the session's earlier requests are done.

    `topics`: the partitions that the request names.
    """
    sessions, mine = mesh.memory.share_sessions, mesh.session.share_sessions
    if epoch == INITIAL_EPOCH:
        earlier = mine.pop(member, None)
        if earlier is not None:
            sessions.end(member, earlier)
        begun = sessions.begin(member, _node_meant(topics, mesh), mesh.session)
        if begun is None:
            text = f"this gateway keeps {sessions.capacity} share sessions, and all of them are in use"
            return Refused.because(ErrorCode.SHARE_SESSION_LIMIT_REACHED, text)
        _note(member, begun, mesh)
        begun.goes_on()
        return begun
    found = _found(member, epoch, topics, mesh)
    if found is None:
        text = f"this gateway has no such share session of group {member[0]}, member {member[1]}"
        return Refused.because(ErrorCode.SHARE_SESSION_NOT_FOUND, text)
    if epoch == FINAL_EPOCH:
        sessions.end(member, found)
    elif epoch == found.epoch:
        found.goes_on()
        _note(member, found, mesh)
    else:
        return Refused.because(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch} where {found.epoch} is expected")
    while found.busy:
        yield Gather((), lambda _: False, BUSY_PAUSE_S)
    return found


def _note(member: Member, session: ShareSession, mesh: MeshView) -> None:
    """The member goes on with this session on this connection: a connection is to one node."""
    mine, sessions = mesh.session.share_sessions, mesh.memory.share_sessions
    if mine.get(member) is not session:
        for other in [other for other, known in mine.items() if not sessions.has(other, known)]:
            del mine[other]
        mine[member] = session


def _found(member: Member, epoch: int, topics: Sequence["AskedTopic"], mesh: MeshView) -> ShareSession | None:
    """The member's session with the node that the client means.

    Most clients do not say which node they mean. Then the connection shows it, or the partitions, or the epoch.
    """
    sessions = mesh.memory.share_sessions.of(member)
    known = mesh.session.share_sessions.get(member)
    if known is not None and sessions.get(known.node) is known:
        return known
    asked = _node_asked(mesh)
    if asked is not None:
        return sessions.get(asked)
    slots = list(_known_slots(topics, mesh))
    candidates = list(sessions.values())
    for fits in (
        lambda session: any(session.knows(slot) for slot in slots),
        lambda session: session.epoch == epoch,
    ):
        if len(candidates) > 1:
            candidates = [session for session in candidates if fits(session)] or candidates
    return candidates[0] if len(candidates) == 1 else None


def _node_asked(mesh: MeshView) -> int | None:
    """The node that the client has named, by the connection's address or by a word."""
    if len(mesh.nodes.all) == 1:
        return mesh.nodes.controller
    asked = mesh.session.asked_node
    return asked if asked in mesh.nodes.by_cluster.values() else None


def _node_meant(topics: Sequence["AskedTopic"], mesh: MeshView) -> int | None:
    """The node with which a session begins: the one that leads most of the partitions, unless the client names it."""
    asked = _node_asked(mesh)
    if asked is not None:
        return asked
    counted = Counter(_nodes_of(_known_slots(topics, mesh), mesh))
    return counted.most_common(1)[0][0] if counted else None


def _nodes_of(slots: Iterable[Slot], mesh: MeshView) -> Iterator[int]:
    owners = (mesh.table.cluster_of(slot.topic) for slot in slots)
    return (mesh.nodes.of_cluster(owner) for owner in owners if owner is not None)


def settle_node(member: Member, session: ShareSession, mesh: MeshView) -> None:
    """Corrects the node of a session if all partitions that the client wants have another one.

    A client whose knowledge of leaders is old begins its session with partitions that have moved.
    """
    if _node_asked(mesh) is not None:
        return
    sessions = mesh.memory.share_sessions
    nodes = list(dict.fromkeys(_nodes_of(session.wanted, mesh)))
    if not nodes or session.node in nodes:
        return
    free = [node for node in nodes if node not in sessions.of(member)]
    if free or session.node is None:
        sessions.move(member, session, (free or nodes)[0])


def end_sessions(connection: Session, sessions: ShareSessions) -> None:
    """Ends the sessions that began on a client's connection when that connection ends, as on a broker."""
    for member, session in connection.share_sessions.items():
        if session.origin is connection:
            sessions.end(member, session)


class AskedTopic(Protocol):
    topic_id: bytes
    partitions: Any


def slots_of(
    topics: Sequence[AskedTopic], mesh: MeshView
) -> Generator[Command, Any, tuple[dict[Slot, Any], list[AskedTopic]]]:
    """The partitions of a request with the request's data on each, and the topics whose id no cluster knows."""
    names = yield from topic_names(mesh, [topic.topic_id for topic in topics])
    slots = {
        Slot(names[topic.topic_id], _index(p)): p
        for topic in topics
        if topic.topic_id in names
        for p in topic.partitions
    }
    return slots, [topic for topic in topics if topic.topic_id not in names]


def _known_slots(topics: Iterable[AskedTopic], mesh: MeshView) -> Iterator[Slot]:
    """As `slots_of`, of the topics whose names the gateway knows already."""
    for topic in topics:
        name = topic_name(mesh, topic.topic_id)
        if name is not None:
            yield from (Slot(name, _index(p)) for p in topic.partitions)


def _index(partition: Any) -> int:
    index: int = partition if isinstance(partition, int) else partition.partition_index
    return index


P = TypeVar("P")


class Results(Generic[P]):
    """One result for each partition, at last by topic and the mesh's ids."""

    def __init__(self, join: Callable[[P, P], P]) -> None:
        self.by_slot: dict[Slot, P] = {}
        self._strange: dict[bytes, list[P]] = {}
        self._join = join
        """Makes one result of an earlier and a later one."""

    def put(self, slot: Slot, result: P) -> None:
        earlier = self.by_slot.get(slot)
        self.by_slot[slot] = result if earlier is None else self._join(earlier, result)

    def put_strange(self, topic_id: bytes, results: list[P]) -> None:
        self._strange[topic_id] = results

    def __iter__(self) -> Iterator[P]:
        return iter(self.by_slot.values())

    def by_topic(self, mesh: MeshView) -> dict[bytes, list[P]]:
        found: dict[bytes, list[P]] = {}
        for slot, result in self.by_slot.items():
            found.setdefault(mesh_topic_id(mesh.mesh_id, slot.topic), []).append(result)
        return found | self._strange


def by_topic(slots: Iterable[Slot]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for slot in slots:
        found.setdefault(slot.topic, []).append(slot.partition)
    return found


def shorter(lock_timeout_ms: int, other_ms: int) -> int:
    """The time-out of locks that holds for the records of both leaders; 0 is that of a leader that tells none."""
    return min(filter(None, (lock_timeout_ms, other_ms)), default=0)
