"""One connection to one broker: requests out in order, responses matched first in, first out.

Theory of operation
1. A broker answers the requests of a connection in their order, so a response belongs to the oldest pending request.
   If its correlation id does not agree, the connection is broken and closed.
2. Requests may be submitted before the connection is up: they wait, in order, and leave in order.
3. Each request has a deadline. If a deadline passes, the connection is closed (`Deadlines`).
4. When the connection ends, all pending requests get `Unreachable`. Nothing is ever sent twice.
5. A large request of a client may leave while it still comes (`begin_passing_on`). Until its end, other
   requests wait, and the large request has no deadline. If its client disconnects before the end, the connection takes
   no more requests, and ends when all earlier requests are answered. A broker drops a request that it got in part.
   A large answer may leave while it still comes, too (`Awaiting.begun`). Other large answers are gathered
   (`answer_memory`).
6. The connection is up when TLS is up and, if the cluster asks for a login, the broker has accepted it (`admission`).
"""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from services.gateway import metrics
from services.gateway.frame_stream import FrameStream, Passage
from services.gateway.requests.plan import Call, Sent, Unreachable
from services.gateway.upstream.admission import Admission, ConnectionEndedError
from services.gateway.upstream.answer_memory import AnswerMemory, AnswerRoom, SharedBytes
from services.gateway.upstream.awaiting import Awaiting, PendingCall, Settle, Unsent, pieces_of
from services.gateway.upstream.deadlines import Deadlines
from services.gateway.upstream.keyring import Keyring, KeyringError
from services.gateway.upstream.lookup import Lookup
from services.gateway.upstream.sasl import LoginRefusedError
from services.gateway.wire.apis import ApiKey, api_name
from services.gateway.wire.frames import (
    REQUEST_ID_AT,
    REQUEST_START_BYTES,
    SIZE_BYTES,
    encode_request,
    request_start,
)
from services.gateway.wire.primitives import Buffer, WireError
from services.gateway.wire.scanner.walks import headers
from services.gateway.wire.schema import Struct, api_key_of

MAX_CORRELATION_ID: Final = 0x7FFF_FFFF
OUR_CLIENT_ID: Final = "kafka-mesh-gateway"
SEVERED: Final = "a request was broken off in the middle"


class BrokerConnection(FrameStream, asyncio.BufferedProtocol):
    """See above."""

    __slots__ = (
        "_admission", "_deadlines", "_loop", "_max_in_flight", "_memory", "_midway", "_next_id", "_pending", "_ready",
        "_received_bytes", "_retired", "_sent_bytes", "_severed", "_through", "_waiting", "address", "cluster",
        "ended", "fault", "heard", "on_broken", "on_congestion", "superseded", "unheard",
    )  # fmt: skip

    def __init__(
        self,
        cluster: str,
        address: str,
        max_frame_bytes: int,
        max_in_flight: int,
        answer_room: AnswerRoom,
        keyring: Keyring | None = None,
    ) -> None:
        """Without a keyring the connection is plain text."""
        super().__init__(max_frame_bytes)
        self.cluster = cluster
        self.address = address
        self.ended: str | None = None
        """The reason why the connection has ended; None while it lives or is being made."""
        self.fault: str | None = None
        """The same reason, unless the gateway itself closed the connection."""
        self.unheard = False
        """Whether requests without an answer were sent: nobody can tell when these have arrived."""
        self.superseded = False
        """Whether its cluster has got a new description, with new connections: later requests go there."""
        self.on_congestion: Callable[[bool], None] | None = None
        self.on_broken: Callable[[], None] | None = None
        """Called when the connection ends and the gateway did not close it."""
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._admission = Admission(self, keyring)
        self._pending: deque[Awaiting] = deque()
        """Requests that were sent and are not answered."""
        self._waiting: deque[Unsent] = deque()
        self._midway: Awaiting | None = None
        """The waiter whose request has left in part; the last one of those pending."""
        self._through: asyncio.Future[None] | None = None
        """Done when no request is midway any more."""
        self._memory = AnswerMemory(self, answer_room)
        self._deadlines = Deadlines(self, self._memory)
        self._severed = False
        """Whether the rest of the request that is midway will never come."""
        self._ready = False
        self.heard = False
        """Whether the broker has answered anything."""
        self._retired: str | None = None
        self._next_id = 0
        self._sent_bytes = metrics.upstream_bytes.labels(cluster, "out")
        self._received_bytes = metrics.upstream_bytes.labels(cluster, "in")

    async def open(self, host: str, port: int, timeout_s: float, lookup: Lookup) -> str | None:
        """Connect; on failure all requests submitted so far are settled. Never raises for a fault of the network.

        Returns why the broker could not be connected to. A connection that nobody needs any more by then is no fault.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._admission.enter(host, lambda tls: lookup.connect(lambda: self, host, port, tls))
        except TimeoutError:
            self.broke_off(f"no connection to {self.address} within {timeout_s:g} s", "connect")
        except (KeyringError, LoginRefusedError, ssl.SSLError) as error:
            self._admission.refused(error)
        except ConnectionEndedError:
            pass  # the code that ended it has logged the reason
        except OSError as error:
            self.broke_off(f"no connection to {self.address}: {error.strerror or error}", "connect")
        return self.fault

    @property
    def in_flight(self) -> int:
        """Requests that are not answered."""
        return len(self._pending) + len(self._waiting)

    @property
    def sent_requests(self) -> int:
        """Another number after each request."""
        return int(self._next_id)

    def submit(self, call: Call, api_key: int, client_id: str | None, settle: Settle) -> None:
        """Send a call's request. `settle` is called exactly once, maybe before this returns."""
        if self.ended is not None or self._severed:
            settle(Unreachable(self.cluster, self.ended or SEVERED, never_sent=True), True)
            return
        if self.in_flight >= self._max_in_flight:
            metrics.upstream_errors.labels(self.cluster, "full").inc()
            fact = f"{self.in_flight} requests are unanswered on one connection to {self.address}"
            settle(Unreachable(self.cluster, fact, never_sent=True), True)
            return
        self._next_id = correlation_id = self._next_id % MAX_CORRELATION_ID + 1
        try:
            pieces = pieces_of(call, api_key, correlation_id, client_id)
        except WireError as error:  # the waiter must get an outcome, even for a fault of the gateway
            fact = f"{api_name(api_key)} v{call.version} can't say it: {error}"
            settle(Unreachable(self.cluster, fact, never_sent=True, unsupported=True), True)
            return
        pending = None
        if not call.no_answer:
            deadline = self._loop.time() + call.timeout_s
            pending = PendingCall(correlation_id, api_key, call.version, deadline, settle)
            self._deadlines.watch(deadline)
        self._out(pending, settle if pending is None else None, *pieces)

    def takes_more(self) -> bool:
        """Whether `pass_on` may be called now."""
        return self._ready and self._midway is None and len(self._pending) < self._max_in_flight

    def pass_on(self, frame: bytearray | memoryview, awaiting: Awaiting) -> None:
        """Send a whole request, which lacks only its number.

        It may lie in the receive buffer of a client: the buffer holds it until this read is done (`FrameStream`).
        """
        headers.patch_correlation_id(frame, REQUEST_ID_AT, self._numbered(awaiting))
        self._sent_bytes.total += len(frame)
        self.send(frame)

    def pass_on_rewritten(self, api_key: int, version: int, pieces: Sequence[Buffer], awaiting: Awaiting) -> None:
        """As `pass_on`, in another version, and with these pieces behind the correlation id."""
        size = REQUEST_START_BYTES + sum(map(len, pieces))
        start = request_start(size, api_key, version, self._numbered(awaiting))
        self._sent_bytes.total += SIZE_BYTES + size
        self.send(start, *pieces)

    def begin_passing_on(self, start: bytearray | memoryview, goes_on: memoryview | None, awaiting: Awaiting) -> None:
        """Send the beginning of a client's request, as `pass_on` does, in one piece or two; `pass_on_more` the rest.
        Its deadline is set at the end."""
        awaiting.deadline = math.inf
        headers.patch_correlation_id(start, REQUEST_ID_AT, self._numbered(awaiting))
        beginning = (start,) if goes_on is None else (start, goes_on)
        self._midway = awaiting
        self._sent_bytes.total += sum(map(len, beginning))
        self.send(*beginning)

    def pass_on_more(self, piece: memoryview) -> None:
        self._sent_bytes.total += len(piece)
        self.send(piece)

    def end_passing_on(self, deadline: float) -> None:
        """All of the request that is midway has been sent."""
        awaiting, self._midway = self._midway, None
        if awaiting is not None:
            awaiting.deadline = deadline
            self._deadlines.watch(deadline)
        self._is_through()
        if self._ready and self._waiting:
            self.admitted()

    def sever(self) -> None:
        """The rest of the request that is on its way won't come: it counts as never sent, and nobody waits for it."""
        self._severed = True
        self._pending.pop()
        if not self._pending:
            self.broke_off(SEVERED, None)

    def give_up(self, fact: str) -> None:
        """End the connection: the broker does not read the bytes that it is sent."""
        self.broke_off(f"{self.address}: {fact}", "timeout")

    def _is_through(self) -> None:
        if self._through is not None and not self._through.done():
            self._through.set_result(None)

    def _numbered(self, awaiting: Awaiting) -> int:
        """Number the request: it waits for its answer from here on. Returns its correlation id."""
        self._next_id = awaiting.correlation_id = correlation_id = self._next_id % MAX_CORRELATION_ID + 1
        if awaiting.deadline < self._deadlines.at:
            self._deadlines.watch(awaiting.deadline)
        self._pending.append(awaiting)
        return correlation_id

    def _out(self, pending: Awaiting | None, sent: Settle | None, *pieces: Buffer) -> None:
        if not self._ready or self._midway is not None:
            self._waiting.append(Unsent(pieces, pending, sent))
            return
        if pending is not None:
            self._pending.append(pending)
        self._sent_bytes.total += sum(map(len, pieces))
        self.send(*pieces)
        if sent is not None:
            sent(Sent(), True)

    def hold_back(self, held_back: bool) -> None:
        """Stop reading answers, or start again."""
        self._deadlines.hold_back(held_back)

    def unanswered(self) -> Iterator[Awaiting]:
        """All requests that wait for an answer, sent or not."""
        yield from self._pending
        yield from (item.pending for item in self._waiting if item.pending is not None)

    # --- for the login -------------------------------------------------------------------------------------------

    async def clear(self) -> None:
        if self._midway is not None:
            self._through = self._loop.create_future()
            await self._through

    def say(self, message: Struct, version: int, timeout_s: float, settle: Settle) -> None:
        self._next_id = correlation_id = self._next_id % MAX_CORRELATION_ID + 1
        deadline = self._loop.time() + timeout_s
        self._pending.append(PendingCall(correlation_id, api_key_of(message), version, deadline, settle))
        self._deadlines.watch(deadline)
        frame = encode_request(message, version, correlation_id, OUR_CLIENT_ID)
        self._sent_bytes.total += len(frame)
        self.send(frame)

    def ask_to_wait(self) -> None:
        self._ready = False

    def admitted(self) -> None:
        """Send all requests that have waited."""
        self._ready = True
        waiting, self._waiting = self._waiting, deque()
        self._pending.extend(item.pending for item in waiting if item.pending is not None)
        pieces = [piece for item in waiting for piece in item.pieces]
        if pieces:
            self._sent_bytes.total += sum(map(len, pieces))
            self.send(*pieces)
        for item in waiting:
            if item.sent is not None:
                item.sent(Sent(), True)
        self._maybe_retire()

    # --- what FrameStream tells ----------------------------------------------------------------------------------

    def made(self) -> None:
        metrics.upstream_connections.labels(self.cluster).inc()
        if self.ended is not None:  # given up while it was being made
            self.abort(self.ended)
            return
        if not self._admission.needs_login:
            self.admitted()

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        self.heard = True
        self._received_bytes.total += len(frame)
        correlation_id = headers.int32_at(frame, SIZE_BYTES)
        in_order = self._pending
        if not in_order or in_order[0].correlation_id != correlation_id:
            self.broke_off(f"{self.address} answered request {correlation_id}, which was not the next", "malformed")
            return
        pending = in_order.popleft()
        if pending is self._midway:
            self._pending.append(pending)
            self.broke_off(f"{self.address} answered a request before it had all of it", "malformed")
            return
        try:
            pending.answered(frame, owned)
        except WireError:
            self._pending.appendleft(pending)
            raise
        if self._severed:
            if not self._pending:
                self.broke_off(SEVERED, None)
        elif self._retired is not None:
            self._maybe_retire()

    def frame_begun(self, beginning: memoryview, missing: int) -> Passage | None:
        self.heard = True
        correlation_id = headers.int32_at(beginning, SIZE_BYTES)
        if self._severed or self._retired is not None or not self._pending:
            return None
        pending = self._pending[0]
        if pending.correlation_id != correlation_id:
            return None
        passage = pending.begun(beginning, missing)
        if passage is not None:
            self._pending.popleft()
            self._deadlines.missing_before = 0
            self._received_bytes.total += len(beginning) + missing
        return passage

    def frame_passed(self) -> None:
        self._maybe_retire()

    def memory(self, expected: int, filled: int, before: bytearray | None) -> bytearray:
        if isinstance(before, SharedBytes):  # now there is room
            return SharedBytes(expected, before.share)
        is_fetch = bool(self._pending) and self._pending[0].api_key == ApiKey.FETCH
        return self._memory.of(expected, filled, may_wait=is_fetch)

    def congestion(self, congested: bool) -> None:
        if self.on_congestion is not None:
            self.on_congestion(congested)

    def bad_frame(self, error: WireError) -> None:
        self.broke_off(f"{self.address} sent what is not Kafka: {error}", "malformed")

    def lost(self, reason: str) -> None:
        metrics.upstream_connections.labels(self.cluster).dec()
        told = f"connection to {self.address}: {reason}"
        if not self._admission.lost(told):
            self.broke_off(told, "lost")

    def shut(self, reason: str) -> None:
        """Close the connection: the gateway no longer needs it."""
        self.broke_off(reason, None)

    def retire(self, reason: str) -> None:
        """Nothing more will be submitted: close when all is sent and answered."""
        self._retired = reason
        self._maybe_retire()

    def _maybe_retire(self) -> None:
        if self._retired is None or not self._ready or self.ended is not None:
            return
        if not self._pending and not self.still_missing:
            self._ended_by(self._retired)
            self.close(self._retired)

    def _ended_by(self, reason: str) -> None:
        self.ended = reason
        self._ready = False
        self._memory.end()
        self._is_through()
        self._deadlines.end()
        self._admission.end()
        if self.on_congestion is not None:
            self.on_congestion(False)

    def broke_off(self, reason: str, kind: str | None) -> None:
        """End the connection; without a `kind` the gateway itself closes it."""
        if self.ended is not None:
            return
        self._ended_by(reason)
        if kind is not None:
            self.fault = reason
            if not self.heard:
                self._admission.never_heard()
        self.abort(reason)
        pending, self._pending = self._pending, deque()
        waiting, self._waiting = self._waiting, deque()
        for item, never_sent in chain(
            ((item, item is self._midway) for item in pending),
            ((item.pending, True) for item in waiting if item.pending is not None),
        ):
            if kind is not None:
                metrics.upstream_errors.labels(self.cluster, kind).inc()
            item.failed(Unreachable(self.cluster, reason, never_sent))
        for unsent in waiting:
            if unsent.sent is not None:
                unsent.sent(Unreachable(self.cluster, reason, never_sent=True), True)
        if self.on_broken is not None and kind is not None:
            self.on_broken()
