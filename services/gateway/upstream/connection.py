"""One connection to one broker: requests out in order, responses matched first in, first out.

Theory of operation
1. A broker answers the requests of a connection in their order, so the oldest pending request is the one that a
   response belongs to; its correlation id must agree, or the connection is broken and closed.
2. Requests may be submitted before the connection is up: they wait, in order, and leave in order.
3. Each request has a deadline. When one passes, the connection is closed, for everything behind it would wait too.
4. When the connection ends, all pending requests get `Unreachable`. Nothing is ever sent twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from services.gateway import metrics
from services.gateway.frame_stream import FrameStream
from services.gateway.requests.plan import Body, Call, RawResponse, Sent, Unreachable, Verbatim
from services.gateway.wire.apis import api_name
from services.gateway.wire.frames import (
    CORRELATION_OFFSET,
    SIZE_BYTES,
    encode_request,
    parse_response_header,
    request_prefix,
)
from services.gateway.wire.primitives import INT32, Buffer, WireError
from services.gateway.wire.scanner import patch_correlation_id

Settle = Callable[[RawResponse | Unreachable | Sent, bool], None]
"""Takes the outcome of a call, and whether the buffer behind it is the taker's own."""

MAX_CORRELATION_ID = 0x7FFF_FFFF


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    api_key: int
    version: int
    deadline: float
    settle: Settle


class BrokerConnection(FrameStream):
    """See above."""

    def __init__(self, cluster: str, address: str, max_frame_bytes: int, max_in_flight: int) -> None:
        super().__init__(max_frame_bytes)
        self.cluster = cluster
        self.address = address
        self.ended: str | None = None
        """Why the connection is no more; None while it lives or is being made."""
        self.on_congestion: Callable[[bool], None] | None = None
        self.on_broken: Callable[[], None] | None = None
        """Told when the connection ends otherwise than by our own will."""
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_Pending] = deque()
        self._early: list[Buffer] = []
        """Requests that were submitted before the connection was up."""
        self._ready = False
        self._retired: str | None = None
        self._next_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._sent_bytes = metrics.upstream_bytes.labels(cluster, "out")
        self._received_bytes = metrics.upstream_bytes.labels(cluster, "in")

    async def open(self, host: str, port: int, timeout_s: float) -> str | None:
        """Connect; on failure everything submitted so far is settled. Never raises for what the network does.

        Returns why the broker could not be connected to. A connection that nobody needs any more by then is no fault.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._loop.create_connection(lambda: self, host, port)
        except TimeoutError:
            reason = f"no connection to {self.address} within {timeout_s:g} s"
        except OSError as error:
            reason = f"no connection to {self.address}: {error.strerror or error}"
        else:
            return None
        self._fail(reason, "connect", never_sent=True)
        return reason

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def submit(self, call: Call, api_key: int, client_id: str | None, settle: Settle) -> None:
        """Send a call's request. `settle` is called exactly once, maybe before this returns."""
        if self.ended is not None:
            settle(Unreachable(self.cluster, self.ended, never_sent=True), True)
            return
        if len(self._pending) >= self._max_in_flight:
            self._count("full")
            fact = f"{len(self._pending)} requests are unanswered on one connection to {self.address}"
            settle(Unreachable(self.cluster, fact, never_sent=True), True)
            return
        self._next_id = correlation_id = self._next_id % MAX_CORRELATION_ID + 1
        if not call.no_answer:
            deadline = self._loop.time() + call.timeout_s
            self._pending.append(_Pending(correlation_id, api_key, call.version, deadline, settle))
            self._watch(deadline)
        message = call.message
        if isinstance(message, Verbatim):
            patch_correlation_id(message.frame, SIZE_BYTES + CORRELATION_OFFSET, correlation_id)
            self._out(message.frame)
        elif isinstance(message, Body):
            size = sum(map(len, message.pieces))
            self._out(request_prefix(api_key, call.version, correlation_id, client_id, size), *message.pieces)
        else:
            self._out(encode_request(message, call.version, correlation_id, client_id))
        if call.no_answer:
            settle(Sent(), True)

    def _out(self, *pieces: Buffer) -> None:
        self._sent_bytes.inc(sum(map(len, pieces)))
        if self._ready:
            self.send(*pieces)
        else:
            self._early += pieces

    # --- deadlines -----------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self._pending:
            return
        first = min(self._pending, key=lambda pending: pending.deadline)
        if first.deadline <= self._loop.time():
            self._fail(f"{api_name(first.api_key)}: no answer from {self.address} in time", "timeout", never_sent=False)
        else:
            self._watch(first.deadline)

    # --- what FrameStream tells ----------------------------------------------------------------------------------

    def made(self) -> None:
        metrics.upstream_connections.labels(self.cluster).inc()
        if self.ended is not None:  # given up while it was being made
            self.abort(self.ended)
            return
        self._ready = True
        early, self._early = self._early, []
        if early:
            self.send(*early)
        self._maybe_retire()

    def frame_received(self, frame: memoryview, owned: bool) -> None:
        self._received_bytes.inc(len(frame))
        (correlation_id,) = INT32.unpack_from(frame, SIZE_BYTES)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            self._fail(f"{self.address} answered request {correlation_id}, which was not the next", "malformed")
            return
        pending = self._pending[0]
        header = parse_response_header(frame, SIZE_BYTES, len(frame), pending.api_key, pending.version)
        self._pending.popleft()
        pending.settle(RawResponse(frame, header.body_offset, pending.version), owned)
        if self._retired is not None:
            self._maybe_retire()

    def congestion(self, congested: bool) -> None:
        if self.on_congestion is not None:
            self.on_congestion(congested)

    def bad_frame(self, error: WireError) -> None:
        self._fail(f"{self.address} sent what is not Kafka: {error}", "malformed")

    def lost(self, reason: str) -> None:
        metrics.upstream_connections.labels(self.cluster).dec()
        self._fail(f"connection to {self.address}: {reason}", "lost")

    def shut(self, reason: str) -> None:
        """We no longer need it."""
        self._fail(reason, None)

    def retire(self, reason: str) -> None:
        """Nothing more will be submitted: close when all is sent and answered."""
        self._retired = reason
        self._maybe_retire()

    def _maybe_retire(self) -> None:
        if self._retired is not None and self._ready and not self._pending and self.ended is None:
            self.ended = self._retired
            self.close(self._retired)

    def _fail(self, reason: str, kind: str | None, *, never_sent: bool = False) -> None:
        if self.ended is not None:
            return
        self.ended = reason
        self._ready = False
        self._early.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.abort(reason)
        pending, self._pending = self._pending, deque()
        for item in pending:
            if kind is not None:
                self._count(kind)
            item.settle(Unreachable(self.cluster, reason, never_sent), True)
        if self.on_congestion is not None:
            self.on_congestion(False)
        if self.on_broken is not None and kind is not None:
            self.on_broken()

    def _count(self, kind: str) -> None:
        metrics.upstream_errors.labels(self.cluster, kind).inc()
