"""Fetches of one client connection from one broker, with a session there if the session is worth its cost (KIP-227).

Theory of operation
1. A broker gets one request at a time. A request that is unanswered when its client's answer leaves is *on its way*:
   the client's next Fetch waits for the answer before it sends another request.
2. `asked` holds the partitions that the broker knows of: an incremental request holds the difference to those wanted
   now. The broker's answer is about `asked`: records of a partition that is wanted from another broker by now are of no
   use.
3. Nothing is lost if an answer is not used, or never comes. A broker's session does not advance by itself: it gives the
   same records again until a request names another position. The marks of a partition (high watermark and others) come
   once in a session, so they are kept here.
4. Every failure (70, 71, a lost connection, an unreadable answer) leads to a full request.
5. A session takes one of the broker's slots (1,000 by default), so for few partitions the gateway asks without a
   session. A client without a session names all its partitions anyway. If one broker leads them all, the gateway asks
   without a session there too: then the broker's answer is the client's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import FetchedPartition, FetchResponseScan

SESSION_WORTH_PARTITIONS: Final = 10
"""From this number of partitions on the gateway asks the broker for a session."""
SESSIONS_SINCE: Final = 7
MAX_WAIT_MS: Final = 300_000
"""Longest poll, in milliseconds, that the gateway carries out; clients wait 500 ms by default."""
NO_EPOCH: Final = -1

NamedSlot = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a client reads; records that were fetched under other terms are not for this client."""

    version: int
    isolation_level: int
    naming: int = 0
    """A number for the names by which the broker knows topics; other names have another number."""


class Limits:
    """The limits of one request."""

    __slots__ = ("least_bytes", "max_bytes", "max_wait_ms", "min_bytes", "rack_id", "wait_s")

    def __init__(self, max_wait_ms: int, min_bytes: int, max_bytes: int, rack_id: str) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.rack_id = rack_id
        self.wait_s = max_wait_ms / 1000
        self.least_bytes = max(1, min_bytes)
        """The fewest bytes that make an answer.

        The least is 1 for a client that asks for 0: each broker answers such a request at once.
        """

    def within(self, poll_bytes: int) -> "Limits":
        """The same limits, for an answer of at most `poll_bytes`.

        A broker, too, may give less at once than a client accepts, and then it waits for no more (its
        `fetch.max.bytes`).
        """
        max_bytes = min(self.max_bytes, poll_bytes)
        if max_bytes == self.max_bytes and self.min_bytes <= max_bytes:
            return self
        return Limits(self.max_wait_ms, min(self.min_bytes, max_bytes), max_bytes, self.rack_id)

    def after(self, seconds: float) -> "Limits":
        """The same limits, when so much of the wait is over."""
        max_wait_ms = min(self.max_wait_ms, max(0, round(self.max_wait_ms - 1000 * seconds)))
        return Limits(max_wait_ms, self.min_bytes, self.max_bytes, self.rack_id)

    def for_each_of(self, brokers: int) -> "Limits":
        """The limits of a request to one of so many brokers, whose answers become one."""
        if brokers == 1:
            return self
        return Limits(self.max_wait_ms, self.min_bytes, max(1, self.max_bytes // brokers), self.rack_id)


def limits_of(max_wait_ms: int, min_bytes: int, max_bytes: int, rack_id: str) -> Limits:
    """The client's limits, within the gateway's own."""
    return Limits(min(max(0, max_wait_ms), MAX_WAIT_MS), min_bytes, max(1, max_bytes), rack_id)


class BrokerRequest:
    """One request to a broker."""

    __slots__ = ("changed", "epoch", "forgotten", "isolation_level", "limits", "session_id")

    def __init__(
        self,
        changed: Mapping[NamedSlot, Position],
        forgotten: Sequence[NamedSlot],
        limits: Limits,
        isolation_level: int,
        session_id: int,
        epoch: int,
    ) -> None:
        self.changed = changed
        """The partitions that it names ..."""
        self.forgotten = forgotten
        """... and those that the broker shall forget."""
        self.limits = limits
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.epoch = epoch

    @property
    def message(self) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self.limits.max_wait_ms,
            min_bytes=self.limits.min_bytes,
            max_bytes=self.limits.max_bytes,
            isolation_level=self.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=_topics(self.changed),
            forgotten_topics_data=_forgotten(self.forgotten),
            rack_id=self.limits.rack_id,
        )


class Found:
    """A broker's answer about one partition."""

    __slots__ = ("buffer", "part", "version")

    def __init__(self, buffer: Buffer, version: int, part: FetchedPartition) -> None:
        self.buffer = buffer
        self.version = version
        self.part = part

    @property
    def marks(self) -> Marks:
        return Marks(self.part.high_watermark, self.part.last_stable_offset, self.part.log_start_offset)


class BrokerFetches:
    """The state of these fetches, as described above.

    No I/O: the caller sends what `ask` returns, and reports its result by `answered` or `lost`.
    """

    __slots__ = ("asked", "epoch", "marks", "on_its_way", "requests", "session_id", "table", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.asked: dict[NamedSlot, Position] = {}
        self.marks: dict[NamedSlot, Marks] = {}
        """The last marks of partitions in `asked`."""
        self.on_its_way: BrokerRequest | None = None
        self.requests = 0
        """Requests sent so far: the number identifies each request."""
        self.table: object = None
        """The routing table by which the broker was asked last."""
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        """The epoch of the next request."""

    @property
    def resume_key(self) -> tuple["BrokerFetches", int]:
        """Identifies the request on its way (`Call.resume_key`)."""
        return self, self.requests

    def ask(self, wanted: dict[NamedSlot, Position], limits: Limits, in_session: bool = True) -> BrokerRequest:
        """The next request, after which the broker knows the partitions that are wanted now.

        `wanted` does not change from here on. Unless `in_session`, a session there ends.
        """
        assert self.on_its_way is None, "a broker is asked by one request at a time"
        if not in_session:
            self.epoch = INITIAL_EPOCH
        forgotten: list[NamedSlot] = []
        asked = self.asked
        changed = self.asked = wanted
        if self.epoch == INITIAL_EPOCH:
            self.marks.clear()
        else:
            changed = {}
            for slot, position in wanted.items():
                before = asked.get(slot)
                if before is not position and (
                    before is None or before.offset != position.offset or before.max_bytes != position.max_bytes
                ):
                    changed[slot] = position
            if len(asked) != len(wanted) or not asked.keys() <= wanted.keys():
                forgotten = [slot for slot in asked if slot not in wanted]
                for slot in forgotten:
                    self.marks.pop(slot, None)
        worth_it = in_session and len(wanted) >= SESSION_WORTH_PARTITIONS and self.terms.version >= SESSIONS_SINCE
        epoch = self.epoch if self.epoch != INITIAL_EPOCH or worth_it else FINAL_EPOCH
        request = BrokerRequest(changed, forgotten, limits, self.terms.isolation_level, self.session_id, epoch)
        self.on_its_way = request
        self.requests += 1
        return request

    def answered(self, scan: FetchResponseScan) -> bool:
        """Takes the answer over. False: the answer says only that the session is gone, so ask again."""
        request = self.on_its_way
        assert request is not None, "an answer to nothing"
        if scan.error_code:
            self.lost()
            if scan.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            return request.epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self.on_its_way = None
        if scan.session_id == NO_SESSION or request.epoch == FINAL_EPOCH:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id, self.epoch = scan.session_id, next_epoch(self.epoch)
        self.mark(scan)
        return True

    def mark(self, scan: FetchResponseScan) -> None:
        """Keeps the marks of an answer."""
        for topic in scan.topics:
            for part in topic.partitions:
                slot = (topic.name, part.partition)
                if part.error_code:
                    self.marks.pop(slot, None)
                elif slot in self.asked:
                    self.marks[slot] = Marks(part.high_watermark, part.last_stable_offset, part.log_start_offset)

    def passed(self) -> None:
        """An answer without a session goes on to the client as it is: the next request is in full, as this one was."""
        self.on_its_way = None
        self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH

    def lost(self) -> None:
        """No answer came, or no useful one. If the broker still has the session, the next request closes it."""
        self.on_its_way = None
        self.epoch = INITIAL_EPOCH


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


def _forgotten(slots: Sequence[NamedSlot]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for name, partition in slots:
        topics.setdefault(name, ForgottenTopic(name)).partitions.append(partition)
    return list(topics.values())
