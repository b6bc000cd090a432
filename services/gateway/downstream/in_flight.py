"""A Produce that is forwarded without a plan, from its arrival to its answer: see `forwarding`."""

import math
from asyncio import get_running_loop
from collections.abc import Callable
from typing import Final, Protocol

from mesh.routing import ClientIdentity, RoutingTable
from mesh.tenants import Tenant
from mesh.tracing.context import Trace
from services.gateway import clock
from services.gateway.counting import Answered
from services.gateway.frame_stream import Passage
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Answer, NoAnswer, RawResponse, Unreachable
from services.gateway.requests.records.produce_routes import Route, compact
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.seats import Seat
from services.gateway.wire.apis import ApiKey, flexible_since
from services.gateway.wire.batches import HEADER_BYTES, BatchHeader, read_kept_header
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner.bounds import IDS_SINCE
from services.gateway.wire.scanner.produce_response import throttle_ms, with_topic_ids
from services.gateway.wire.scanner.walks import headers, produce, produce_response

CORRELATION_END: Final = SIZE_BYTES + INT32.size
"""The place behind the correlation id of an answer."""
FLEXIBLE: Final = flexible_since(ApiKey.PRODUCE) or 0


class Forwarder(Protocol):
    """Has sent the request, and takes its end."""

    def stored(self, request: "InFlight", frame: memoryview) -> None:
        """The usual end: this answer goes to the client."""

    def astray(self, request: "InFlight", outcome: RawResponse | Unreachable) -> None:
        """A plan has to decide the client's answer."""

    def ended(self, request: "InFlight", answer: Answer, *, counts: bool = True) -> None: ...

    def settled(self, request: "InFlight") -> None:
        """The records certainly won't be stored: nobody has to wait for them."""

    def came(self, size: int, missing: int) -> None:
        """`size` more bytes of the request that leaves while it arrives; `missing` bytes come after them."""


class InFlight:
    """A request from its arrival to its answer.

    It is in the slots of its client's connection, among the sent requests of its broker's connection, and among the
    requests that a hold waits for.
    """

    __slots__ = (
        "answer",
        "answers",
        "asked_at",
        "began",
        "client",
        "client_id",
        "clients_id",
        "close",
        "connection",
        "correlation_id",
        "deadline",
        "done",
        "forwarder",
        "headers",
        "outcome",
        "routes",
        "scan",
        "seat",
        "sent_at",
        "sent_version",
        "sole",
        "stitched",
        "table",
        "tenant",
        "timeout_s",
        "traces",
        "under_standby",
        "upstream_s",
        "version",
    )
    api_key = ApiKey.PRODUCE
    produces = True

    def __init__(
        self, forwarder: Forwarder, header: headers.RequestHeader, scan: produce.ProduceScan, kept: bytes
    ) -> None:
        self.forwarder = forwarder
        self.version = header.api_version
        self.client_id = header.client_id
        self.clients_id = header.correlation_id
        """The correlation id that the client waits for ..."""
        self.correlation_id = 0
        """... and that of the request to the broker."""
        self.scan = scan
        """The places of fields in the request; when the request is gone, only its topics and partitions count."""
        self.headers = kept
        """The header of the first batch of each partition."""
        self.routes: list[Route] = []
        """The routes of its topics."""
        self.stitched = False
        """Whether clients see other offsets of a topic than its cluster."""
        self.under_standby = False
        """Whether a cluster of its topics has a standby: then it is noted how far they are acknowledged."""
        self.sent_version = self.version
        self.sole: Place
        """The cluster and broker id that the request goes to."""
        self.table: RoutingTable
        self.tenant: Tenant | None = None
        """The tenant whose names are in the request."""
        self.client: ClientIdentity
        """The client, for a hold: a connection may have several."""
        self.answers: Answered
        """The count of answered requests."""
        self.timeout_s = 0.0
        self.deadline = math.inf
        self.began = 0.0
        """The start, ..."""
        self.asked_at = 0.0
        """... the time at which all of the request had been sent to the broker ..."""
        self.upstream_s = 0.0
        """... and the time that clusters have taken."""
        self.traces: tuple[Trace, ...] | None = None
        """The sampled trace contexts of its records; None if none was looked for, or seen."""
        self.seat: Seat | None = None
        """The seat, if the request shares a connection with other clients ..."""
        self.sent_at = 0.0
        """... and the time at which it was sent there."""
        self.connection: BrokerConnection | None = None
        """The broker's connection, if the request still arrives from its client ..."""
        self.outcome: Unreachable | None = None
        """... and the reason why it goes no further."""
        self.done = False
        self.answer: list[Buffer] | None = None
        self.close: str | None = None

    @property
    def header(self) -> headers.RequestHeader:
        return headers.RequestHeader(ApiKey.PRODUCE, self.version, self.clients_id, self.client_id, 0)

    # --- for other requests, and for holds -----------------------------------------------------------------------

    @property
    def what(self) -> tuple[str, ...]:
        """The topics."""
        return tuple([route.name for route in self.routes])

    @property
    def break_off(self) -> Callable[[], None] | None:
        """Gives up a request that still arrives."""
        return None if self.connection is None else self._break_off

    def sent_to(self, topic: str, partition: int) -> Place | None:
        for each, route in zip(self.scan.topics, self.routes, strict=True):
            if route.name == topic and any(part.partition == partition for part in each.partitions):
                return self.sole
        return None

    def named(self) -> produce.ProduceScan:
        """The scan with the names of the mesh, if the request has ids or other names."""
        scan = self.scan
        if self.version < IDS_SINCE and self.tenant is None:
            return scan
        return scan.of([topic.named(route.name) for topic, route in zip(scan.topics, self.routes, strict=True)])

    def batches(self) -> dict[tuple[str, int], BatchHeader]:
        """Headers by topic and partition, of producers that number their batches."""
        found: dict[tuple[str, int], BatchHeader] = {}
        at = 0
        for topic, route in zip(self.scan.topics, self.routes, strict=True):
            for part in topic.partitions:
                batch = read_kept_header(self.headers[at : at + HEADER_BYTES])
                at += HEADER_BYTES
                if batch is not None and batch.is_idempotent:
                    found.setdefault((route.name, part.partition), batch)
        return found

    # --- for the broker's connection -----------------------------------------------------------------------------

    def answered(self, frame: memoryview, owned: bool) -> None:
        self.upstream_s = clock.now() - self.asked_at
        flexible = self.sent_version >= FLEXIBLE
        if self.seat is not None:
            self.seat.answered(self.sent_at, throttle_ms(frame, flexible=flexible))
            self.seat = None
        body_at = CORRELATION_END + flexible
        told: memoryview | None = None
        try:
            if flexible and frame[CORRELATION_END]:
                pass
            elif self.sent_version != self.version or self.tenant is not None:
                told = self._as_asked(frame, body_at)
            elif produce_response.produce_response_is_clean(frame, self.sent_version, body_at, len(frame)):
                if self.stitched:
                    self._show_offsets(frame, body_at)
                told = frame
        except WireError:  # the decoder refuses it
            pass
        if told is not None:
            if self.under_standby:
                self._note_ends(frame, body_at)
            self.forwarder.stored(self, told)
            return
        header = headers.parse_response_header(frame, SIZE_BYTES, len(frame), ApiKey.PRODUCE, self.sent_version)
        kept = frame if owned else memoryview(bytearray(frame))
        self.forwarder.astray(self, RawResponse(kept, header.body_offset, self.sent_version))

    def _as_asked(self, frame: memoryview, body_at: int) -> memoryview | None:
        """The answer with the ids, or the names, of the client."""
        topics = zip(self.scan.topics, self.routes, strict=True)
        if self.version >= IDS_SINCE:
            called = {route.called: topic.topic_id for topic, route in topics}
        else:
            called = {route.called: compact(topic.name) for topic, route in topics}
        pieces = with_topic_ids(frame, self.sent_version, body_at, len(frame), called)
        if pieces is None:
            return None
        if self.stitched:
            self._show_offsets(frame, body_at)
        told = bytearray().join((frame[:body_at], *pieces))
        INT32.pack_into(told, 0, len(told) - SIZE_BYTES)
        return memoryview(told)

    def _show_offsets(self, frame: memoryview, body_at: int) -> None:
        """Gives a clean answer the offsets of clients."""
        shifts = {route.called: route.shifts for route in self.routes if route.shifts}
        produce_response.shift_offsets(frame, self.sent_version, body_at, len(frame), shifts)

    def _note_ends(self, frame: memoryview, body_at: int) -> None:
        """Notes how far a clean answer acknowledges the topics under standby."""
        found = produce_response.base_offsets(frame, self.sent_version, body_at, len(frame))
        for topic, route in zip(self.scan.topics, self.routes, strict=True):
            log, shifts = route.acknowledged, route.shifts
            if log is None:
                continue
            for part in topic.partitions:
                number = part.partition
                offset = found.get((route.called, number), -1)
                if offset >= 0:
                    log.note(number, offset + part.records - (shifts[number] if shifts else 0))

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return None  # longer than a plain confirmation: the plan has to read the answer

    def failed(self, outcome: Unreachable) -> None:
        if self.asked_at:
            self.upstream_s = clock.now() - self.asked_at
        if self.seat is not None:
            self.seat.failed()
            self.seat = None
        if self.connection is None:
            self.forwarder.astray(self, outcome)
        else:
            self._goes_no_further(outcome)

    # --- as long as it arrives from its client -------------------------------------------------------------------

    def take(self, piece: memoryview, missing: int) -> None:
        connection, outcome = self.connection, self.outcome
        self.forwarder.came(len(piece), missing)
        if connection is not None and outcome is None:
            connection.pass_on_more(piece)
        if missing:
            return
        self.connection = None
        self.began = self.asked_at = clock.now()  # how long its client took to send it says nothing of the mesh
        if outcome is not None:
            self.forwarder.astray(self, outcome)
        elif connection is not None:
            connection.end_passing_on(get_running_loop().time() + self.timeout_s)

    def cut(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and self.outcome is None:
            connection.sever()
        self.forwarder.ended(self, NoAnswer(), counts=False)

    def stalled(self) -> None:
        """For too long nothing of the request was read, because a broker does not read its bytes. It may be another
        broker, which then misses its own deadlines."""
        if self.connection is not None and self.connection.congested:
            self.connection.give_up("takes no more of a request")

    def _break_off(self) -> None:
        """The hold's patience is at its end."""
        connection = self.connection
        if connection is None or self.outcome is not None:
            return
        connection.sever()
        fact = "the rest of a request did not come in time, and its topic moves"
        self._goes_no_further(Unreachable(connection.cluster, fact, never_sent=True))

    def _goes_no_further(self, outcome: Unreachable) -> None:
        """The broker won't get all of the request: nobody has to wait for its records."""
        self.outcome = outcome
        self.forwarder.settled(self)
