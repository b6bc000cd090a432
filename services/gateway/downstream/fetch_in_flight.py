"""A Fetch that is forwarded without a plan, from its arrival to its answer: see `fetch_forwarding`."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from mesh.routing import RoutingTable
from mesh.tenants import Tenant
from services.gateway import clock
from services.gateway.counting import Answered
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.fetch_questions import Forwarder, Part, owned_copy
from services.gateway.downstream.passing import Brought
from services.gateway.requests.knowledge import ClusterKnowledge
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Outcome, RawResponse
from services.gateway.requests.records.broker_fetches import Found, Limits, NamedSlot
from services.gateway.requests.records.committed import has_transactions
from services.gateway.requests.records.fetch_poll import GRACE_S, NAMES_UNTIL, fitting, is_pressing
from services.gateway.requests.records.fetch_routes import Route
from services.gateway.requests.records.fetch_sessions import (
    NO_SESSION,
    UNKNOWN_MARKS,
    FetchSession,
    Marks,
    Position,
    Slot,
)
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.frames import Pieces
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner import (
    FetchedPartition,
    FetchResponseScan,
    cut_entry,
    join_fetch_response,
    own_entry,
)
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.fetch_join import Entry, by_topic, with_topic_ids
from services.gateway.wire.scanner.walks import fetch_response, headers, octets

FLEXIBLE: Final = flexible_since(ApiKey.FETCH) or 0
SESSION_AT: Final = 6
"""The offset of the session id in an answer's body."""
_FETCH: Final = int(ApiKey.FETCH)
_NO_TAGS: Final = 0


class Step(Enum):
    """The next step after a broker's answer."""

    WAIT = auto()
    ANSWER = auto()
    """The client gets the answers that have come."""
    ASK = auto()
    """This broker has answered an earlier request: ask it again."""
    DOUBT = auto()
    """A plan has to continue with the answers that have come."""


class FetchInFlight:
    """A Fetch among the slots of its client's connection, with the records that were found."""

    __slots__ = (
        "alone", "answer", "answers", "asked_at", "began", "brought", "careful", "client_id", "clients_id", "close",
        "clusters", "done", "each", "ended", "epoch", "exchange", "forwarder", "found", "heard_at",
        "isolation_level", "limits", "parts", "passes", "record_bytes", "routes", "session", "stay", "stitched",
        "table", "tenant", "upstream_s", "version", "wanted",
    )  # fmt: skip
    api_key = ApiKey.FETCH
    produces = False

    def __init__(
        self, forwarder: Forwarder, header: headers.RequestHeader, isolation_level: int, session: FetchSession | None
    ) -> None:
        self.forwarder = forwarder
        self.version = header.api_version
        self.client_id = header.client_id
        self.clients_id = header.correlation_id
        """The correlation id that the client waits for."""
        self.isolation_level = isolation_level
        self.session = session
        """The client's session, if it has one ..."""
        self.epoch = 0
        """... and its epoch after this request."""
        self.table: RoutingTable
        self.tenant: Tenant | None = None  # whose names are in the request
        self.clusters: Mapping[str, ClusterKnowledge]
        """The knowledge of all clusters."""
        self.careful = False
        """Whether records may have to be held back (`committed`): then a plan decides about those of transactions."""
        self.stitched = False
        """Whether clients see other offsets of a partition than its cluster."""
        self.routes: dict[str, Route] = {}
        """The routes of its topics, by their names."""
        self.wanted: Mapping[Slot, Position]
        self.parts: list[Part] = []
        self.alone = False
        """Whether one broker is asked, by this request: then the broker keeps the time by itself."""
        self.limits: Limits
        self.each: Limits
        """The limits for each of the brokers."""
        self.passes = False
        """Whether the answer passes while it arrives, if it is large and its beginning shows that it is clean."""
        self.found: dict[Slot, Found] = {}
        self.record_bytes = 0
        self.began = 0.0
        """The start, ..."""
        self.asked_at = 0.0
        """... the time at which brokers had been asked, ..."""
        self.heard_at = 0.0
        """... the time at which the last answer came that it waited for ..."""
        self.upstream_s = 0.0
        """... and the time that clusters have taken."""
        self.brought: Brought | None = None
        """The content of an answer that passes while it arrives, if traffic is counted."""
        self.answers: Answered
        """The count of answered requests."""
        self.stay: list[dict[FetchInFlight, None]] | None = None
        """The places at which it waits for news, if it does (`waiting_room`)."""
        self.ended = False
        """Whether it takes no more answers. Its plan may still go on."""
        self.exchange: Exchange | None = None
        """The exchange of its plan, if it needs one."""
        self.done = False
        self.answer: list[Buffer] | None = None
        self.close: str | None = None

    @property
    def header(self) -> headers.RequestHeader:
        return headers.RequestHeader(_FETCH, self.version, self.clients_id, self.client_id, 0)

    @property
    def asked(self) -> list[Place]:
        """The brokers that it has asked itself, for a plan that goes on with it."""
        return [Place(part.way.cluster, part.way.broker_id) for part in self.parts if part.left is None]

    @property
    def is_over_at(self) -> float:
        """The time at which the client gets the answers that have come."""
        return self.began + self.limits.wait_s + GRACE_S

    @property
    def session_went_on(self) -> bool:
        """Whether another connection has used the client's session since: then this answer no longer fits."""
        return self.session is not None and self.session.epoch != self.epoch

    def abandon(self) -> None:
        """The client is gone."""
        self.ended = True
        self.forwarder.abandoned(self)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.abandon()

    def waited(self) -> None:
        """It waits for clusters no more, or its plan does."""
        if self.asked_at and self.heard_at:
            self.upstream_s = max(0.0, self.heard_at - self.asked_at)

    def passed_on(self) -> None:
        self.heard_at = clock.now()
        self.waited()
        self.forwarder.passed_on(self)

    # --- answers of brokers --------------------------------------------------------------------------------------

    def come(self, part: Part, outcome: Outcome) -> Step:
        """Takes a broker's answer, which may be in a receive buffer."""
        part.outcome = outcome
        if not isinstance(outcome, RawResponse):
            return Step.DOUBT
        frame = outcome.frame
        try:
            scan = fetch_response.scan_fetch_response(frame, outcome.version, outcome.body_offset, len(frame))
        except WireError:
            return Step.DOUBT
        if scan.error_code or self.session_went_on:
            return Step.DOUBT
        if not scan.untouched and _has_pressing(scan):
            return Step.DOUBT
        if self.careful and has_transactions(frame, scan):
            return Step.DOUBT
        if part.left is not None and not _serves(part, scan):
            part.fetches.answered(scan)
            self._find(part, owned_copy(outcome), scan)
            part.outcome = part.left = None
            return Step.ASK
        part.scan = scan
        self.record_bytes += scan.record_bytes
        if self.record_bytes < self.limits.least_bytes:
            for each in self.parts:
                if each.outcome is None:
                    return Step.WAIT
        return Step.ANSWER

    def _find(self, part: Part, outcome: Outcome, scan: FetchResponseScan) -> None:
        assert isinstance(outcome, RawResponse)
        found, wanted, asked = self.found, part.wanted, part.fetches.asked
        for topic in scan.topics:
            name = topic.name
            for each in topic.partitions:
                slot = (name, each.partition)
                position = wanted.get(slot)
                before = position if wanted is asked else asked.get(slot)
                if position is not None and before is not None and position.offset == before.offset:
                    found[slot] = Found(outcome.frame, outcome.version, each)

    def all_found(self) -> Mapping[Slot, Found]:
        """The partitions that brokers have answered, after `told`."""
        if not self.found:
            for part in self.parts:
                if part.scan is not None and part.outcome is not None:
                    self._find(part, part.outcome, part.scan)
        return self.found

    def leave_behind(self, waiting: dict[object, LeftBehind]) -> None:
        """Leave the answers that have come behind for a plan, too."""
        for part in self.parts:
            if part.outcome is not None:
                left = waiting[part.way.kept_at] = LeftBehind((part.fetches.resume_key, None), part.outcome)
                left.arrived = clock.now()

    # --- the client's answer -------------------------------------------------------------------------------------

    def told(self) -> Pieces:
        """The client's answer in pieces, which lacks only its number: from here on its content counts as sent."""
        throttle_time_ms = 0
        if self.stitched:
            for (name, _), came in self.found.items():
                self._show(memoryview(came.buffer), came.version, str(name), came.part)
        if self.alone and self.session is None and self.tenant is None:
            part = self.parts[0]
            scan, outcome = part.scan, part.outcome
            if scan is not None and scan.untouched and self.version == part.way.version:
                assert isinstance(outcome, RawResponse)
                part.fetches.passed()
                if not scan.record_bytes:
                    part.fetches.mark(scan)
                if self.stitched:
                    outcome = self._show_answer(part, scan)
                return (outcome.frame,)
        for part in self.parts:
            if part.scan is not None and part.outcome is not None:
                part.fetches.answered(part.scan)
                if self.stitched:
                    self._show_answer(part, part.scan)
                self._find(part, part.outcome, part.scan)
                throttle_time_ms = part.scan.throttle_time_ms
        session, session_id = self.session, NO_SESSION
        if session is not None:
            session_id = session.session_id
        if self.alone:
            part = self.parts[0]
            scan, outcome, sent_version = part.scan, part.outcome, part.way.version
            if scan is not None and scan.untouched and part.fetches.session_id == NO_SESSION:
                assert isinstance(outcome, RawResponse)
                slots = self._news()
                fits = self.tenant is None and sent_version == min(self.version, NAMES_UNTIL)
                if fits and slots == list(self.found):
                    return self._whole(outcome, scan, session_id)
                return self._joined(slots, throttle_time_ms, session_id)
        if len(self.parts) > 1:
            throttle_time_ms = 0
            self.found = dict(fitting(self.wanted, self.found, self.limits.max_bytes))
        return self._joined(self._news(), throttle_time_ms, session_id)

    def _show_answer(self, part: Part, scan: FetchResponseScan) -> RawResponse:
        """Gives the answer of a broker the offsets of clients, in place; its marks have been kept."""
        outcome = part.outcome
        assert isinstance(outcome, RawResponse)
        if outcome.frame.readonly:
            outcome = part.outcome = owned_copy(outcome)
            assert isinstance(outcome, RawResponse)
        for topic in scan.topics:
            for each in topic.partitions:
                self._show(outcome.frame, outcome.version, topic.name, each)
        return outcome

    def _show(self, frame: memoryview, version: int, name: str, each: FetchedPartition) -> None:
        route = self.routes.get(name)
        present = None if route is None else route.present(each.partition)
        if present is not None:
            shown = present.shown_marks(Marks(each.high_watermark, each.last_stable_offset, each.log_start_offset))
            fetch_response.show_offsets(
                frame,
                version,
                each,
                present.shift,
                shown.high_watermark,
                shown.last_stable_offset,
                shown.log_start_offset,
            )

    def _shown(self, slot: Slot, marks: Marks) -> Marks:
        """The marks of a broker, as clients see them."""
        name, partition = slot
        route = self.routes.get(name) if self.stitched and isinstance(name, str) else None
        present = None if route is None else route.present(partition)
        return marks if present is None else present.shown_marks(marks)

    def _whole(self, outcome: RawResponse, scan: FetchResponseScan, session_id: int) -> Pieces:
        """The broker's whole answer, with the client's session and topic ids."""
        frame = outcome.frame
        if self.version < IDS_SINCE:
            INT32.pack_into(frame, outcome.body_offset + SESSION_AT, session_id)
            return (frame,)
        ids = [self.routes[topic.name].topic_id for topic in scan.topics]
        return self._framed(with_topic_ids(frame, scan, ids, session_id))

    def _news(self) -> list[Slot]:
        """The partitions of the answer, in their order."""
        session, found = self.session, self.found
        if session is None:
            return list(self.wanted)
        told: list[Slot] = []
        slots: list[Slot] = list(found)
        marks: dict[Slot, Marks] = {}
        if len(session.told) < len(session.wanted):  # marks that brokers have sent once count
            for part in self.parts:
                marks.update({slot: known for slot, known in part.fetches.marks.items() if slot in part.wanted})
            if self.stitched:
                marks = {slot: self._shown(slot, known) for slot, known in marks.items()}
        if marks or len(slots) > 1:
            slots = [each for each in session.wanted if each in found or each in marks]
        for each in slots:
            came = found.get(each)
            known, size = (marks[each], 0) if came is None else (came.marks, came.part.record_bytes)
            if session.must_tell(each, known, 0, size):
                told.append(each)
        return told

    def _joined(self, slots: list[Slot], throttle_time_ms: int, session_id: int) -> Pieces:
        entries: list[tuple[str, bytes, Entry]] = []
        for slot in slots:
            name, partition = slot
            assert isinstance(name, str)  # a topic that nobody knows has no route
            each = self.found.get(slot)
            if each is not None:
                entry = cut_entry(each.buffer, each.part, each.version, self.version)
            else:
                entry = own_entry(self.version, partition, 0, *self._last_marks((name, partition)).numbers)
            shown = name if self.tenant is None else self.tenant.own_topic(name) or ""
            entries.append((shown, self.routes[name].topic_id if self.version >= IDS_SINCE else b"", entry))
        return self._framed(join_fetch_response(self.version, by_topic(entries), throttle_time_ms, session_id))

    def _framed(self, body: list[Buffer]) -> Pieces:
        """Size prefix and header, which lacks only its number, before the pieces of a body."""
        flexible, size = self.version >= FLEXIBLE, 0
        for piece in body:
            size += len(piece)
        out = bytearray()
        octets.add32(out, INT32.size + flexible + size)
        octets.add32(out, 0)
        if flexible:
            out.append(_NO_TAGS)
        out += body[0]
        return (out, *body[1:])

    def _last_marks(self, slot: NamedSlot) -> Marks:
        for part in self.parts:
            if slot in part.wanted:
                return self._shown(slot, part.fetches.marks.get(slot, UNKNOWN_MARKS))
        return UNKNOWN_MARKS


def _has_pressing(scan: FetchResponseScan) -> bool:
    for topic in scan.topics:
        for part in topic.partitions:
            if is_pressing(part):
                return True
    return False


def _serves(part: Part, scan: FetchResponseScan) -> bool:
    """Whether a broker's answer has records at an offset that the client wants now."""
    wanted, asked = part.wanted, part.fetches.asked
    for topic in scan.topics:
        for each in topic.partitions:
            slot = (topic.name, each.partition)
            position, before = wanted.get(slot), asked.get(slot)
            if each.record_bytes and position is not None and before is not None and position.offset == before.offset:
                return True
    return False
