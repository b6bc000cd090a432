"""Fetch that is forwarded without a plan: one request to each broker that leads partitions, and one answer of theirs.

Theory of operation
1. A request is scanned once. Each of its topics has a `Route`: what the topic's plan would find in the table and in the
   metadata of its cluster. A route ends with the table, with the clusters' knowledge, and as soon as leaders of its
   cluster may have changed. Besides, only the protocol's own state is remembered: the client's session
   (`FetchSessions`) and the requests that each broker has had (`BrokerFetches`).
2. A request is forwarded if each of its partitions has a route and its leader has been asked by a plan under the same
   table, which has opened the connection. One broker or several, with a session or without, by names or ids: the same
   code. A request that begins a session or changes its partitions goes by its plan (`requests.records.fetch`).
3. Each broker is asked as a plan asks it, and the answer is complete at the same moment. So requests are forwarded or
   go by their plan in turns, and one continues with the unanswered requests of the other (`LeftBehind`).
4. The answer of one broker passes as it came, with the client's session and topic ids in it, if all of it is news. It
   passes while it arrives if it is about one partition. Several answers are joined.
5. The requests of a consumer that finds no records for a while wait at the gateway (`log_ends`), and are sent when
   there is news.
6. With an error, a hint at a nearer replica or a lost answer, the plan decides (`fetch.ended_in_doubt`), as if it had
   asked. So it does about records of transactions for a `read_committed` reader of several clusters (`committed`).
"""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from services.gateway import clock, metrics
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.fetch_in_flight import FetchInFlight, Step
from services.gateway.downstream.fetch_passing import beginning_of, passing
from services.gateway.downstream.fetch_placing import FetchPlacing
from services.gateway.downstream.fetch_questions import Part, Question, owned_copy
from services.gateway.downstream.mesh import Mesh
from services.gateway.downstream.passing import Brought, Passed
from services.gateway.downstream.slots import Slots
from services.gateway.downstream.tables import Follower
from services.gateway.frame_stream import Passage
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import (
    CALL_TIMEOUT_S,
    Answer,
    MeshView,
    Outcome,
    Request,
)
from services.gateway.requests.records.fetch import ended_in_doubt
from services.gateway.requests.records.fetch_writing import written_fetch
from services.gateway.requests.records.log_ends import QUIET_AFTER_S, RENEWED_AFTER_S
from services.gateway.requests.records.stitched import Part as PartOfLog
from services.gateway.requests.traffic.calls import Brought as Content
from services.gateway.requests.traffic.calls import brought_by, count_forwarded_fetch
from services.gateway.tenancy.translation import Translation
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.wire.frames import Pieces, encode_request
from services.gateway.wire.scanner.walks import headers

_NOTHING = memoryview(b"")


class Client(Protocol):
    """The connection of the client whose requests these are."""

    @property
    def is_open(self) -> bool: ...

    def view(self, header: headers.RequestHeader) -> MeshView: ...

    def answered(self, slot: FetchInFlight, pieces: Pieces) -> None:
        """The client's answer, which lacks only its number. Its pieces may lie in a receive buffer."""

    def has_answer(self, slot: FetchInFlight, answer: Answer | Passed) -> None:
        """An answer in bytes may lie in a receive buffer."""


class FetchForwarder:
    """Forwards the Fetch requests of one client connection."""

    __slots__ = (
        "_asked_at",
        "_clusters",
        "_current",
        "_lanes",
        "_loop",
        "_memory",
        "_mesh",
        "_placing",
        "_quiet_since",
        "_renewed_after_s",
        "_room",
        "_session",
        "_slots",
        "_tables",
        "_timer",
        "_timer_at",
        "client",
    )

    def __init__(
        self, client: Client, slots: Slots, mesh: Mesh, session: Session, follower: Follower, lanes: Lanes
    ) -> None:
        self.client = client
        self._slots = slots
        self._mesh = mesh
        self._session = session
        self._lanes = lanes
        self._clusters, self._tables, self._memory = mesh.clusters, mesh.tables, mesh.memory
        self._placing = FetchPlacing(mesh, session, follower, lanes)
        self._loop = asyncio.get_running_loop()
        self._current: FetchInFlight | None = None
        """The request that waits for several brokers, or for an answer to an earlier request."""
        self._timer: asyncio.TimerHandle | None = None
        """One timer for all requests: when it fires, it checks the current one."""
        self._timer_at = 0.0
        self._room = mesh.room
        self._quiet_since = 0.0
        """Since when brokers have brought nothing; 0: they have."""
        self._asked_at = 0.0
        """When a broker was asked last."""
        self._renewed_after_s = RENEWED_AFTER_S * random.uniform(2 / 3, 4 / 3)

    def place(self, header: headers.RequestHeader, frame: memoryview, now: float) -> FetchInFlight | None:
        """Find the leader of each partition; `ask` then sends the request. None if the request needs a plan."""
        return self._placing.placed(self, header, frame, now)

    # --- questions to brokers ------------------------------------------------------------------------------------

    def ask(self, fetch: FetchInFlight) -> None:
        """Ask the brokers, now that the request stands among its client's slots, or let it wait for news."""
        if self._quiet_since and self._waits(fetch):
            fetch.asked_at = clock.now()
        else:
            self._send(fetch, fetch.began)

    def _waits(self, fetch: FetchInFlight) -> bool:
        began = fetch.began
        if began - self._quiet_since < QUIET_AFTER_S:
            return False
        is_renewed = began + fetch.limits.wait_s > self._asked_at + self._renewed_after_s
        return not is_renewed and self._room.takes(fetch)

    def woken(self, fetch: FetchInFlight) -> None:
        now = clock.now()
        rest, parts = fetch.limits.after(now - fetch.began), fetch.parts
        fetch.each = rest.for_each_of(len(parts))
        if fetch.alone:
            fetch.limits = rest
        for part in parts:
            if not part.way.connection.takes_more():
                fetch.heard_at = now
                self._doubt(fetch)
                return
        self._send(fetch, now)

    def waited_out(self, fetch: FetchInFlight) -> None:
        metrics.waited_out.total += 1
        fetch.heard_at = clock.now()
        if fetch.session_went_on:
            self._doubt(fetch)
        else:
            self._answer(fetch)

    def _send(self, fetch: FetchInFlight, now: float) -> None:
        parts = fetch.parts
        self._asked_at = now
        if fetch.alone:
            self._ask(fetch, parts[0], now)
            fetch.asked_at = fetch.asked_at or clock.now()
            return
        # taken up last: asking the other brokers drops answers that have waited for long
        for part in parts:
            if part.left is None and not fetch.ended:
                self._ask(fetch, part, now)
        fetch.asked_at = fetch.asked_at or clock.now()
        if not fetch.ended:
            self._current = fetch
            self._watch(fetch.is_over_at)
        for part in parts:
            if part.left is not None and not fetch.ended:
                self._take_up(fetch, part, part.left)

    def _ask(self, fetch: FetchInFlight, part: Part, now: float) -> None:
        way, waiting = part.way, self._lanes.left_behind
        in_session = fetch.session is not None or len(fetch.parts) > 1
        request = part.fetches.ask(part.wanted, fetch.each, in_session)
        if request.forgotten:
            frame = bytearray(encode_request(request.message, way.version, 0, fetch.client_id))
        else:
            frame = written_fetch(way.header, way.version, request, fetch.routes)
        question = Question(fetch, part, waiting, now + fetch.limits.wait_s + CALL_TIMEOUT_S)
        if not fetch.alone:
            self._lanes.drop_old_left_behind()
            question.key = (part.fetches.resume_key, None)
            waiting[way.kept_at] = question
        way.calls.total += 1
        way.connection.pass_on(frame, question)

    def _take_up(self, fetch: FetchInFlight, part: Part, left: LeftBehind) -> None:
        """Continue with the question that an earlier request has asked."""
        if left.outcome is None:
            left.taker = partial(self.came, fetch, part)
        else:
            self._lanes.left_behind.pop(part.way.kept_at, None)
            self.came(fetch, part, left.outcome, True)

    # --- time ----------------------------------------------------------------------------------------------------

    def _watch(self, over_at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= over_at:
                return
            self._timer.cancel()
        self._timer_at = over_at
        self._timer = self._loop.call_at(over_at, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        fetch = self._current
        if fetch is None or fetch.ended:
            return
        if fetch.is_over_at > self._timer_at:
            self._watch(fetch.is_over_at)
            return
        fetch.heard_at = clock.now()
        if fetch.session_went_on:
            self._doubt(fetch)
        else:
            self._answer(fetch)

    def abandoned(self, fetch: FetchInFlight) -> None:
        self._room.leave(fetch)
        if fetch.brought is not None:  # its client was sent a part of the answer
            self._count(fetch, (fetch.brought.content,), is_whole=False)
        if self._current is not None:
            self._end(self._current)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- answers -------------------------------------------------------------------------------------------------

    def came(self, fetch: FetchInFlight, part: Part, outcome: Outcome, owned: bool) -> None:
        if fetch.ended:
            return
        fetch.heard_at = clock.now()
        step = fetch.come(part, outcome)
        if step is Step.ANSWER:
            self._answer(fetch)
        elif step is Step.ASK and part.way.connection.takes_more():
            self._ask(fetch, part, self._loop.time())
        else:
            if not owned and part.outcome is not None:
                part.outcome = owned_copy(outcome)
            if step is not Step.WAIT:
                self._doubt(fetch)

    def _answer(self, fetch: FetchInFlight) -> None:
        """Answer the client with the answers that have come."""
        self._end(fetch)
        if fetch.stitched:
            self._memory.on_part(PartOfLog.PRESENT)
        if fetch.record_bytes:
            self._quiet_since = 0.0
        elif not self._quiet_since:
            self._quiet_since = fetch.began
        pieces = fetch.told()
        if self._memory.traffic is not None:
            self._count(fetch, brought_by(fetch.all_found()) if fetch.record_bytes else ())
        self.client.answered(fetch, pieces)

    def _end(self, fetch: FetchInFlight) -> None:
        """End the request, and leave behind its questions without an answer."""
        fetch.ended = True
        fetch.waited()
        if fetch.alone:
            return
        self._current = None
        for part in fetch.parts:
            left = self._lanes.left_behind.get(part.way.kept_at) if part.outcome is None else part.left
            if left is not None:
                left.leave()  # else it holds this request, which holds it

    def _doubt(self, fetch: FetchInFlight) -> None:
        """Let a plan decide the client's answer, by the table that the request started with."""
        self._end(fetch)
        self._quiet_since = 0.0
        fetch.leave_behind(self._lanes.left_behind)
        if not self.client.is_open:
            return
        header = fetch.header
        seen = self._tables.view_of(fetch.table)
        clusters = seen.clusters(fetch.clusters)
        mesh = replace(self.client.view(header), table=fetch.table, clusters=clusters, now=fetch.began)
        began = None if self._memory.traffic is None else fetch.began
        fetch.exchange = Exchange(
            ended_in_doubt(Request(header, _NOTHING), mesh, fetch, began),
            self._clusters,
            self._mesh.conversions,
            self._lanes,
            header.client_id,
            lambda exchange, answer: self._decided(fetch, exchange, answer),
            seen.names,
        )
        fetch.exchange.start()

    def _decided(self, fetch: FetchInFlight, exchange: Exchange, answer: Answer) -> None:
        fetch.upstream_s += exchange.upstream_s
        fetch.exchange = None
        if fetch.tenant is not None:
            answer = Translation(fetch.tenant, fetch.api_key, fetch.version).answer(answer)
        self.client.has_answer(fetch, answer)

    def begun_to_come(self, fetch: FetchInFlight, part: Part, beginning: memoryview, missing: int) -> Passage | None:
        """A large answer has begun to arrive. It may pass if its beginning already shows that it is clean."""
        found = beginning_of(fetch, part, beginning, missing) if self._slots.is_next(fetch) else None
        if found is None:
            return None
        fetch.ended = True
        self._quiet_since = 0.0
        pieces = passing(fetch, part, found, beginning, missing)
        passage = self._slots.answer_begun(fetch, pieces, part.way.connection)
        if passage is None or self._memory.traffic is None:
            return passage
        brought = fetch.brought = Brought(passage, found)
        brought.records.come(beginning[found.records_at :])
        return brought

    def passed_on(self, fetch: FetchInFlight) -> None:
        brought = fetch.brought
        if self._memory.traffic is not None and brought is not None:
            self._count(fetch, (brought.content,))
        self.client.has_answer(fetch, Passed())

    def _count(self, fetch: FetchInFlight, brought: Iterable[Content], *, is_whole: bool = True) -> None:
        traffic = self._memory.traffic
        if traffic is not None:
            is_certain = is_whole and self._slots.is_next(fetch)
            count_forwarded_fetch(traffic, self._session, fetch, brought, self._placing, is_certain=is_certain)
