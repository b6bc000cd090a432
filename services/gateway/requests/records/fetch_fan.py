"""The straight road of a Fetch over several brokers, or over one broker with which the gateway has a session.

Theory of operation
1. The road begins after a plan in which all brokers have answered in order. The road records the same things as plans
   do: the requests that each broker has had and not answered yet (`BrokerFetches`). So polls go by the road or by their
   plan in turns, and one continues with the unanswered requests of the other.
2. A poll takes the road while nothing has changed that its plan would check. The road reads only the new part of the
   request. It asks each broker as `fetch_poll` does, and its answer is complete at the same moment.
3. The road joins only answers without errors and hints. If another answer comes, the poll's plan continues with all
   answers as if an earlier poll had asked (`fetch.ended_in_doubt`). The plan also decides about records of transactions
   for a `read_committed` reader of several clusters: they may have to be held back (`committed`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, cast

from mesh.routing import Route, RoutingTable
from mesh.traffic.counting import Key
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Body, MeshView, Outcome, RawResponse, Request
from services.gateway.requests.records.broker_fetches import BrokerFetches, Limits, NamedSlot, Room, limits_of
from services.gateway.requests.records.committed import has_transactions
from services.gateway.requests.records.fetch_poll import Found, Poll, fitting, is_pressing, scan_of
from services.gateway.requests.records.fetch_road import FETCH_KEY, TOPICS_REMEMBERED, Said
from services.gateway.requests.records.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    UNKNOWN_MARKS,
    FetchSession,
    FetchSessions,
    Position,
    Result,
    Slot,
    Wish,
)
from services.gateway.requests.records.fetch_sole import epoch_at
from services.gateway.requests.records.fetch_writing import entry_of, name_of, written_fetch
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.transactions.holding import concerns
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import (
    REQUEST_START_BYTES,
    SIZE_BYTES,
    encode_request,
    parse_request_header,
    request_prefix,
)
from services.gateway.wire.messages.fetch import FetchRequest
from services.gateway.wire.primitives import INT32, WireError, unpack_int32
from services.gateway.wire.scanner import (
    FetchResponseScan,
    cut_entry,
    join_fetch_response,
    own_entry,
    scan_fetch_request,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.fetch_join import Entry, by_topic
from services.gateway.wire.schema import NO_UUID

OLDEST: Final = 4
"""The first version in which this module writes requests."""
SESSIONS_SINCE: Final = 7
_BEHIND_ID: Final = SIZE_BYTES + REQUEST_START_BYTES


@dataclass(slots=True, eq=False)
class FanTopic:
    """One topic, which has the same name on both sides."""

    name: str
    topic_id: bytes
    """The mesh's own id of the topic."""
    route: Route
    written: dict[int, bytes] = field(default_factory=dict)
    """Its name as it is written in requests, by version."""
    counted_as: Key | None = None
    """The key of the topic in the traffic of clients."""


@dataclass(slots=True, eq=False)
class Part:
    """The part of a poll that is read from one broker."""

    place: Place
    fetches: BrokerFetches
    knowledge: ClusterKnowledge
    header: bytes
    """The header of requests to the broker, behind the correlation id."""
    slots: tuple[NamedSlot, ...]
    """The partitions that the broker leads ..."""
    wanted: dict[Slot, Position]
    """... and those of them that are wanted now, in the order in which they may take room in an answer."""
    checked: int
    """The edition of leaders at the last check that the broker leads them."""

    @property
    def key(self) -> tuple[BrokerFetches, int]:
        """Identifies the request on its way (`Call.resume_key`)."""
        return self.fetches, self.fetches.requests

    def is_led_from_there(self) -> bool:
        knowledge, broker_id = self.knowledge, self.place.broker_id
        for topic, partition in self.slots:
            leaders = knowledge.leaders(topic)
            if partition >= len(leaders) or leaders[partition] != broker_id:
                return False
        self.checked = knowledge.leaders_edition
        return True


@dataclass(frozen=True, slots=True, eq=False)
class FanAsking:
    """The request of a poll."""

    wanted: Mapping[Slot, Position]
    session: FetchSession | None
    parts: Sequence[Part]
    """The brokers from which the poll wants records."""
    limits: Limits
    each: Limits
    """The limits for each of the brokers."""
    poll_bytes: int
    """Most bytes that could be asked for at that time."""

    @property
    def in_session(self) -> bool:
        """Whether brokers are asked for sessions, if sessions are worth their cost."""
        return self.session is not None or len(self.parts) > 1


@dataclass(slots=True, eq=False)
class FetchFan:
    """The road of one client connection."""

    version: int
    client_id: str | None
    table: RoutingTable
    isolation_level: int
    session: FetchSession | None
    """The client's session, if it has one ..."""
    epoch: int
    """... and the epoch of its next poll. If the session has another epoch by then, another connection has used it."""
    parts: tuple[Part, ...]
    homes: dict[Slot, Part]
    topics: dict[str, FanTopic]
    by_id: dict[bytes, FanTopic]
    said: Said | None = None
    """The last poll, in the client's own bytes ..."""
    last: FanAsking | None = None
    """... and its meaning."""
    counted_idle_as: Key | None = None
    look: Any = None
    """The broker connections of the last check, with the state that shows whether the check still counts."""

    # --- requests ------------------------------------------------------------------------------------------------

    def take(self, frame: memoryview, sessions: FetchSessions, now: float, room: Room) -> FanAsking | None:
        """The poll in `frame`, if it can go by this road: then it counts as asked. None: its plan has to read it."""
        (key_and_version,) = unpack_int32(frame, SIZE_BYTES)
        if key_and_version != FETCH_KEY | self.version:
            return None
        for part in self.parts:
            knowledge = part.knowledge
            if knowledge.down is not None:
                return None
            if part.checked != knowledge.leaders_edition and not part.is_led_from_there():
                return None
        said, last, poll_bytes = self.said, self.last, room.poll_bytes
        if last is None or last.poll_bytes != poll_bytes:
            said = None
        if said is not None and bytes(frame[_BEHIND_ID : said.epoch_at]) == said.before:
            behind = said.epoch_at + INT32.size
            if bytes(frame[behind:]) == said.after:
                (epoch,) = INT32.unpack_from(frame, said.epoch_at)
                return last if self._goes_on(epoch, {}, sessions, now) else None
        try:
            return self._read(frame, sessions, now, poll_bytes)
        except WireError:  # bytes after the end of the request, among others: plans ignore them
            return None

    def _goes_on(self, epoch: int, changed: Mapping[Slot, Position], sessions: FetchSessions, now: float) -> bool:
        """Whether a poll with this epoch is the next one of its session, which knows the partitions in the poll."""
        if self.session is None:
            return epoch == FINAL_EPOCH
        if not sessions.goes_on(self.session, self.epoch, epoch, changed, now):
            return False
        self.epoch = self.session.epoch
        return True

    def _read(self, frame: memoryview, sessions: FetchSessions, now: float, poll_bytes: int) -> FanAsking | None:
        version, session, end = self.version, self.session, len(frame)
        header = parse_request_header(frame, SIZE_BYTES, end)
        if header.client_id != self.client_id:
            return None
        scan = scan_fetch_request(frame, version, header.body_offset, end)
        if scan.forgotten_topics or scan.session_id != (NO_SESSION if session is None else session.session_id):
            return None
        if scan.isolation_level != self.isolation_level:
            return None
        named: dict[Slot, Position] = {}
        for topic in scan.topics:
            known = self.by_id.get(topic.topic_id) if version >= IDS_SINCE else self.topics.get(topic.name)
            if known is None:
                return None
            for each in topic.partitions:
                named[known.name, each.partition] = Position(each.fetch_offset, each.max_bytes)
        if not named.keys() <= self.homes.keys() or (session is None and not named):
            return None
        if not self._goes_on(scan.session_epoch, named, sessions, now):
            return None
        if session is None:
            for part in self.parts:
                part.wanted.clear()
        for slot, position in named.items():
            self.homes[slot].wanted[slot] = position
        parts = self.parts if session is not None else tuple(part for part in self.parts if part.wanted)
        limits = limits_of(scan.max_wait_ms, scan.min_bytes, scan.max_bytes, scan.rack_id)
        limits = limits.within(poll_bytes)
        each_limits = limits
        if len(parts) > 1:
            each_limits = replace(limits, max_bytes=max(1, limits.max_bytes // len(parts)))
        wanted = named if session is None else session.wanted
        self.last = FanAsking(wanted, session, parts, limits, each_limits, poll_bytes)
        self.said = None
        if version >= SESSIONS_SINCE:
            self.said = Said.in_frame(frame, epoch_at(scan))
        return self.last

    def request(self, part: Part, asking: FanAsking) -> bytes:
        """The next request to a broker, behind its correlation id."""
        message = part.fetches.request(
            cast(Mapping[NamedSlot, Position], part.wanted), asking.each, in_session=asking.in_session
        )
        version = part.fetches.terms.version
        if message.forgotten_topics_data:
            return encode_request(message, version, 0, self.client_id)[_BEHIND_ID:]
        return part.header + self._written(message, version, asking.each)

    def _written(self, message: FetchRequest, version: int, limits: Limits) -> bytes:
        entries: dict[bytes, list[bytes]] = {}
        for topic in message.topics:
            known = self.topics[topic.topic]
            name = known.written.get(version)
            if name is None:
                name = known.written[version] = name_of(version, known.name)
            entries[name] = [
                entry_of(version, each.partition, each.fetch_offset, each.partition_max_bytes)
                for each in topic.partitions
            ]
        return written_fetch(
            version, limits, message.isolation_level, entries, message.session_id, message.session_epoch
        )


class Step(Enum):
    """The next step after a broker's answer."""

    WAIT = auto()
    ANSWER = auto()
    """The client gets the answers that have come."""
    ASK = auto()
    """This broker has answered an earlier poll: ask it again."""
    DOUBT = auto()
    """A plan has to continue with the answers that have come."""


@dataclass(slots=True, eq=False)
class FanQuestion:
    """The question to one broker."""

    part: Part
    taken_up: bool
    """Asked by an earlier poll, which has left the question behind."""
    outcome: Outcome | None = None
    scan: FetchResponseScan | None = None


@dataclass(slots=True, eq=False)
class FanPoll:
    """One poll in progress, with the records that were found."""

    fan: FetchFan
    asking: FanAsking
    questions: Sequence[FanQuestion]
    found: dict[Slot, Found] = field(default_factory=dict)
    record_bytes: int = 0

    def come(self, question: FanQuestion, outcome: Outcome) -> Step:
        """Takes a broker's answer, which may be in a receive buffer."""
        question.outcome, scan = outcome, scan_of(outcome)
        if scan is None or scan.error_code or not isinstance(outcome, RawResponse):
            return Step.DOUBT
        if any(is_pressing(part) for topic in scan.topics for part in topic.partitions):
            return Step.DOUBT
        if concerns(self.fan.table, self.fan.isolation_level) and has_transactions(outcome.frame, scan):
            return Step.DOUBT
        if self.session_went_on:
            return Step.DOUBT
        if question.taken_up and not self._serves(question.part, scan):
            self._take(question, replace(outcome, frame=memoryview(bytes(outcome.frame))), scan)
            question.outcome = None
            question.taken_up = False
            return Step.ASK
        question.scan = scan
        self.record_bytes += scan.record_bytes
        missing = any(each.outcome is None for each in self.questions)
        return Step.WAIT if missing and self.record_bytes < self.asking.limits.least_bytes else Step.ANSWER

    @property
    def session_went_on(self) -> bool:
        """Whether another connection has used the client's session since: then this answer no longer fits."""
        session = self.asking.session
        return session is not None and session.epoch != self.fan.epoch

    def _serves(self, part: Part, scan: FetchResponseScan) -> bool:
        """Whether the answer has records that are wanted now."""
        return any(
            each.record_bytes and _is_wanted(part, (topic.name, each.partition))
            for topic in scan.topics
            for each in topic.partitions
        )

    def _take(self, question: FanQuestion, outcome: RawResponse, scan: FetchResponseScan) -> None:
        part, found = question.part, self.found
        part.fetches.answered(scan)
        for topic in scan.topics:
            for each in topic.partitions:
                slot = (topic.name, each.partition)
                if _is_wanted(part, slot):
                    found[slot] = Found(outcome.frame, outcome.version, each)

    def answer(self) -> Body:
        """The answer to the client: from here on its content counts as sent."""
        throttle_time_ms = 0
        for question in self.questions:
            if question.scan is not None and isinstance(question.outcome, RawResponse):
                self._take(question, question.outcome, question.scan)
                throttle_time_ms = question.scan.throttle_time_ms
        fan, asking, session = self.fan, self.asking, self.asking.session
        alone = len(self.questions) == 1
        if not alone:
            throttle_time_ms = 0
            self.found = dict(fitting(asking.wanted, self.found, asking.limits.max_bytes))
        found = self.found
        entries: list[tuple[str, bytes, Entry]] = []
        if session is None:
            entries = [self._entry(slot) for slot in asking.wanted]
        else:
            for slot, each in found.items():
                if session.must_tell(slot, Result(each.marks, 0, each.part.record_bytes)):
                    entries.append(self._entry(slot))
                if each.part.record_bytes:  # the partition goes to the end
                    wanted = fan.homes[slot].wanted
                    wanted[slot] = wanted.pop(slot)
        session_id = NO_SESSION if session is None else session.session_id
        pieces = join_fetch_response(
            fan.version, by_topic(entries), throttle_time_ms=throttle_time_ms, session_id=session_id
        )
        return Body(tuple(pieces))

    def _entry(self, slot: Slot) -> tuple[str, bytes, Entry]:
        name, partition = slot
        assert isinstance(name, str), "a topic that nobody knows is on no road"
        fan, each = self.fan, self.found.get(slot)
        if each is not None:
            entry = cut_entry(each.buffer, each.part, each.version, fan.version)
        else:
            marks = fan.homes[slot].fetches.marks.get((name, partition), UNKNOWN_MARKS)
            entry = own_entry(fan.version, partition, 0, *marks)
        return name, fan.topics[name].topic_id, entry


def _is_wanted(part: Part, slot: NamedSlot) -> bool:
    """Whether a broker's answer about the partition fits the offset that the client wants now."""
    position, asked = part.wanted.get(slot), part.fetches.asked.get(slot)
    return position is not None and asked is not None and position.offset == asked.offset


def fan_of(request: Request, mesh: MeshView, wish: Wish, poll: Poll) -> FetchFan | None:
    """The road that later polls of the connection may take, as far as this poll shows."""
    known = mesh.session.broker_fetches
    if wish.begins or poll.refused or len(mesh.session.read_replicas) or (wish.session is not None and wish.untold):
        return None
    if any(found.part.error_code for found in poll.found.values()) or any(place not in known for place in poll.parts):
        return None
    if poll.brokers == 0 or (poll.brokers == 1 and known[next(iter(poll.parts))].session_id == NO_SESSION):
        return None
    topics: dict[str, FanTopic] = {}
    by_id: dict[bytes, FanTopic] = {}
    for name in dict.fromkeys(name for name, _ in wish.wanted):
        route = mesh.table.route(name) if isinstance(name, str) else None
        if route is None or not isinstance(name, str) or len(topics) == TOPICS_REMEMBERED:
            return None
        topic_id = mesh_topic_id(mesh.mesh_id, name) if request.version >= IDS_SINCE else NO_UUID
        topics[name] = by_id[topic_id] = FanTopic(name, topic_id, route)
    parts: list[Part] = []
    homes: dict[Slot, Part] = {}
    for place, wanted in poll.parts.items():
        found = mesh.clusters[place.cluster]
        fetches, client_id = known[place], request.header.client_id
        if found.naming or fetches.terms.version < OLDEST:
            return None
        header = bytes(request_prefix(ApiKey.FETCH, fetches.terms.version, 0, client_id, 0)[_BEHIND_ID:])
        knowledge = found.by_own_names
        part = Part(
            place, fetches, knowledge, header, tuple(wanted), dict(wanted.items()), knowledge.leaders_edition - 1
        )
        parts.append(part)
        for slot in wanted:
            homes[slot] = part
    if homes.keys() != wish.wanted.keys():
        return None
    epoch = FINAL_EPOCH if wish.session is None else wish.session.epoch
    return FetchFan(
        request.version,
        request.header.client_id,
        mesh.table,
        poll.isolation_level,
        wish.session,
        epoch,
        tuple(parts),
        homes,
        topics,
        by_id,
    )
