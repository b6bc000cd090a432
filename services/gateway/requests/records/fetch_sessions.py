"""Fetch sessions of clients (KIP-227): an incremental request names the changed partitions, and so does its answer.

Theory of operation
1. A full request (epoch 0) may begin a session. The session keeps the partitions that the client reads, their
   positions, and the marks that the client got last. An incremental request (epochs 1, 2, ...) names partitions that
   are new, have another position or are no longer read. Its answer has the partitions with records, with an error or
   with another mark than the client got last.
2. The gateway refuses as brokers do: an unknown session 70, a wrong epoch 71, names in a session of ids (or the other
   way round) 106. After each of the three clients ask in full, unseen by their users.
3. Partitions that had records go to the end, so partitions that `max_bytes` leaves out now come first the next time.
4. Sessions and their partitions are bounded. If there are too many, sessions make way that were not used for a while.
   Next come the smallest ones that are no longer new and smaller than the new session. If no session makes way, the new
   client goes on without a session, as with a broker.
5. These sessions are this gateway's own. The place of partitions, and the gateway's own sessions with brokers, are
   another matter (`broker_fetches`): a topic that moves changes nothing here.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.gateway.wire.errors import ErrorCode

SESSIONS_HELD: Final = 2_000
PARTITIONS_HELD: Final = 400_000
"""Partitions of all sessions together: about 150 MB."""
MAKES_WAY_AFTER_S: Final = 120.0
"""Seconds without use, or of age if another session is larger: brokers' `min.incremental.fetch.session.eviction.ms`."""

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = (1 << 31) - 1
_ID_BITS: Final = 31

Topic = str | bytes
"""A topic's name; its id as long as no cluster knows a name for it."""
Slot = tuple[Topic, int]
"""Topic and partition."""


class Position:
    """The offset from which a partition is read, and the most bytes to read."""

    __slots__ = ("max_bytes", "offset")

    def __init__(self, offset: int, max_bytes: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self.offset == other.offset and self.max_bytes == other.max_bytes

    def __hash__(self) -> int:
        return hash((self.offset, self.max_bytes))

    def __repr__(self) -> str:
        return f"Position({self.offset}, {self.max_bytes})"


class Marks:
    """The marks that a leader sends of a partition beside its records; -1 means "unknown"."""

    __slots__ = ("high_watermark", "last_stable_offset", "log_start_offset")

    def __init__(self, high_watermark: int = -1, last_stable_offset: int = -1, log_start_offset: int = -1) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.high_watermark, self.last_stable_offset, self.log_start_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marks) and self.numbers == other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __repr__(self) -> str:
        return f"Marks{self.numbers}"


UNKNOWN_MARKS: Final = Marks()


class Result(NamedTuple):
    """The result of one partition."""

    marks: Marks = UNKNOWN_MARKS
    error_code: int = 0
    record_bytes: int = 0


NOTHING_NEW: Final = Result()


def next_epoch(epoch: int) -> int:
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchSession:
    """The session of one client."""

    __slots__ = ("by_ids", "created", "epoch", "session_id", "told", "used", "wanted")

    def __init__(self, session_id: int, by_ids: bool, now: float, wanted: Mapping[Slot, Position]) -> None:
        self.session_id = session_id
        self.by_ids = by_ids
        self.created = self.used = now
        self.epoch = INITIAL_EPOCH + 1
        """The epoch of the next request."""
        self.wanted = dict(wanted)
        self.told: dict[Slot, Marks] = {}
        """The marks that the client got last, of partitions that were in an answer."""

    def update(self, changed: Mapping[Slot, Position], forgotten: Iterable[Slot]) -> None:
        self.wanted.update(changed)
        for slot in forgotten:
            self.wanted.pop(slot, None)
            self.told.pop(slot, None)

    def strange_ids(self) -> set[bytes]:
        """Topics that had no name when they were added."""
        return {topic for topic, _ in self.wanted if isinstance(topic, bytes)} if self.by_ids else set()

    def learn_names(self, names: Mapping[bytes, str]) -> None:
        """Replaces ids by the names of topics that have become known."""

        def named(slot: Slot) -> Slot:
            topic, partition = slot
            return (names.get(topic, topic), partition) if isinstance(topic, bytes) else slot

        self.wanted = {named(slot): position for slot, position in self.wanted.items()}
        self.told = {named(slot): marks for slot, marks in self.told.items()}

    def must_tell(self, slot: Slot, marks: Marks, error_code: int, record_bytes: int) -> bool:
        """Whether the client has to get this result of a partition; if so, it counts as sent."""
        if error_code:
            self.told.pop(slot, None)  # so that the end of the error is sent, whatever the marks are then
            return True
        last = self.told.get(slot)
        if (
            last is not None
            and not record_bytes
            and last.high_watermark == marks.high_watermark
            and last.log_start_offset == marks.log_start_offset
        ):
            return False
        self.told[slot] = marks
        if record_bytes:
            self.wanted[slot] = self.wanted.pop(slot)
        return True


class FetchSessions:
    """All sessions of a gateway."""

    __slots__ = ("_partitions_held", "_sessions", "_sessions_held", "on_made_way", "partitions")

    def __init__(self, sessions_held: int = SESSIONS_HELD, partitions_held: int = PARTITIONS_HELD) -> None:
        self._sessions_held = sessions_held
        self._partitions_held = partitions_held
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The session that was not used for the longest time comes first."""
        self.partitions = 0
        self.on_made_way: Callable[[], None] = lambda: None
        """Called when a session has to make way for another."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def begin(
        self, wanted: Mapping[Slot, Position], *, by_ids: bool, now: float, random_bits: Callable[[int], int]
    ) -> FetchSession | None:
        """A session for these partitions; None if there is no room for it."""
        if not wanted or not self._make_room(len(wanted), len(wanted), 1, now):
            return None
        session_id = random_bits(_ID_BITS)
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = (session_id + 1) % (1 << _ID_BITS)
        session = FetchSession(session_id, by_ids, now, wanted)
        self._sessions[session_id] = session
        self.partitions += len(wanted)
        return session

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)

    def update(
        self, session: FetchSession, changed: Mapping[Slot, Position], forgotten: Iterable[Slot], now: float
    ) -> bool:
        """Takes an incremental request over.

        False: the session has ended, because it is empty or has become too large.
        """
        size = len(session.wanted)
        session.update(changed, forgotten)
        grown = len(session.wanted) - size
        self.partitions += grown
        session.used = now
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session.session_id)
        if session.wanted and (grown <= 0 or self._make_room(0, len(session.wanted), 0, now, spare=session)):
            return True
        self.end(session.session_id)
        return False

    def _make_room(
        self, partitions: int, size: int, sessions: int, now: float, spare: FetchSession | None = None
    ) -> bool:
        """Makes room for so many more partitions and sessions, needed by a session of this size."""
        if size > self._partitions_held:
            return False

        def too_many() -> bool:
            over = self.partitions + partitions - self._partitions_held
            return over > 0 or len(self._sessions) + sessions > self._sessions_held

        while too_many():
            loser = self._least_worthy(size, now, spare)
            if loser is None:
                return False
            self.end(loser.session_id)
            self.on_made_way()
        return True

    def _least_worthy(self, size: int, now: float, spare: FetchSession | None) -> FetchSession | None:
        oldest = next((session for session in self._sessions.values() if session is not spare), None)
        if oldest is None or now - oldest.used > MAKES_WAY_AFTER_S:
            return oldest
        grown_up = [s for s in self._sessions.values() if s is not spare and now - s.created > MAKES_WAY_AFTER_S]
        smallest = min(grown_up, key=lambda session: len(session.wanted), default=None)
        return smallest if smallest is not None and len(smallest.wanted) <= size else None


# --- one request ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wish:
    """The partitions that one request asks for, by its session or by itself."""

    wanted: Mapping[Slot, Position]
    """All partitions, in the order in which they may use the answer's bytes."""
    session: FetchSession | None = None
    """The session of an incremental request."""
    epoch: int = INITIAL_EPOCH
    """The session's epoch after this request."""
    begins: bool = False
    """A full request of a client that accepts a session."""

    @property
    def untold(self) -> bool:
        """Whether the client lacks a mark of some partition so far.

        Then earlier marks of brokers count, because brokers send them once.
        """
        return self.session is None or not self.session.told.keys() >= self.session.wanted.keys()

    @property
    def alone(self) -> bool:
        """Whether the request belongs to no session, before and after."""
        return self.session is None and not self.begins


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, with names in the place of ids as far as they are known."""

    session_id: int
    session_epoch: int
    by_ids: bool
    partitions: Mapping[Slot, Position]
    forgotten: Iterable[Slot] = ()


def wish_of(sessions: FetchSessions, asked: Asked, now: float) -> Wish | ErrorCode:
    """All partitions that the request asks for."""
    if asked.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if asked.session_id != NO_SESSION:
            sessions.end(asked.session_id)
        return Wish(asked.partitions, begins=asked.session_epoch == INITIAL_EPOCH)
    session = sessions.get(asked.session_id)
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != asked.session_epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.by_ids != asked.by_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    if not sessions.update(session, asked.partitions, asked.forgotten, now):
        return Wish(asked.partitions)
    return Wish(session.wanted, session, session.epoch)


class Told(NamedTuple):
    """The content of the answer."""

    session_id: int
    slots: list[Slot]


def told_of(
    sessions: FetchSessions,
    wish: Wish,
    results: Mapping[Slot, Result],
    *,
    by_ids: bool,
    now: float,
    random_bits: Callable[[int], int],
) -> Told | ErrorCode:
    """The partitions that the answer has, in order.

    `results`: the results of partitions that a broker has answered; a full answer has the other partitions too, with
    nothing new.
    """
    session = wish.session
    if session is not None:
        if session.epoch != wish.epoch:  # another connection has used the session meanwhile
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        came = [slot for slot in wish.wanted if slot in results]
        return Told(session.session_id, [slot for slot in came if session.must_tell(slot, *results[slot])])
    slots = list(wish.wanted)
    if wish.begins:
        session = sessions.begin(wish.wanted, by_ids=by_ids, now=now, random_bits=random_bits)
        if session is not None:
            for slot in results.keys() & wish.wanted.keys():
                session.must_tell(slot, *results[slot])
    return Told(NO_SESSION if session is None else session.session_id, slots)
