"""The straight road of Fetch: a poll like the one before goes on to its one broker without a plan.

Theory of operation
1. If one broker led all partitions of a poll, and its answer passed as it came, the connection remembers a `FetchRoad`
   to this broker. The road knows the names of the topics on both sides, the client's and the broker's.
2. A later poll takes the road while nothing has changed that its plan would check. `take` writes the request as the
   plan would. The road does not even read a poll that repeats the last one, or a poll that only reads on
   (`fetch_sole`).
3. An answer may bring new numbers and records, nothing else: no error, no hint, no nearer replica. The answer passes
   without a copy, with the id of the client's session in its place. Topics get the client's names, and partitions
   without news for the session are left out. Any other answer, or none, goes to the plan as the outcome of its first
   question (`fetch.ended_astray`).
4. The gateway asks the broker without a session, as the plan does for few partitions.
5. With several clusters, a `read_committed` reader's answers may have to be held back (`committed`). Those with records
   of transactions go to the plan; so no such reader's answer passes before it is there as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mesh.routing import Route, RoutingTable
from mesh.traffic.counting import Key
from services.gateway.counting import Count
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Answer, Body, MeshView, RawResponse, Request
from services.gateway.requests.records.broker_fetches import Limits, Room, limits_of
from services.gateway.requests.records.committed import has_transactions
from services.gateway.requests.records.fetch_poll import Poll
from services.gateway.requests.records.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
    Marks,
    Position,
    Result,
    Slot,
    Wish,
)
from services.gateway.requests.records.fetch_sole import SolePoll, epoch_at, sole_poll_of
from services.gateway.requests.records.fetch_writing import entry_of, name_of, sole_offset_at, written_fetch
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.transactions.holding import concerns
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.frames import (
    REQUEST_START_BYTES,
    SIZE_BYTES,
    parse_request_header,
    parse_response_header,
    request_prefix,
    response_prefix,
)
from services.gateway.wire.primitives import INT32, Buffer, WireError, unpack_int32
from services.gateway.wire.scanner import (
    Entries,
    FetchedPartition,
    FetchRequestScan,
    FetchResponseScan,
    FetchTopicScan,
    join_fetch_response,
    patch_correlation_id,
    scan_fetch_request,
    scan_fetch_response,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.fetch_beginning import FetchBeginning, read_beginning
from services.gateway.wire.schema import NO_UUID

TOPICS_REMEMBERED: Final = 1_000
"""Topics of one road; a client that reads more topics from one broker gets no road."""
SAID_BYTES: Final = 1024
"""An answer of at most this size is kept, and compared byte by byte with the next one."""
SESSIONS_SINCE: Final = 7
FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
FETCH_KEY: Final = int(ApiKey.FETCH) << 16
"""The first bytes of a Fetch, behind its size: the API key, to which the version is added."""
_BEHIND_ID: Final = SIZE_BYTES + REQUEST_START_BYTES
"""The offset in a request behind size, API key, version and correlation id."""
_ANSWER_BEHIND_ID: Final = SIZE_BYTES + INT32.size
_SESSION_AT: Final = 6
"""The offset of the session id in an answer's body."""


@dataclass(slots=True, eq=False)
class RoadTopic:
    """One topic, with its names on both sides."""

    name: str
    topic_id: bytes
    """The mesh's own id of the topic."""
    upstream: str
    written: bytes
    """The cluster's name, as it is written in requests."""
    leaders: tuple[int | None, ...]
    route: Route
    counted_as: Key | None = None
    """The key of the topic in the traffic of clients."""


class Said(NamedTuple):
    """A poll in the client's own bytes, but for its correlation id and its session's epoch."""

    epoch_at: int
    before: bytes
    after: bytes

    @classmethod
    def in_frame(cls, frame: memoryview, epoch_at: int) -> "Said":
        return cls(epoch_at, bytes(frame[_BEHIND_ID:epoch_at]), bytes(frame[epoch_at + INT32.size :]))


@dataclass(slots=True, eq=False)
class Asking:
    """The content of a poll. Polls that repeat it share the same object."""

    request: bytes
    """The request to the broker, behind its correlation id."""
    wanted: Mapping[Slot, Position]
    session: FetchSession | None
    limits: Limits
    isolation_level: int
    poll_bytes: int | None
    """Most bytes that could be asked for at that time, if the answer must be complete before it is sent."""
    said: Said | None = None
    answer: bytes | None = None
    """The broker's last answer, behind the correlation id, if the answer brought no records ..."""
    told: Body | None = None
    """... and the client's answer when it comes again; None: the broker's answer itself."""

    def wish(self, epoch: int) -> Wish:
        """The wish as its plan has it; `epoch`: the session's epoch after this poll."""
        session = self.session
        return Wish(self.wanted) if session is None else Wish(session.wanted, session, epoch)


Told = list[tuple[RoadTopic, list[FetchedPartition]]]
"""The topics and partitions that the client gets."""


@dataclass(slots=True, eq=False)
class FetchRoad:
    """The road of one client connection."""

    version: int
    sent_version: int
    client_id: str | None
    header: bytes
    """The header of requests to the broker, behind the correlation id."""
    place: Place
    table: RoutingTable
    knowledge: ClusterKnowledge
    topics: dict[str, RoadTopic]
    session: FetchSession | None
    """The client's session, if it has one ..."""
    epoch: int
    """... and the epoch of its next poll. If the session has another epoch by then, another connection has used it."""
    renames: bool = False
    """Client and cluster name topics differently: the client by ids, or by other names."""
    by_id: dict[bytes, RoadTopic] = field(default_factory=dict)
    by_upstream: dict[str, RoadTopic] = field(default_factory=dict)
    checked: int = -1
    """The edition of leaders at the last check that the broker leads all of the topics."""
    last: Asking | None = None
    sole: SolePoll | None = None
    answers: Count | None = None
    """The count of answered requests."""
    counted_idle_as: Key | None = None
    look: Any = None
    """The broker connection of the last check, with the state that shows whether the check still counts."""

    # --- requests ------------------------------------------------------------------------------------------------

    def take(self, frame: memoryview, sessions: FetchSessions, now: float, room: Room) -> Asking | None:
        """The poll in `frame`, if it can go by this road; then it counts as asked. None: its plan has to read it.

        A broker is asked by one poll at a time: call this when the last one is answered.
        """
        (key_and_version,) = unpack_int32(frame, SIZE_BYTES)
        knowledge = self.knowledge
        if key_and_version != FETCH_KEY | self.version or knowledge.down is not None:
            return None
        if self.checked != knowledge.leaders_edition and not self._is_led_from_there():
            return None
        last = self.last
        if last is not None and last.said is not None and last.poll_bytes in (None, room.poll_bytes):
            at, before, after = last.said
            if bytes(frame[_BEHIND_ID:at]) == before and bytes(frame[at + INT32.size :]) == after:
                (epoch,) = INT32.unpack_from(frame, at)
                return last if self._goes_on(epoch, {}, sessions, now) else None
        sole, session = self.sole, self.session
        if sole is not None and (session is None or len(session.wanted) == 1):
            read = sole.read(frame)
            if read is not None:
                return self._reads_on(sole, frame, *read, sessions, now)
        try:
            return self._read(frame, sessions, now, room)
        except WireError:  # bytes after the end of the request, among others: plans ignore them
            return None

    def _reads_on(
        self, sole: SolePoll, frame: memoryview, epoch: int, offset: int, sessions: FetchSessions, now: float
    ) -> Asking | None:
        session, changed = self.session, {sole.slot: Position(offset, sole.max_bytes)}
        if not self._goes_on(epoch, changed, sessions, now):
            return None
        wanted = changed if session is None else session.wanted
        self.last = Asking(sole.asks(offset), wanted, session, sole.limits, sole.isolation_level, None)
        self.last.said = Said.in_frame(frame, sole.epoch_at)
        return self.last

    def _goes_on(self, epoch: int, changed: Mapping[Slot, Position], sessions: FetchSessions, now: float) -> bool:
        """Whether a poll with this epoch is the next one of its session, which knows the partitions in the poll."""
        session = self.session
        if session is None:
            return epoch == FINAL_EPOCH
        if not sessions.goes_on(session, self.epoch, epoch, changed, now):
            return False
        self.epoch = session.epoch
        return True

    def _is_led_from_there(self) -> bool:
        """Checks again that the broker leads the client's partitions; other partitions may have unknown leaders."""
        knowledge, broker_id = self.knowledge, self.place.broker_id
        for topic in self.topics.values():
            topic.leaders = knowledge.leaders(topic.upstream)
        if self.session is not None:
            for name, partition in self.session.wanted:
                found = self.topics.get(name) if isinstance(name, str) else None
                if found is None or not _leads(broker_id, found.leaders, partition):
                    return False
        self.last = self.sole = None
        self.checked = knowledge.leaders_edition
        return True

    def _read(self, frame: memoryview, sessions: FetchSessions, now: float, room: Room) -> Asking | None:
        version, session, end = self.version, self.session, len(frame)
        header = parse_request_header(frame, SIZE_BYTES, end)
        if header.client_id != self.client_id:
            return None
        scan = scan_fetch_request(frame, version, header.body_offset, end)
        if scan.forgotten_topics or scan.session_id != (NO_SESSION if session is None else session.session_id):
            return None
        wanted = self._positions(scan.topics)
        if wanted is None or (not wanted if session is None else not wanted.keys() <= session.wanted.keys()):
            return None
        if not self._goes_on(scan.session_epoch, wanted, sessions, now):
            return None
        limits = limits_of(scan.max_wait_ms, scan.min_bytes, scan.max_bytes, scan.rack_id)
        if session is not None:
            wanted = session.wanted
        careful = concerns(self.table, scan.isolation_level)
        # else the answer passes while it comes (`begun`)
        poll_bytes = room.poll_bytes if len(wanted) > 1 or careful else None
        if poll_bytes is not None:
            limits = limits.within(poll_bytes)
        request = self._written(wanted, limits, scan.isolation_level)
        self.last = Asking(request, wanted, session, limits, scan.isolation_level, poll_bytes)
        if version >= SESSIONS_SINCE:
            self.last.said = Said.in_frame(frame, epoch_at(scan))
            if poll_bytes is None:
                self.sole = self._sole_poll(frame, scan, self.last) or self.sole
        return self.last

    def _sole_poll(self, frame: memoryview, scan: FetchRequestScan, asking: Asking) -> SolePoll | None:
        ((name, partition),) = asking.wanted
        assert isinstance(name, str), "a topic that nobody knows is on no road"
        written = self.topics[name].written
        asked_offset_at = len(self.header) + sole_offset_at(self.sent_version, written)
        return sole_poll_of(
            frame, self.version, scan, _BEHIND_ID, (name, partition), asking.limits, asking.request, asked_offset_at
        )

    def _positions(self, topics: list[FetchTopicScan]) -> dict[Slot, Position] | None:
        """Positions of the partitions that a request names; None if the broker does not lead all of them."""
        by_ids, broker_id = self.version >= IDS_SINCE, self.place.broker_id
        found: dict[Slot, Position] = {}
        for topic in topics:
            known = self.by_id.get(topic.topic_id) if by_ids else self.topics.get(topic.name)
            if known is None:
                return None
            name, leaders = known.name, known.leaders
            for part in topic.partitions:
                if not _leads(broker_id, leaders, part.partition):
                    return None
                found[name, part.partition] = Position(part.fetch_offset, part.max_bytes)
        return found

    def _written(self, wanted: Mapping[Slot, Position], limits: Limits, isolation_level: int) -> bytes:
        entries: dict[bytes, list[bytes]] = {}
        for (name, partition), position in wanted.items():
            assert isinstance(name, str), "a topic that nobody knows is on no road"
            written = self.topics[name].written
            entry = entry_of(self.sent_version, partition, *position)
            if written in entries:
                entries[written].append(entry)
            else:
                entries[written] = [entry]
        return self.header + written_fetch(self.sent_version, limits, isolation_level, entries)

    # --- answers -------------------------------------------------------------------------------------------------

    def answered(self, asking: Asking, frame: memoryview) -> tuple[Answer, FetchResponseScan | None] | None:
        """The client's answer, and the scan of the broker's.

        The scan is None if the broker repeats its last answer. None for both: a plan has to read the answer. Raises
        WireError for an unreadable answer.
        """
        session, version, end = asking.session, self.sent_version, len(frame)
        if session is not None and session.epoch != self.epoch:  # another connection has used the session meanwhile
            return None
        said = asking.answer
        if said is not None and end == _ANSWER_BEHIND_ID + len(said) and bytes(frame[_ANSWER_BEHIND_ID:]) == said:
            return asking.told or RawResponse(frame, _ANSWER_BEHIND_ID + (version >= FLEXIBLE), version), None
        body_at = parse_response_header(frame, SIZE_BYTES, end, ApiKey.FETCH, version).body_offset
        scan = scan_fetch_response(frame, version, body_at, end)
        told = self._topics_of(scan) if scan.untouched else None
        if told is None or (concerns(self.table, asking.isolation_level) and has_transactions(frame, scan)):
            return None
        asking.answer = None
        if not scan.record_bytes and end <= SAID_BYTES:
            asking.answer = bytes(frame[_ANSWER_BEHIND_ID:])
        answer: RawResponse | Body
        if (session is not None and not self._hears_all(session, told)) or self.renames:
            answer = self._joined(frame, scan, told, session)
        else:
            if session is not None:
                INT32.pack_into(frame, body_at + _SESSION_AT, session.session_id)
            answer = RawResponse(frame, body_at, version)
        if session is not None:
            if scan.record_bytes:  # from now on the partition that has brought records is asked for behind the others
                self.last = None
            else:  # if the same answer comes again, the client knows it already
                asking.told = self._joined(frame, scan, [], session)
        elif isinstance(answer, Body):
            asking.told = Body(tuple(bytes(piece) for piece in answer.pieces)) if asking.answer else None
        return answer, scan

    def begun(self, asking: Asking, beginning: memoryview, missing: int) -> FetchBeginning | None:
        """The beginning of an answer that may pass as it comes, behind `passing`; None if `answered` needs it all."""
        session, version = asking.session, self.sent_version
        if (session is not None and session.epoch != self.epoch) or concerns(self.table, asking.isolation_level):
            return None
        body_at = _ANSWER_BEHIND_ID + (version >= FLEXIBLE)
        found = read_beginning(beginning, version, body_at, len(beginning), missing)
        known = None if found is None else self.by_upstream.get(found.topic)
        if found is None or known is None or not found.record_bytes:
            return None
        if session is not None and (known.name, found.partition) not in session.wanted:
            return None
        return found

    def passing(
        self, asking: Asking, found: FetchBeginning, beginning: memoryview, missing: int, clients_id: int
    ) -> tuple[Buffer, ...]:
        """The beginning of the client's answer; from here on its content counts as sent."""
        session, known = asking.session, self.by_upstream[found.topic]
        if session is not None:
            marks = Marks(found.high_watermark, found.last_stable_offset, found.log_start_offset)
            session.must_tell((known.name, found.partition), Result(marks, 0, found.record_bytes))
            self.last = None
        session_id = NO_SESSION if session is None else session.session_id
        if not self.renames:
            patch_correlation_id(beginning, SIZE_BYTES, clients_id)
            if session is not None:
                INT32.pack_into(
                    beginning, _ANSWER_BEHIND_ID + (self.sent_version >= FLEXIBLE) + _SESSION_AT, session_id
                )
            return (beginning,)
        entries = [Entries(known.name, known.topic_id, ())]
        head, *_ = join_fetch_response(
            self.version, entries, throttle_time_ms=found.throttle_time_ms, session_id=session_id
        )
        # without the count of partitions, and the tags of topic and answer
        head = head[: -3 if self.version >= FLEXIBLE else -INT32.size]
        rest = beginning[found.partitions_at :]
        prefix = response_prefix(ApiKey.FETCH, self.version, clients_id, len(head) + len(rest) + missing)
        return (prefix + head, rest)

    def _topics_of(self, scan: FetchResponseScan) -> Told | None:
        """The topics in the broker's answer; None if a topic is among them that no request named."""
        found: Told = []
        for topic in scan.topics:
            known = self.by_upstream.get(topic.name)
            if known is None:
                return None
            found.append((known, topic.partitions))
        return found

    def _hears_all(self, session: FetchSession, told: Told) -> bool:
        """Whether all of these partitions have news for the client; partitions without news are taken out."""
        wanted, all_of_it = session.wanted, True
        for known, parts in told:
            news = []
            for part in parts:
                slot = (known.name, part.partition)
                marks = Marks(part.high_watermark, part.last_stable_offset, part.log_start_offset)
                if slot in wanted and session.must_tell(slot, Result(marks, 0, part.record_bytes)):
                    news.append(part)
            if len(news) < len(parts):
                all_of_it = False
                parts[:] = news
        return all_of_it

    def _joined(self, frame: memoryview, scan: FetchResponseScan, told: Told, session: FetchSession | None) -> Body:
        entries = [
            Entries(known.name, known.topic_id, [(frame[part.start : part.end],) for part in parts])
            for known, parts in told
            if parts
        ]
        session_id = NO_SESSION if session is None else session.session_id
        pieces = join_fetch_response(
            self.version, entries, throttle_time_ms=scan.throttle_time_ms, session_id=session_id
        )
        return Body(tuple(pieces))


def _leads(broker_id: int, leaders: tuple[int | None, ...], partition: int) -> bool:
    return 0 <= partition < len(leaders) and leaders[partition] == broker_id


def road_of(request: Request, mesh: MeshView, wish: Wish, poll: Poll, before: FetchRoad | None) -> FetchRoad | None:
    """The road that later polls of the connection may take, as far as this poll shows; `before`: the road until now."""
    place, whole, version = poll.sole, poll.whole, request.version
    if place is None or whole is None or wish.begins or len(mesh.session.read_replicas):
        return None
    by_ids, sent_version = version >= IDS_SINCE, whole.version
    if sent_version != min(version, IDS_SINCE - 1):  # answers of other versions are written anew
        return None
    client_id, knowledge = request.header.client_id, mesh.clusters[place.cluster].by_own_names
    header = bytes(request_prefix(ApiKey.FETCH, sent_version, 0, client_id, 0)[_BEHIND_ID:])
    epoch = FINAL_EPOCH if wish.session is None else wish.session.epoch
    road = FetchRoad(
        version,
        sent_version,
        client_id,
        header,
        place,
        mesh.table,
        knowledge,
        {},
        wish.session,
        epoch,
        by_ids,
    )
    names = {name for name, _ in wish.wanted}
    if before is not None and before.place == place and before.table is mesh.table and before.knowledge is knowledge:
        names |= before.topics.keys()
    if len(names) > TOPICS_REMEMBERED:
        return None
    for name in names:
        route = mesh.table.route(name) if isinstance(name, str) else None
        if route is None or not isinstance(name, str):
            return None
        upstream = name if is_internal(name) else route.upstream_topic
        topic_id = mesh_topic_id(mesh.mesh_id, name) if by_ids else NO_UUID
        topic = RoadTopic(name, topic_id, upstream, name_of(sent_version, upstream), (), route)
        road.topics[name] = road.by_id[topic_id] = road.by_upstream[upstream] = topic
        road.renames = road.renames or upstream != name
    return road if len(road.by_upstream) == len(names) else None
