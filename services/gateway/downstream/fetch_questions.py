"""The requests to brokers that a forwarded Fetch needs: see `fetch_forwarding`."""

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from services.gateway.counting import Count
from services.gateway.frame_stream import Passage
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Outcome, RawResponse, Unreachable
from services.gateway.requests.records.broker_fetches import BrokerFetches
from services.gateway.requests.records.fetch_sessions import Position, Slot
from services.gateway.upstream.connection import BrokerConnection
from services.gateway.upstream.left_behind import LeftBehind
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import SIZE_BYTES
from services.gateway.wire.scanner import FetchResponseScan
from services.gateway.wire.scanner.walks import headers

if TYPE_CHECKING:
    from services.gateway.downstream.fetch_in_flight import FetchInFlight

_FETCH: Final = int(ApiKey.FETCH)


class Forwarder(Protocol):
    """Has sent the requests, and takes their ends."""

    def came(self, fetch: "FetchInFlight", part: "Part", outcome: Outcome, owned: bool) -> None: ...

    def begun_to_come(
        self, fetch: "FetchInFlight", part: "Part", beginning: memoryview, missing: int
    ) -> Passage | None: ...

    def passed_on(self, fetch: "FetchInFlight") -> None: ...

    def abandoned(self) -> None: ...


class Way:
    """The way to one broker, as long as the tables and clusters are these."""

    __slots__ = ("calls", "connection", "header", "kept_at", "version")

    def __init__(
        self, connection: BrokerConnection, kept_at: object, version: int, header: bytes, calls: Count
    ) -> None:
        self.connection = connection
        self.kept_at = kept_at
        """The key under which its answers are left behind."""
        self.version = version
        """The version of requests to the broker."""
        self.header = header
        """The header of these requests, behind the correlation id."""
        self.calls = calls


class Part:
    """The part of a Fetch that one broker answers."""

    __slots__ = ("fetches", "left", "outcome", "place", "scan", "wanted", "way")

    def __init__(self, place: Place, fetches: BrokerFetches, way: Way) -> None:
        self.place = place
        self.fetches = fetches
        self.way = way
        self.wanted: dict[Slot, Position] = {}
        """The wanted partitions, in the order in which they may take room in an answer."""
        self.left: LeftBehind | None = None
        """The question that an earlier Fetch has left behind: this one continues with it."""
        self.outcome: Outcome | None = None
        self.scan: FetchResponseScan | None = None


class Question(LeftBehind):
    """A request to one broker, until the broker answers. It may outlast the Fetch for which it was sent."""

    __slots__ = ("_fetch", "_part", "_waiting", "correlation_id", "deadline")
    api_key = ApiKey.FETCH

    def __init__(self, fetch: "FetchInFlight", part: Part, waiting: dict[object, LeftBehind], deadline: float) -> None:
        super().__init__((part.fetches.resume_key, None), None, partial(fetch.forwarder.came, fetch, part))
        self._fetch = fetch
        self._part = part
        self._waiting = waiting
        """The questions that are left behind."""
        self.correlation_id = 0
        self.deadline = deadline

    def answered(self, frame: memoryview, owned: bool) -> None:
        version = self._part.way.version
        header = headers.parse_response_header(frame, SIZE_BYTES, len(frame), _FETCH, version)
        self._settled(RawResponse(frame, header.body_offset, version), owned)

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        return self._fetch.forwarder.begun_to_come(self._fetch, self._part, beginning, missing)

    def failed(self, outcome: Unreachable) -> None:
        self._settled(outcome, True)

    def _settled(self, outcome: RawResponse | Unreachable, owned: bool) -> None:
        taker, waiting, kept_at = self.taker, self._waiting, self._part.way.kept_at
        is_there = len(waiting) > 0 and waiting.get(kept_at) is self
        if taker is not None:
            if is_there:
                del waiting[kept_at]
            taker(outcome, owned)
        elif is_there:
            self.keep(outcome if owned else owned_copy(outcome))


def owned_copy(outcome: Outcome) -> Outcome:
    """The same outcome, copied out of the receive buffer."""
    if not isinstance(outcome, RawResponse):
        return outcome
    return RawResponse(memoryview(bytearray(outcome.frame)), outcome.body_offset, outcome.version)
