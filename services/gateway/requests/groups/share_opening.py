"""The part that ShareFetch and ShareAcknowledge share: the session that a request continues, and its partitions."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.groups.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Member,
    ShareSession,
    ShareSessions,
    Slot,
)
from services.gateway.requests.plan import Command, Gather, MeshView
from services.gateway.requests.topic_ids import mesh_topic_id, topic_names
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


def opened(member: Member, epoch: int, mesh: MeshView) -> Generator[Command, Any, ShareSession | Refused]:
    """The session that a request of this member and epoch belongs to, once the session's earlier requests are done."""
    sessions = mesh.memory.share_sessions
    if epoch == INITIAL_EPOCH:
        home = yield from find_home(member[0], mesh)
        if home is None:
            text = "no cluster knows yet where the group lives"
            return Refused.because(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        begun = sessions.begin(member, home)
        if begun is None:
            text = f"this gateway keeps {sessions.capacity} share sessions, and all of them are in use"
            return Refused.because(ErrorCode.SHARE_SESSION_LIMIT_REACHED, text)
        mine = mesh.session.share_sessions
        for other in [other for other, session in mine.items() if sessions.get(other) is not session]:
            del mine[other]
        mine[member] = begun
        begun.goes_on()
        return begun
    found = sessions.get(member)
    if found is None:
        text = f"this gateway has no share session of group {member[0]}, member {member[1]}"
        return Refused.because(ErrorCode.SHARE_SESSION_NOT_FOUND, text)
    if epoch == FINAL_EPOCH:
        sessions.end(member, found)
    elif epoch == found.epoch:
        found.goes_on()
    else:
        return Refused.because(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch} where {found.epoch} is expected")
    while found.busy:
        yield Gather((), lambda _: False, BUSY_PAUSE_S)
    return found


def end_sessions(begun: Mapping[Member, ShareSession], sessions: ShareSessions) -> None:
    """Ends the sessions that began on a client's connection when that connection ends, as on a broker."""
    for member, session in begun.items():
        sessions.end(member, session)


class _Topic(Protocol):
    topic_id: bytes
    partitions: Any


def slots_of(topics: Iterable[_Topic], mesh: MeshView) -> Generator[Command, Any, tuple[dict[Slot, Any], list[_Topic]]]:
    """The partitions of a request with the request's data on each, and the topics whose id no cluster knows."""
    topics = list(topics)
    names = yield from topic_names(mesh, [topic.topic_id for topic in topics])
    slots = {
        Slot(names[topic.topic_id], p if isinstance(p, int) else p.partition_index): p
        for topic in topics
        if topic.topic_id in names
        for p in topic.partitions
    }
    return slots, [topic for topic in topics if topic.topic_id not in names]


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
