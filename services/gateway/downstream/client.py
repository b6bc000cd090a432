"""One client's connection: requests in, answers out in the order of the requests, bounded at every step.

Theory of operation
1. Each request gets a slot at its arrival. Slots are answered in any order and leave in theirs.
2. When a request may start is its handler's `Order`: Produce as soon as the Produce before it has sent its calls, the
   others one after the other, as on a broker. While a topic moves, Produce of that topic waits (`Hold`).
3. Reading stops while too many requests or bytes are unanswered, while the client does not take its answers, or while
   a broker does not take what we send on the client's behalf. It goes on when none of that holds any more. Requests
   that came before wait too while the client does not take its answers: a Fetch is small, what it brings is not.
4. A client that goes away takes its waiting requests along, all but Produce: that is carried through as a broker does
   it. Without acks a client closes as soon as all is sent.
5. A large Produce that may go straight on does so while it comes (`Onward`). It holds no memory, so nothing but the
   broker and the client's own answers make it wait. Large answers may leave while they come, too (`PassingAnswer`).
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import structlog

from services.gateway import metrics
from services.gateway.counting import Count
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.hold import Hold, Started
from services.gateway.downstream.listening import AskedNode
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.onward import Onward
from services.gateway.downstream.passing import Passed, Passing, PassingAnswer, Source
from services.gateway.downstream.server_tls import subject_of
from services.gateway.downstream.straight import StraightProduce, StraightWay
from services.gateway.downstream.straight_fetch import FetchWay, StraightFetch
from services.gateway.downstream.tables import Follower
from services.gateway.frame_stream import FrameStream, Passage
from services.gateway.requests.failures import is_failure
from services.gateway.requests.handler import Handler, Order
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.memory import Session
from services.gateway.requests.mesh.api_versions import unsupported_version
from services.gateway.requests.nodes import Advertised
from services.gateway.requests.plan import Answer, Body, Close, MeshView, NoAnswer, RawResponse, Request, Versioned
from services.gateway.requests.records.fetch_road import FetchRoad
from services.gateway.requests.table import HANDLERS
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import (
    SIZE_BYTES,
    RequestHeader,
    encode_response,
    parse_request_header,
    response_prefix,
)
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner import patch_correlation_id

log = structlog.get_logger(__name__)

STALLED_S = 60.0
"""A large request that has begun to come must go on within this time: it holds memory that others wait for, or a
connection to a broker. So must the broker to which it goes on."""
COUNTED_KEYS, COUNTED_VERSIONS = range(128), range(32)
"""Refused requests are counted by these alone, well above what Kafka has: no client can make up counters at will."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A request between its arrival and its answer."""

    header: RequestHeader
    handler: Handler | None
    request: Request | None
    held_bytes: int
    exchange: Exchange | None = None
    done: bool = False
    answer: list[Buffer] | None = None
    close: str | None = None

    @property
    def produces(self) -> bool:
        return self.handler is not None and self.handler.order is Order.PIPELINED


class ClientConnection(FrameStream):
    """See above."""

    def __init__(
        self,
        mesh: Mesh,
        connections: "set[ClientConnection]",
        advertised: Advertised,
        asked_node: AskedNode = lambda _: None,
    ) -> None:
        super().__init__(mesh.limits.max_frame_bytes)
        self.session = Session()
        self._roads = self.session.roads
        self._follower = Follower(mesh.tables, self.session)
        self._mesh = mesh
        self._connections = connections
        self._advertised = advertised
        self._asked_node = asked_node
        self._lanes = Lanes(on_congestion=self._upstream_congestion, on_unheard=self._unheard)
        self._straight = StraightWay(self, mesh, self.session, self._follower, self._lanes)
        self._now = asyncio.get_running_loop().time
        self._fetches = FetchWay(self, mesh, self.session, self._follower, self._lanes)
        self._slots: deque[_Slot | StraightProduce | StraightFetch] = deque()
        self._serial: deque[_Slot] = deque()
        """ONE_BY_ONE requests that have not started."""
        self._serial_running: _Slot | StraightFetch | None = None
        self._pipelined: deque[_Slot] = deque()
        """PIPELINED requests that have not started."""
        self._pipelined_asking: _Slot | None = None
        self._held = False
        self._pumping = False
        self._upstream_congested = False
        self._pause_reason: str | None = None
        self._draining: str | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._onward: Onward | None = None
        """The request that goes on while it comes."""
        self._passing: PassingAnswer | None = None
        """The answer that does."""

    @property
    def unanswered(self) -> int:
        """Requests that have come and whose answers have not left."""
        return len(self._slots)

    # --- requests ------------------------------------------------------------------------------------------------

    def made(self) -> None:
        peer = self._transport.get_extra_info("peername") if self._transport else None
        self.session.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self.session.address = peer[0] if peer else ""
        if self._transport is not None:
            self.session.asked_node = self._asked_node(self._transport)
            self.session.certificate_subject = subject_of(self._transport)
        self._connections.add(self)
        metrics.client_connections.inc()

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        _bytes_in.total += len(frame)
        if self._draining is not None:
            return
        if self._roads.ends and self._goes_straight(frame):
            return
        if self.session.fetch_road is not None and self._polls_straight(frame, self.session.fetch_road):
            return
        header = parse_request_header(frame, SIZE_BYTES, len(frame))
        if header.client_id is not None:
            self.session.client_id = header.client_id
        handler = HANDLERS.get(header.api_key)
        served = self._mesh.clusters.served.get(header.api_key)
        # what was served when the client asked may be no more, since a cluster joined: it has to ask again
        if handler is None or served is None or header.api_version not in served:
            self._refuse(header, served)
            return
        size = len(frame)
        request = Request(header, frame if owned else memoryview(bytearray(frame)))
        slot = _Slot(header, handler, request, size)
        self._slots.append(slot)
        self._mesh.budget.add(size)
        if handler.order is Order.AT_ONCE:
            self._start(slot)
        elif handler.order is Order.PIPELINED:
            self._pipelined.append(slot)
        else:
            self._serial.append(slot)
        self._pump()
        self._update_reading()

    def _goes_straight(self, frame: memoryview) -> bool:
        """Whether this is a Produce like an earlier one, and on its way."""
        if not self._is_free():
            return False
        produce = self._straight.begun(frame, self._now())
        if produce is None:
            return False
        self._slots.append(produce)
        if len(self._slots) >= self._mesh.limits.max_requests:
            self._update_reading()
        return True

    def _polls_straight(self, frame: memoryview, road: FetchRoad) -> bool:
        """Whether this is a Fetch like the last one, and on its way."""
        if self._serial_running is not None or self._serial or self.congested:
            return False
        fetch = self._fetches.begun(frame, road, self._now())
        if fetch is None:
            return False
        self._serial_running = fetch
        self._slots.append(fetch)
        if len(self._slots) >= self._mesh.limits.max_requests:
            self._update_reading()
        return True

    def _is_free(self) -> bool:
        """Whether no Produce has to wait, which the next one would overtake."""
        return not self._pipelined and self._pipelined_asking is None and self._mesh.hold is None

    def frame_begun(self, beginning: memoryview, missing: int) -> Passage | None:
        if self._draining is not None or not self._roads.ends or not self._is_free():
            return None
        onward = self._straight.begun_in_part(beginning, missing, self._now())
        if onward is None:
            return None
        _bytes_in.total += len(beginning)
        self._slots.append(onward.produce)
        self._onward = onward
        self._watch_for_stall()
        self._update_reading()
        return onward

    def onward_came(self, size: int, missing: int) -> None:
        _bytes_in.total += size
        if not missing:
            self._onward = None
            self._stop_stall_watch()
            if len(self._slots) >= self._mesh.limits.max_requests:
                self._update_reading()

    def _refuse(self, header: RequestHeader, served: VersionRange | None) -> None:
        """An API or version that we do not serve."""
        api = api_name(header.api_key) if header.api_key in COUNTED_KEYS else "unknown"
        version = str(header.api_version) if header.api_version in COUNTED_VERSIONS else "unknown"
        metrics.refused_requests.labels(api, version).inc()
        if header.api_key == ApiKey.API_VERSIONS:
            slot = _Slot(header, None, None, 0)
            self._slots.append(slot)
            self._answered(slot, unsupported_version(self.view(header)))
            return
        log.warning(
            "closing a connection: request not served",
            api=api_name(header.api_key),
            api_key=header.api_key,
            version=header.api_version,
            served=str(served or "none"),
            **self._who(),
        )
        self._drain_and_close("request not served")

    def _pump(self) -> None:
        """Start what may start. Not recursive, however deep the starts trigger one another."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._start_next():
                pass
        finally:
            self._pumping = False

    def _start_next(self) -> bool:
        if self._serial and self._serial_running is None and not self.congested:
            slot = self._serial_running = self._serial.popleft()
            self._start(slot)
            return True
        if self._pipelined and self._pipelined_asking is None and not self._held and not self._lanes.waits_among_others:
            slot = self._pipelined[0]
            hold = self._mesh.hold
            if hold is not None and slot.request is not None and self._is_held(slot.request, hold):
                self._held = True
                hold.wait(self._released)
                return False
            self._pipelined_asking = self._pipelined.popleft()
            self._start(slot)
            return True
        return False

    def _is_held(self, request: Request, hold: Hold) -> bool:
        return hold.concerns(request, self._follower.identity(request.header.client_id))

    def _released(self) -> None:
        self._held = False
        self._pump()

    def view(self, header: RequestHeader) -> MeshView:
        return self._mesh.view(self.session, self._advertised, self._follower.view(header.client_id))

    def _start(self, slot: _Slot) -> None:
        assert slot.handler is not None and slot.request is not None
        followed = self._follower.view(slot.header.client_id)
        plan = slot.handler.plan(slot.request, self._mesh.view(self.session, self._advertised, followed))
        slot.exchange = exchange = Exchange(
            plan,
            self._mesh.clusters,
            self._mesh.conversions,
            self._lanes,
            slot.header.client_id,
            lambda _, answer: self._answered(slot, answer),
            followed.names,
        )
        if slot.produces:
            self._mesh.producing[slot] = Started(slot.request, self._follower.client)
            exchange.on_asked = self._asked
        exchange.start()

    def _asked(self) -> None:
        self._pipelined_asking = None
        self._pump()

    # --- answers -------------------------------------------------------------------------------------------------

    def _answered(self, slot: _Slot, answer: Answer) -> None:
        if slot.produces:
            self._mesh.produce_ended(slot)
        self._mesh.budget.add(-slot.held_bytes)
        slot.held_bytes = 0
        slot.request = None
        self._count(slot.header.api_key, slot.header.api_version, answer)
        if self.is_open:
            self._fill(slot, answer)
            self._flush_slots()
        if slot is self._serial_running:
            self._serial_running = None
        if self.is_open:
            self._pump()
            self._update_reading()
        elif slot in self._slots:
            self._slots.remove(slot)
            self._pump()
            self._close_lanes_when_done()

    def straight_stored(self, produce: StraightProduce, frame: memoryview) -> None:
        slots, road = self._slots, produce.road
        if self._fd == -1 or slots[0] is not produce or self._mesh.tables.trial is not None:
            self.straight_ended(produce, RawResponse(frame, 0, road.version))
            return
        counter = road.answered
        if counter is None:
            counter = road.answered = metrics.requests.labels(api_name(ApiKey.PRODUCE), str(road.version), "answered")
        counter.total += 1
        INT32.pack_into(frame, SIZE_BYTES, produce.clients_id)
        slots.popleft()
        _bytes_out.total += len(frame)
        self.send(frame)
        if (slots and slots[0].done) or self._draining is not None:
            self._flush_slots()
            if self._fd == -1:
                return
        if self._pipelined or self._serial:
            self._pump()
        if self._pause_reason is not None:
            self._update_reading()

    def straight_ended(self, produce: StraightProduce, answer: Answer) -> None:
        self._count(ApiKey.PRODUCE, produce.road.version, answer)
        if self.is_open:
            self._fill(produce, answer)
            self._flush_slots()
        if self.is_open:
            if self._pipelined or self._serial:
                self._pump()
            if self._pause_reason is not None:
                self._update_reading()
        elif produce in self._slots:
            self._slots.remove(produce)
            self._close_lanes_when_done()

    def straight_fetch_ended(self, fetch: StraightFetch, answer: Answer | Passed) -> None:
        self._count(ApiKey.FETCH, fetch.road.version, answer)
        self._serial_running = None
        if self.is_open:
            self._fill(fetch, answer)
            self._flush_slots()
        if self.is_open:
            if self._serial:
                self._pump()
            if self._pause_reason is not None:
                self._update_reading()

    def answer_begun(self, slot: object, pieces: Sequence[Buffer], source: Source) -> Passage | None:
        """A large answer has begun to come, and these are the first bytes for the client, its size prefix and its
        correlation id before all. None, if it has to be gathered: others come first, or nobody is there.
        """
        if not self.is_next(slot):
            return None
        _bytes_out.total += sum(map(len, pieces))
        self.send(*pieces)
        passing = self._passing = PassingAnswer(self, cast(Passing, slot), source)
        passing.hold_back(self.congested)
        return passing

    def is_next(self, slot: object) -> bool:
        """Whether its answer may leave now."""
        return self.is_open and bool(self._slots) and self._slots[0] is slot

    def passing_ended(self) -> None:
        self._passing = None

    def _fill(self, slot: "_Slot | StraightProduce | StraightFetch", answer: Answer | Passed) -> None:
        slot.done = True
        header = slot.header
        try:
            match answer:
                case NoAnswer() | Passed():
                    pass
                case Close(reason):
                    slot.close = reason
                case RawResponse(frame):
                    patch_correlation_id(frame, SIZE_BYTES, header.correlation_id)
                    slot.answer = [frame if self._slots[0] is slot else bytes(frame)]
                case Body(pieces):
                    size = sum(map(len, pieces))
                    prefix = response_prefix(header.api_key, header.api_version, header.correlation_id, size)
                    # Pieces may lie in a receive buffer: what can't leave at once is copied.
                    slot.answer = [prefix, *pieces] if self._slots[0] is slot else [prefix, b"".join(pieces)]
                case Versioned(message, version):
                    slot.answer = [encode_response(message, version, header.correlation_id)]
                case _:
                    slot.answer = [encode_response(answer, header.api_version, header.correlation_id)]
        except Exception:  # as for plans: one answer must not take a connection of others along
            log.exception("an answer could not be encoded", api=api_name(header.api_key), **self._who())
            slot.close = "internal error, see the log line before"

    def _flush_slots(self) -> None:
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            if slot.close is not None:
                log.warning("closing a connection", reason=slot.close, api=api_name(slot.header.api_key), **self._who())
                self.close(slot.close)
                return
            if slot.answer is not None:
                _bytes_out.total += sum(map(len, slot.answer))
                self.send(*slot.answer)
        if self._draining is not None and not self._slots:
            self.close(self._draining)

    def _count(self, api_key: int, version: int, answer: Answer | Passed) -> None:
        if not self.is_open:
            outcome = "abandoned"
        elif isinstance(answer, NoAnswer):
            outcome = "no_answer"
        elif isinstance(answer, Close):
            outcome = "closed"
        else:
            outcome = "answered"
        key = (api_key, version, outcome)
        counter = _request_counters.get(key)
        if counter is None:
            counter = metrics.requests.labels(api_name(api_key), str(version), outcome)
            _request_counters[key] = counter
        counter.total += 1
        trial = self._mesh.tables.trial
        if trial is not None:
            (trial.tried if self._follower.tries else trial.others).count(
                not isinstance(answer, Passed) and is_failure(answer)
            )

    # --- back-pressure -------------------------------------------------------------------------------------------

    def gathering(self, delta: int) -> None:
        self._mesh.budget.add(delta)
        if self._stall is None:
            self._watch_for_stall()
        elif delta < 0:
            self._stop_stall_watch()
        self._update_reading()

    def _watch_for_stall(self) -> None:
        self._stall = asyncio.get_running_loop().call_later(STALLED_S, self._check_for_stall, self.still_missing)

    def _stop_stall_watch(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_for_stall(self, missing: int) -> None:
        if missing == self.still_missing:
            if self._pause_reason is None:
                log.warning("closing a connection: a request that does not go on", missing=missing, **self._who())
                self.abort("a request that does not go on")
                return
            if self._pause_reason == "upstream" and self._onward is not None:
                self._onward.stalled()
        self._watch_for_stall()

    def congestion(self, congested: bool) -> None:
        if self._passing is not None:
            self._passing.hold_back(congested)
        if not congested:
            self._pump()
        self._update_reading()

    def _upstream_congestion(self, congested: bool) -> None:
        self._upstream_congested = congested
        if self.is_open:
            self._update_reading()

    def _why_pause(self) -> str | None:
        if len(self._slots) >= self._mesh.limits.max_requests and self._onward is None:
            return "requests"
        if self.congested:
            return "answers"
        if self._upstream_congested:
            return "upstream"
        if self._onward is not None:
            return None  # half a request holds up a broker, and no memory
        # Somebody must be able to go on: a connection that holds nothing may always read one frame.
        if self._mesh.budget.exceeded and (self._slots or self._gathered is None):
            return "bytes"
        return None

    def _update_reading(self) -> None:
        if not self.is_open:
            return
        reason = self._why_pause()
        if reason == "bytes":
            self._mesh.budget.wait(self, self._update_reading)
        if (reason is None) == (self._pause_reason is None):
            self._pause_reason = reason
            return
        self._pause_reason = reason
        if reason is not None:
            metrics.paused_connections.labels(reason).inc()
            self.pause_reading()
        else:
            self.resume_reading()

    # --- the end -------------------------------------------------------------------------------------------------

    def _drain_and_close(self, reason: str) -> None:
        """Answer what came before, then close."""
        self._draining = reason
        if not self._slots:
            self.close(reason)

    def _unheard(self) -> None:
        """A broker did not take what it must not answer. The client hears of it as it would from that broker."""
        self.drain("a broker ended the connection on which records without acks were sent")

    def drain(self, reason: str) -> None:
        """No new requests; close as soon as all answers have left."""
        if self._draining is None:
            self._drain_and_close(reason)

    def bad_frame(self, error: WireError) -> None:
        metrics.malformed_frames.inc()
        log.warning("closing a connection: malformed frame", fault=str(error), **self._who())
        self.close(str(error))

    def lost(self, reason: str) -> None:
        self._onward = None
        self._passing = None
        self._stop_stall_watch()
        self._connections.discard(self)
        metrics.client_connections.dec()
        self._mesh.budget.leave(self)
        self._serial.clear()
        for slot in self._slots:
            if isinstance(slot, StraightFetch):
                slot.abandon()
            elif isinstance(slot, _Slot) and not slot.produces:
                if slot.exchange is not None and not slot.exchange.ended:
                    slot.exchange.abandon()
                self._mesh.budget.add(-slot.held_bytes)
                slot.held_bytes = 0
        self._slots = deque(slot for slot in self._slots if slot.produces and not slot.done)
        self._close_lanes_when_done()

    def _close_lanes_when_done(self) -> None:
        """After the client has gone: Produce goes on in its order until none is left."""
        if not self._slots:
            self._lanes.close("the client is gone")

    def _who(self) -> dict[str, str | None]:
        session = self.session
        return {
            "client": session.peer,
            "client_id": session.client_id,
            "software": f"{session.software_name} {session.software_version}".strip(),
        }


_bytes_in = metrics.client_bytes.labels("in")
_bytes_out = metrics.client_bytes.labels("out")
_request_counters: dict[tuple[int, int, str], Count] = {}
