"""Fetches of one client connection from one broker, with a session there if that is worth its while (KIP-227).

Theory of operation
1. A broker is asked by one request at a time. One that has not been answered when its client's answer left is *on its
   way*: the next Fetch of the client waits for it before it asks anything else.
2. `asked` is what the broker has been told: an incremental request holds the difference to what is wanted now. What it
   answers is about `asked`: records of a partition that is wanted from elsewhere by now are of no use.
3. Nothing is lost when an answer is not used, or never comes. A broker's session does not advance by itself: it gives
   the same records again until it is told another position. Marks that were told once are kept here.
4. Whatever goes wrong (70, 71, a lost connection, an answer that can't be read) ends in a full request.
5. A session takes one of the broker's slots (1,000 by default), so few partitions are asked for without. So are those
   of a client without one, which names them all anyway, where they lie with one broker: then it may go straight on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from services.gateway.requests.records.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Marks,
    Position,
    next_epoch,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from services.gateway.wire.scanner import FetchedPartition, FetchResponseScan

SESSION_WORTH_PARTITIONS: Final = 10
"""From so many on a broker is asked for a session."""
SESSIONS_SINCE: Final = 7
MAX_WAIT_MS: Final = 300_000
"""Longest poll that we carry out; clients wait 500 ms by default."""
NO_EPOCH: Final = -1

NamedSlot = tuple[str, int]


class Room(Protocol):
    """What there is for answers of which all has to be there before they go on."""

    @property
    def poll_bytes(self) -> int:
        """Most that a poll should ask for whose answer is such a one."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a client reads; records that came under other terms are none for it."""

    version: int
    isolation_level: int
    naming: int = 0
    """Which names the broker knows topics by: another number for others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    rack_id: str

    @property
    def wait_s(self) -> float:
        return self.max_wait_ms / 1000

    @property
    def least_bytes(self) -> int:
        """That make an answer. Who wants none is told by each broker at once."""
        return max(1, self.min_bytes)

    def within(self, poll_bytes: int) -> "Limits":
        """The same, for an answer of no more than so many. A broker, too, may give less at once than a client takes,
        and then waits for no more (its `fetch.max.bytes`)."""
        max_bytes = min(self.max_bytes, poll_bytes)
        return replace(self, min_bytes=min(self.min_bytes, max_bytes), max_bytes=max_bytes)


def limits_of(max_wait_ms: int, min_bytes: int, max_bytes: int, rack_id: str) -> Limits:
    """As a client has said them, within ours."""
    return Limits(min(max(0, max_wait_ms), MAX_WAIT_MS), min_bytes, max(1, max_bytes), rack_id)


@dataclass(slots=True, eq=False)
class BrokerFetches:
    """See above. No I/O: who uses it sends `request` and brings what came of it by `answered` or `lost`."""

    terms: Terms
    asked: dict[NamedSlot, Position] = field(default_factory=dict)
    marks: dict[NamedSlot, Marks] = field(default_factory=dict)
    """As told last, of partitions in `asked`."""
    on_its_way: FetchRequest | None = None
    requests: int = 0
    """Sent so far: tells one from the next."""
    table: object = None
    """The routing table by which the broker was asked last."""
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    """Of the next request."""

    def request(self, wanted: Mapping[NamedSlot, Position], limits: Limits, *, in_session: bool = True) -> FetchRequest:
        """What to ask, so that the broker knows what is wanted now. Unless `in_session`, a session there ends."""
        assert self.on_its_way is None, "a broker is asked by one request at a time"
        if not in_session:
            self.epoch = INITIAL_EPOCH
        if self.epoch == INITIAL_EPOCH:
            changed, forgotten = dict(wanted), []
            self.marks.clear()
        else:
            changed = {slot: position for slot, position in wanted.items() if self.asked.get(slot) != position}
            forgotten = [slot for slot in self.asked if slot not in wanted]
        self.asked = dict(wanted)
        for slot in forgotten:
            self.marks.pop(slot, None)
        worth_it = in_session and len(wanted) >= SESSION_WORTH_PARTITIONS and self.terms.version >= SESSIONS_SINCE
        self.on_its_way = FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=self.terms.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch if self.epoch != INITIAL_EPOCH or worth_it else FINAL_EPOCH,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten(forgotten),
            rack_id=limits.rack_id,
        )
        self.requests += 1
        return self.on_its_way

    def answered(self, scan: FetchResponseScan) -> bool:
        """Take the answer over. False: it says nothing but that the session is gone; ask again."""
        request = self.on_its_way
        assert request is not None, "an answer to nothing"
        if scan.error_code:
            self.lost()
            if scan.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            return request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self.on_its_way = None
        if scan.session_id == NO_SESSION or request.session_epoch == FINAL_EPOCH:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id, self.epoch = scan.session_id, next_epoch(self.epoch)
        for topic in scan.topics:
            for part in topic.partitions:
                self._note(topic.name, part)
        return True

    def lost(self) -> None:
        """No answer, or none that helps. Should the broker still have the session, the next request closes it."""
        self.on_its_way = None
        self.epoch = INITIAL_EPOCH

    def _note(self, topic: str, part: FetchedPartition) -> None:
        slot = (topic, part.partition)
        if part.error_code:
            self.marks.pop(slot, None)
        elif slot in self.asked:
            self.marks[slot] = Marks(part.high_watermark, part.last_stable_offset, part.log_start_offset)


def _topics(wanted: Mapping[NamedSlot, Position]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for (name, partition), position in wanted.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(name)
        topic.partitions.append(
            FetchPartition(partition, NO_EPOCH, position.offset, partition_max_bytes=position.max_bytes)
        )
    return list(topics.values())


def _forgotten(slots: list[NamedSlot]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for name, partition in slots:
        topics.setdefault(name, ForgottenTopic(name)).partitions.append(partition)
    return list(topics.values())
