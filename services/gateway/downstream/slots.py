"""A client's requests between their arrival and their answers, which leave in the order of the requests."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, Protocol, cast

import structlog

from mesh.tracing.context import Trace
from services.gateway import metrics
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.fetch_in_flight import FetchInFlight
from services.gateway.downstream.hold import COMMITS
from services.gateway.downstream.in_flight import InFlight
from services.gateway.downstream.passing import Outlet, Passed, Passing, PassingAnswer, Source
from services.gateway.frame_stream import Passage
from services.gateway.requests.failures import codes_of
from services.gateway.requests.handler import Handler, Order
from services.gateway.requests.memory import Session
from services.gateway.requests.plan import Answer, Body, Close, NoAnswer, RawResponse, Request, Versioned
from services.gateway.tenancy.translation import Translation
from services.gateway.wire.apis import api_name
from services.gateway.wire.frames import SIZE_BYTES, RequestHeader, encode_response, response_prefix
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.scanner import patch_correlation_id
from services.gateway.wire.scanner.walks import headers

log = structlog.get_logger(__name__)


class Seen(NamedTuple):
    """The tracing facts of a Produce that goes by its plan."""

    topics: tuple[str, ...]
    traces: tuple[Trace, ...] | None
    """As of `trace_contexts`."""


@dataclass(slots=True, eq=False)
class Slot:
    """A request that goes by its plan."""

    header: RequestHeader
    handler: Handler | None
    request: Request | None
    held_bytes: int
    exchange: Exchange | None = None
    began: float = 0.0
    """The start; 0 if another worker carries the request out, or it has not started."""
    upstream_s: float = 0.0
    """The time that clusters have taken."""
    seen: Seen | None = None
    """The topics of a Produce and the trace contexts of its records, if requests are traced."""
    translation: Translation | None = None
    """The way back to the names of the client's tenant."""
    done: bool = False
    answer: list[Buffer] | None = None
    close: str | None = None

    def ended(self, answer: Answer) -> Answer:
        """The answer as the client gets it. The request and its exchange are over."""
        self.held_bytes = 0
        if self.exchange is not None:
            self.upstream_s = self.exchange.upstream_s
        self.request = self.exchange = None  # they hold one another, and what brokers have said
        return answer if self.translation is None else self.translation.answer(answer)

    @property
    def produces(self) -> bool:
        return self.handler is not None and self.handler.order is Order.PIPELINED

    @property
    def commits(self) -> bool:
        return self.header.api_key in COMMITS


AnySlot = Slot | InFlight | FetchInFlight


class Client(Outlet, Protocol):
    """The connection whose requests these are."""

    session: Session

    @property
    def congested(self) -> bool: ...

    def who(self) -> dict[str, str | None]:
        """For log lines."""

    def charged(self, api_key: int, version: int, pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
        """An answer of this size as it is to leave: its throttle time tells for how long the client is not read."""

    def close(self, reason: str) -> None: ...


class Slots:
    """See above."""

    __slots__ = ("client", "draining", "passing", "queue")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.queue: deque[AnySlot] = deque()
        """The slots in the order of the requests."""
        self.passing: PassingAnswer | None = None
        """The answer to the first slot, if it leaves for the client while it still arrives."""
        self.draining: str | None = None
        """Why the connection closes as soon as all answers have left."""

    def fill(self, slot: AnySlot, answer: Answer | Passed) -> None:
        """Give the slot its answer. The answer leaves with `flush`, after all answers before it."""
        slot.done = True
        header = slot.header
        is_next = self.queue[0] is slot
        try:
            match answer:
                case NoAnswer() | Passed():
                    pass
                case Close(reason):
                    slot.close = reason
                case RawResponse(frame):
                    patch_correlation_id(frame, SIZE_BYTES, header.correlation_id)
                    slot.answer = [frame if is_next else bytes(frame)]
                case Body(pieces):
                    size = sum(map(len, pieces))
                    prefix = response_prefix(header.api_key, header.api_version, header.correlation_id, size)
                    # Pieces may lie in a receive buffer: what can't leave at once is copied.
                    slot.answer = [prefix, *pieces] if is_next else [prefix, b"".join(pieces)]
                case Versioned(message, version):
                    slot.answer = [encode_response(message, version, header.correlation_id)]
                case _:
                    slot.answer = [encode_response(answer, header.api_version, header.correlation_id)]
        except Exception:  # as for plans: one answer must not take a connection of others along
            log.exception("an answer could not be encoded", api=api_name(header.api_key), **self.client.who())
            slot.close = "internal error, see the log line before"

    def flush(self) -> None:
        """Send the answers that are next. The connection may be closed after this."""
        queue, client = self.queue, self.client
        while queue and queue[0].done:
            slot = queue.popleft()
            if slot.close is not None:
                name = api_name(slot.header.api_key)
                log.warning("closing a connection", reason=slot.close, api=name, **client.who())
                client.close(slot.close)
                return
            if slot.answer is not None:
                size, header = sum(map(len, slot.answer)), slot.header
                bytes_out.total += size
                client.session.calls.bytes_out.total += size
                client.send(*client.charged(header.api_key, header.api_version, slot.answer, size))
        if self.draining is not None and not queue:
            client.close(self.draining)

    def is_next(self, slot: object) -> bool:
        """Whether the answer of this slot may leave now."""
        return self.client.is_open and bool(self.queue) and self.queue[0] is slot

    def answer_begun(self, slot: object, pieces: Sequence[Buffer], source: Source) -> Passage | None:
        """A large answer has begun to come, and these are the first bytes for the client, its size prefix and its
        correlation id before all. None, if it has to be gathered: others come first, or nobody is there.
        """
        if not self.is_next(slot):
            return None
        bytes_out.total += sum(map(len, pieces))
        client, header, size = self.client, cast(AnySlot, slot).header, headers.int32_at(pieces[0], 0) + SIZE_BYTES
        client.session.calls.bytes_out.total += size
        client.send(*client.charged(header.api_key, header.api_version, pieces, size))
        passing = self.passing = PassingAnswer(client, cast(Passing, slot), source, self._passing_ended)
        passing.hold_back(client.congested)
        return passing

    def _passing_ended(self) -> None:
        self.passing = None

    def abandon(self) -> int:
        """The client is gone: only its Produce requests and what it has begun to commit go on. Returns the bytes that
        the others have held."""
        self.passing = None
        freed = 0
        for slot in self.queue:
            if isinstance(slot, FetchInFlight):
                slot.abandon()
            elif isinstance(slot, Slot) and not _outlives_client(slot):
                exchange, slot.exchange = slot.exchange, None
                if exchange is not None and not exchange.ended:
                    exchange.abandon()
                freed += slot.held_bytes
                slot.held_bytes = 0
        left = [slot for slot in self.queue if _outlives_client(slot) and not slot.done]
        self.queue.clear()
        self.queue.extend(left)
        return freed


def _outlives_client(slot: AnySlot) -> bool:
    """A hold waits for the end of Produce, and of commits that have begun."""
    return slot.produces or (isinstance(slot, Slot) and slot.commits and slot.exchange is not None)


class Tracing(Protocol):
    """Makes spans of requests."""

    def ended(self, slot: AnySlot, answer: Answer | Passed) -> None: ...


def count_request(
    session: Session, slot: AnySlot, answer: Answer | Passed, tracing: Tracing | None, *, is_open: bool
) -> None:
    """A request of this client has ended. `tracing`: None if requests are not traced."""
    if tracing is not None:
        tracing.ended(slot, answer)
    header = slot.header
    api_key, version = header.api_key, header.api_version
    if not is_open:
        outcome = "abandoned"
    elif isinstance(answer, NoAnswer):
        outcome = "no_answer"
    elif isinstance(answer, Close):
        outcome = "closed"
    else:
        count = metrics.answered_of(session.calls, api_key, version)
        count.total += 1
        count.of_all.total += 1
        if slot.began:
            count.times.took(monotonic() - slot.began, slot.upstream_s)
        if not isinstance(answer, Passed):
            for code in codes_of(answer):
                metrics.count_error(session.calls, api_key, code)
        return
    metrics.ended_requests(api_key, version, outcome).total += 1


bytes_out = metrics.client_bytes.labels("out")
