"""Decides whether a client's connection is read, and which side stalls.

Reading stops while too many requests or bytes are unanswered, while the client does not take its answers, or while a
broker does not read the client's requests. Reading goes on when none of these reasons holds any more. A request that
leaves while it comes (`forwarding`) holds no memory, so only the broker and the client's own answers stop it. A client
that exceeds a quota is not read until its pause is over (`toll`). A client that reads nothing of its answers for
`UNREAD_S` is cut off.
"""

import asyncio
import math
from typing import Final, Protocol

import structlog

from services.gateway import metrics
from services.gateway.downstream.in_flight import InFlight
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.slots import Slots
from services.gateway.upstream.answer_memory import Share

log = structlog.get_logger(__name__)

STALLED_S = 60.0
"""A large request that has begun to come must go on within this time: it holds memory that others wait for, or a
connection to a broker. So must the broker to which it goes on."""
LEAST_BYTES = 64 * 1024
"""The progress that counts within this time, if so much is missing: 1 KiB/s. A byte now and then would hold the memory
for days."""
UNREAD_S = 600.0
"""A client that reads nothing of its answers for so long is cut off: the answers hold memory that others wait for. A
broker ends such a connection after the same time (`connections.max.idle.ms`)."""
CLOCK_S: Final = 0.002
"""The clock of the event loop counts in milliseconds."""


class Client(Protocol):
    """The connection."""

    @property
    def is_open(self) -> bool: ...

    @property
    def congested(self) -> bool: ...

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def still_missing(self) -> int: ...

    @property
    def is_gathering(self) -> bool: ...

    def who(self) -> dict[str, str | None]: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def peer_is_gone(self) -> bool: ...

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...


class Reading:
    """See above."""

    __slots__ = (
        "_loop",
        "_mesh",
        "_missing",
        "_slots",
        "_stalled_at",
        "_timer",
        "_turned_away",
        "_unread",
        "_unread_timer",
        "_untaken",
        "arriving",
        "client",
        "muted",
        "paused_for",
        "upstream_congested",
    )

    def __init__(self, client: Client, slots: Slots, mesh: Mesh) -> None:
        self.client = client
        self._slots = slots
        self._mesh = mesh
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all requests, which outlasts them: a request of two reads is not worth a timer of its own."""
        self._stalled_at = math.inf
        """The time by which the request that is on its way must have gone on ..."""
        self._missing = 0
        """... and the bytes of it that were missing at the last check."""
        self.arriving: InFlight | None = None
        """The request that leaves while it comes."""
        self.muted = False
        """Whether the client has to pause, for it exceeds a quota."""
        self.paused_for: str | None = None
        """The reason why nothing is read."""
        self.upstream_congested = False
        self._unread = 0
        """The bytes that the client had not read at the last check."""
        self._unread_timer: asyncio.TimerHandle | None = None
        self._untaken: Share | None = None
        """The part of its answers that the client has not read, as counted in the room of gathered answers."""
        self._turned_away: asyncio.TimerHandle | None = None

    def update(self) -> None:
        """Stop or start reading, after a change that may affect it."""
        if not self.client.is_open:
            return
        if self.client.congested is not (self._unread_timer is not None):
            self._watch_the_reader()
        reason = self._why_pause()
        if reason == "bytes":
            self._mesh.budget.wait(self, self.update)
        before, self.paused_for = self.paused_for, reason
        if (reason is None) == (before is None):
            return
        if reason is not None:
            metrics.paused_connections.labels(reason).inc()
            self.client.pause_reading()
        else:
            self.client.resume_reading()
            if self._stalled_at != math.inf:  # the client could send nothing meanwhile
                self._watch_for_stall(self.client.still_missing)

    def _why_pause(self) -> str | None:
        if len(self._slots.queue) >= self._mesh.limits.max_requests and self.arriving is None:
            return "requests"
        if self.client.congested:
            return "answers"
        if self.upstream_congested:
            return "upstream"
        if self.arriving is not None:
            return None
        if self.muted:
            return "quota"
        # At least one connection must be able to go on: a connection that holds nothing may always read one frame.
        if self._mesh.budget.exceeded and (self._slots.queue or not self.client.is_gathering):
            return "bytes"
        return None

    def gathering(self, delta: int) -> None:
        """Memory for an unfinished request grew or shrank by `delta` bytes."""
        self._mesh.budget.add(delta)
        if self._stalled_at == math.inf:
            self._watch_for_stall(self.client.still_missing)
        elif delta < 0:
            self._stop_watch()
        self.update()

    def arrival_began(self, arriving: InFlight, missing: int) -> None:
        self.arriving = arriving
        self._watch_for_stall(missing)
        self.update()

    def arrival_ended(self) -> None:
        self.arriving = None
        self._stop_watch()
        if self.muted or len(self._slots.queue) >= self._mesh.limits.max_requests:
            self.update()

    def turn_away(self, after_s: float) -> None:
        """Read nothing, and end the connection: its address opens connections too fast."""
        self.muted = True
        self.update()
        self._turned_away = self._loop.call_later(after_s, self.client.close, "its address opens connections too fast")

    def look_at_the_client(self) -> None:
        """End the connection if its client is gone: the loop does not see this while nothing is read."""
        if self.paused_for is not None and self.client.peer_is_gone():
            self.client.abort("the client left while nothing was read from it")

    def end(self) -> None:
        """The connection is gone."""
        self.arriving = None
        self._stop_watch()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._untaken = None
        if self._turned_away is not None:
            self._turned_away.cancel()
            self._turned_away = None
        self._mesh.budget.leave(self)

    def _watch_the_reader(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._untaken = None
        if self.client.congested:
            self._unread = self.client.unsent_bytes
            self._untaken = Share(self._mesh.clusters.answer_room)
            self._untaken.take(self._unread)
            self._unread_timer = self._loop.call_later(UNREAD_S, self._look_at_the_reader)

    def _look_at_the_reader(self) -> None:
        if self.client.unsent_bytes < self._unread:
            self._watch_the_reader()
            return
        metrics.cut_connections.labels("unread").inc()
        said = "a client that does not read its answers"
        log.warning(f"closing a connection: {said}", unread=self.client.unsent_bytes, **self.client.who())
        self.client.abort(said)

    def _watch_for_stall(self, missing: int) -> None:
        self._missing = missing
        self._stalled_at = self._loop.time() + STALLED_S
        if self._timer is None:
            self._timer = self._loop.call_at(self._stalled_at, self._look_at_the_time)

    def _stop_watch(self) -> None:
        self._stalled_at = math.inf

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._stalled_at == math.inf:
            return
        if self._stalled_at - self._loop.time() > CLOCK_S:  # the deadline of a later request
            self._timer = self._loop.call_at(self._stalled_at, self._look_at_the_time)
        else:
            self._check_for_stall(self._missing)

    def _check_for_stall(self, missing: int) -> None:
        still_missing = self.client.still_missing
        if self.paused_for is None and missing - still_missing < min(missing, LEAST_BYTES):
            metrics.cut_connections.labels("stalled").inc()
            said = "a request that does not go on"
            log.warning(f"closing a connection: {said}", missing=still_missing, **self.client.who())
            self.client.abort(said)
            return
        if self.paused_for == "upstream" and self.arriving is not None and missing == still_missing:
            self.arriving.stalled()
        self._watch_for_stall(still_missing)
