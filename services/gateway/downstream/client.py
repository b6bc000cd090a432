"""One client's connection: requests in, answers out in the order of the requests, bounded at every step.

Theory of operation
1. Each request gets a slot at its arrival. Slots are answered in any order and leave in theirs (`Slots`).
2. A request that goes by its plan starts when `Turns` says so.
3. The gateway does not read requests beyond the bounds (`Reading`). While the client does not read its answers, its
   earlier requests wait too: a Fetch request is small, but its answer is not.
4. If a client disconnects, its waiting requests are dropped, except Produce: the gateway carries a Produce through, as
   a broker does. A client that produces without acks disconnects as soon as it has sent everything.
5. A Produce that one broker gets as a whole is forwarded without a plan (`Forwarder`), a large one while it still
   arrives. So is a Fetch (`FetchForwarder`). A large answer leaves for the client while it still arrives
   (`PassingAnswer`).
6. A client that has a quota is charged where its requests come and where its answers leave (`Toll`).
"""

import asyncio
import time
import weakref
from collections.abc import Sequence

import structlog

from services.gateway import clock, metrics
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.fetch_forwarding import FetchForwarder
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.forwarding import Forwarder
from services.gateway.downstream.gate import Gate, gate_for
from services.gateway.downstream.in_flight import InFlight
from services.gateway.downstream.listening import AskedNode
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.passing import Passed
from services.gateway.downstream.reading import Reading
from services.gateway.downstream.siblings import Introduction
from services.gateway.downstream.slots import AnySlot, Slot, Slots, bytes_out, count_request
from services.gateway.downstream.tables import Follower
from services.gateway.downstream.toll import Toll
from services.gateway.downstream.turns import Turns
from services.gateway.frame_stream import FrameStream, Passage
from services.gateway.quotas.accounts import Quotas
from services.gateway.requests.failures import is_failure
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.memory import Session
from services.gateway.requests.mesh.api_versions import unsupported_version
from services.gateway.requests.plan import Answer, MeshView, RawResponse, Request
from services.gateway.requests.table import HANDLERS
from services.gateway.upstream.lanes import Lanes
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import LEAST_FRAME_BYTES, SIZE_BYTES, Pieces, RequestHeader
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.scanner.walks import headers

log = structlog.get_logger(__name__)

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
"""Constants, because to compare with an enumeration's member takes a while."""
COUNTED_KEYS, COUNTED_VERSIONS = range(128), range(32)
"""Refused requests are counted by these alone, well above what Kafka has: no client can make up counters at will."""


class ClientConnection(FrameStream, asyncio.BufferedProtocol):
    """See above."""

    __slots__ = (
        "_asked_node", "_client_in", "_client_out", "_connections", "_fetches", "_follower", "_forwarder", "_gate",
        "_introduction", "_lanes", "_mesh", "_most_requests", "_queue", "_quotas", "_reading", "_slots", "_toll",
        "_tracing", "_turns", "entrance", "session",
    )  # fmt: skip

    def __init__(
        self,
        mesh: Mesh,
        connections: "set[ClientConnection]",
        entrance: Entrance,
        asked_node: AskedNode = lambda _: None,
        introduction: Introduction | None = None,
    ) -> None:
        """`introduction`: who the client is, where another worker has its connection."""
        super().__init__(mesh.limits.max_frame_bytes)
        self.session = Session(listener=entrance.listener)
        self._client_in, self._client_out = self.session.calls.bytes_in, self.session.calls.bytes_out
        self._follower = Follower(mesh.tables, self.session)
        self._mesh, self._tracing = mesh, mesh.tracing
        self._most_requests = mesh.limits.max_requests
        self._connections = connections
        self._asked_node, self._introduction, self.entrance = asked_node, introduction, entrance
        self._gate: Gate | None = None
        """None: the client may send requests, for as long as it likes."""
        self._lanes = Lanes(self.session, on_congestion=self._upstream_congestion, on_unheard=self._unheard)
        self._forwarder = Forwarder(self, mesh, self.session, self._follower, self._lanes)
        self._slots = Slots(self)
        self._queue = self._slots.queue
        self._reading = Reading(self, self._slots, mesh)
        self._quotas = mesh.quotas if introduction is None else Quotas()  # the client is charged where it is connected
        self._toll = Toll(self._quotas, self.session, self._reading)
        self._fetches = FetchForwarder(self, self._slots, mesh, self.session, self._follower, self._lanes)
        self._turns = Turns(self, mesh, self._follower, self._lanes, self._toll)

    @property
    def unanswered(self) -> int:
        """Requests that have come and whose answers have not left."""
        return len(self._queue)

    @property
    def has_revoked_certificate(self) -> bool:
        return self._transport is not None and self.entrance.has_revoked(self._transport)

    # --- requests ------------------------------------------------------------------------------------------------

    def made(self) -> None:
        peer = self._transport.get_extra_info("peername") if self._transport else None
        self.session.address, self.session.peer = (peer[0], f"{peer[0]}:{peer[1]}") if peer else ("", "")
        self.session.calls.begin(time.time())
        self._connections.add(self)
        metrics.client_connections.inc()
        if self._transport is not None:
            self.session.asked_node = self._asked_node(self._transport)
            self._gate = gate_for(self, self.entrance, self._transport, self._mesh.crowds)
        if self._introduction is not None:
            self._introduction.apply(self.session)
        if self.is_open:  # the gate may have ended it
            self._toll.connected(self.session.address)

    def admitted(self, *, for_good: bool) -> None:
        self.bound_frames(LEAST_FRAME_BYTES, self._mesh.limits.max_frame_bytes)
        if for_good and self._gate is not None:
            self._gate = None

    def goes_on_at(self, entrance: Entrance) -> None:
        """The listener has another policy, by which the client could have come in just so."""
        self.entrance, self.session.listener = entrance, entrance.listener
        if self._gate is not None:
            self._gate.follow(entrance)

    def queued(self, header: RequestHeader) -> Slot:
        slot = Slot(header, None, None, 0, began=clock.now())
        self._queue.append(slot)
        return slot

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        if self._gate is not None and self._slots.draining is None and self._gate.takes(frame):
            return
        _bytes_in.total += len(frame)
        self._client_in.total += len(frame)
        if self._slots.draining is not None:
            return
        header = headers.parse_request_header(frame, SIZE_BYTES, len(frame))
        if header.client_id is not None:
            self.session.client_id = header.client_id
        now = clock.now()
        if not self._quotas.counts:
            self._begin(header, frame, owned, now)
            return
        toll = self._toll
        toll.came(header, frame, now)
        if toll.worked is None:
            self._begin(header, frame, owned, now)
            return
        self._begin(header, frame, owned, now)
        toll.work(now, clock.now())

    def _begin(self, header: RequestHeader, frame: memoryview, owned: bool, now: float) -> None:
        """The request starts, or waits for its turn."""
        if header.api_key == _PRODUCE:
            if self._is_forwarded(header, frame, now):
                return
        elif header.api_key == _FETCH and self._is_fetch_forwarded(header, frame, now):
            return
        handler = HANDLERS.get(header.api_key)
        served = self._mesh.clusters.served.get(header.api_key)
        # what was served when the client asked may be no more, since a cluster joined: it has to ask again
        if handler is None or served is None or header.api_version not in served:
            self._refuse(header, served)
            return
        size = len(frame)
        request = Request(header, frame if owned else memoryview(bytearray(frame)))
        slot = Slot(header, handler, request, size)
        self._queue.append(slot)
        self._mesh.budget.add(size)
        self._turns.take(slot, handler.order)
        self._reading.update()

    def _is_forwarded(self, header: RequestHeader, frame: memoryview, now: float) -> bool:
        """Whether this Produce needs no plan, and is on its way."""
        if not self._turns.is_free_for_produce():
            return False
        produce = self._forwarder.forward(header, frame, now)
        if produce is None:
            return False
        self._queue.append(produce)
        if len(self._queue) >= self._most_requests:
            self._reading.update()
        return True

    def _is_fetch_forwarded(self, header: RequestHeader, frame: memoryview, now: float) -> bool:
        """The same for a Fetch."""
        if not self._turns.is_free_for_fetch():
            return False
        fetch = self._fetches.place(header, frame, now)
        if fetch is None:
            return False
        self._turns.running = fetch
        self._queue.append(fetch)
        self._fetches.ask(fetch)
        if len(self._queue) >= self._most_requests:
            self._reading.update()
        return True

    def frame_begun(self, beginning: memoryview, missing: int) -> Passage | None:
        shut = self._gate is not None and self._gate.is_shut
        if shut or self._slots.draining is not None or not self._turns.is_free_for_produce():
            return None
        arriving = self._forwarder.begun_in_part(beginning, missing, clock.now())
        if arriving is None:
            return None
        _bytes_in.total += len(beginning)
        self._client_in.total += len(beginning)
        self._queue.append(arriving)
        self._reading.arrival_began(arriving, missing)
        if self._quotas.counts:
            self._toll.comes(arriving.client_id, len(beginning) + missing)
        return arriving

    def arrived(self, size: int, missing: int) -> None:
        _bytes_in.total += size
        self._client_in.total += size
        if not missing:
            self._reading.arrival_ended()

    def _refuse(self, header: RequestHeader, served: VersionRange | None) -> None:
        """An API or version that we do not serve."""
        api = api_name(header.api_key) if header.api_key in COUNTED_KEYS else "unknown"
        version = str(header.api_version) if header.api_version in COUNTED_VERSIONS else "unknown"
        metrics.refused_requests.labels(api, version).inc()
        if header.api_key == ApiKey.API_VERSIONS:
            self.slot_answered(self.queued(header), unsupported_version(self.view(header)))
            return
        log.warning(
            "closing a connection: request not served",
            api=api_name(header.api_key),
            api_key=header.api_key,
            version=header.api_version,
            served=str(served or "none"),
            **self.who(),
        )
        self._drain_and_close("request not served")

    def view(self, header: RequestHeader) -> MeshView:
        return self._mesh.view(self.session, self.entrance.of.advertised, self._follower.view(header.client_id))

    # --- answers -------------------------------------------------------------------------------------------------

    def slot_answered(self, slot: Slot, answer: Answer) -> None:
        if slot.produces:
            self._mesh.produce_ended(slot)
        elif slot.commits:
            self._mesh.commit_ended(slot)
        self._mesh.budget.add(-slot.held_bytes)
        self.has_answer(slot, slot.ended(answer))

    def answered(self, slot: InFlight | FetchInFlight, pieces: Pieces) -> None:
        slots, frame = self._queue, pieces[0]
        if self._fd == -1 or slots[0] is not slot or self._mesh.tables.canary is not None:
            self.has_answer(slot, RawResponse(memoryview(bytearray().join(pieces)), 0, slot.version))
            return
        turns = self._turns
        turns.ended(slot)
        answers = slot.answers
        answers.total += 1
        answers.of_all.total += 1
        headers.patch_correlation_id(frame, SIZE_BYTES, slot.clients_id)
        slots.popleft()
        size = 0
        for piece in pieces:
            size += len(piece)
        bytes_out.total += size
        self._client_out.total += size
        toll = self._toll
        if toll.is_due and self._quotas.counts:
            self.send(*toll.leaves(_FETCH if isinstance(slot, FetchInFlight) else _PRODUCE, slot.version, pieces, size))
        else:
            self.send(*pieces)
        answers.times.took(clock.now() - slot.began, slot.upstream_s)
        if self._tracing is not None:
            self._tracing.forwarded(slot, answers.times)
        if (slots and slots[0].done) or self._slots.draining is not None:
            self._slots.flush()
            if self._fd == -1:
                return
        turns.pump()
        if self._reading.paused_for is not None:
            self._reading.update()

    def has_answer(self, slot: AnySlot, answer: Answer | Passed) -> None:
        """The answer leaves when all answers before it have left."""
        count_request(self.session, slot, answer, self._tracing, is_open=self.is_open)
        canary = self._mesh.tables.canary
        if canary is not None:
            counts = canary.tried if self._follower.tries else canary.others
            counts.count(not isinstance(answer, Passed) and is_failure(answer))
        self._turns.ended(slot)
        if self.is_open:
            self._slots.fill(slot, answer)
            self._slots.flush()
        if self.is_open:
            self._turns.pump()
            self._reading.update()
        elif slot in self._queue:  # a Produce, which is carried through without its client
            self._queue.remove(slot)
            self._turns.pump()
            self._close_lanes_when_done()

    def charged(self, api_key: int, version: int, pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
        """See `Slots`."""
        return self._toll.leaves(api_key, version, pieces, size) if self._quotas.counts else pieces

    # --- back-pressure -------------------------------------------------------------------------------------------

    def gathering(self, delta: int) -> None:
        self._reading.gathering(delta)

    def congestion(self, congested: bool) -> None:
        if self._slots.passing is not None:
            self._slots.passing.hold_back(congested)
        if not congested:
            self._turns.pump()
        self._reading.update()

    def _upstream_congestion(self, congested: bool) -> None:
        self._reading.upstream_congested = congested
        self._reading.update()

    # --- the end -------------------------------------------------------------------------------------------------

    def _drain_and_close(self, reason: str) -> None:
        """Answer what came before, then close."""
        self._slots.draining = reason
        if not self._queue:
            self.close(reason)

    def _unheard(self) -> None:
        """A broker did not take what it must not answer. The client hears of it as it would from that broker."""
        self.drain("a broker ended the connection on which records without acks were sent")

    def drain(self, reason: str) -> None:
        """No new requests; close as soon as all answers have left."""
        if self._slots.draining is None:
            self._drain_and_close(reason)

    def bad_frame(self, error: WireError) -> None:
        metrics.malformed_frames.inc()
        log.warning("closing a connection: malformed frame", fault=str(error), **self.who())
        self.close(str(error))

    def lost(self, reason: str) -> None:
        self._toll.close()
        self._reading.end()
        self._connections.discard(self)
        metrics.client_connections.dec()
        self._turns.end()
        if self._gate is not None:
            self._gate.end()
        self._mesh.left(self.session)
        self._mesh.budget.add(-self._slots.abandon())
        self._close_lanes_when_done()

    def _close_lanes_when_done(self) -> None:
        """After the client has gone: Produce goes on in its order until none is left."""
        if not self._queue:
            self._lanes.close("the client is gone")
            self._gate, loose = None, weakref.proxy(self)  # no cycle is left, so no collector has to free it
            for part in (self._slots, self._reading, self._forwarder, self._fetches, self._turns, self._turns.sharing):
                part.client = loose

    def who(self) -> dict[str, str | None]:
        session = self.session
        return {
            "client": session.peer,
            "client_id": session.client_id,
            "software": f"{session.software_name} {session.software_version}".strip(),
        }


_bytes_in = metrics.client_bytes.labels("in")
