"""The requests to brokers that a forwarded Fetch needs: see `fetch_forwarding`."""

from typing import TYPE_CHECKING, Final, Protocol

from services.gateway.counting import Count
from services.gateway.frame_stream import Passage
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Outcome, RawResponse, Unreachable
from services.gateway.requests.records.broker_fetches import BrokerFetches, NamedSlot
from services.gateway.requests.records.fetch_sessions import Position
from services.gateway.requests.records.log_ends import BrokerLogEnds
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

    def abandoned(self, fetch: "FetchInFlight") -> None: ...

    def woken(self, fetch: "FetchInFlight") -> None:
        """It has waited for news, and there may be some."""

    def waited_out(self, fetch: "FetchInFlight") -> None:
        """It has waited for news, and there was none."""


class Way:
    """The way to one broker, as long as the tables and clusters are these."""

    __slots__ = ("broker_id", "calls", "cluster", "connection", "header", "kept_at", "log_ends", "version")

    def __init__(
        self, place: Place, connection: BrokerConnection, kept_at: object, version: int, header: bytes, calls: Count
    ) -> None:
        self.cluster, self.broker_id = place
        self.connection = connection
        self.kept_at = kept_at
        """The key under which its answers are left behind."""
        self.version = version
        """The version of requests to the broker."""
        self.header = header
        """Size prefix and header of these requests."""
        self.calls = calls
        self.log_ends: BrokerLogEnds | None = None
        """The log ends at which requests to this broker wait, if some have."""


class Part:
    """The part of a Fetch that one broker answers."""

    __slots__ = ("fetches", "left", "outcome", "scan", "wanted", "way")

    def __init__(self, fetches: BrokerFetches, way: Way) -> None:
        self.fetches = fetches
        self.way = way
        self.wanted: dict[NamedSlot, Position] = {}
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
        self.key = self.outcome = self.taker = None
        self.arrived = 0.0
        self._fetch: FetchInFlight | None = fetch
        """The Fetch that waits for it. None if that Fetch has ended: nothing may hold the answers of other brokers."""
        self._part = part
        self._waiting = waiting
        """The questions that are left behind."""
        self.correlation_id = 0
        self.deadline = deadline

    def leave(self) -> None:
        self.taker = self._fetch = None

    def answered(self, frame: memoryview, owned: bool) -> None:
        version = self._part.way.version
        header = headers.parse_response_header(frame, SIZE_BYTES, len(frame), _FETCH, version)
        self._settled(RawResponse(frame, header.body_offset, version), owned)

    def begun(self, beginning: memoryview, missing: int) -> Passage | None:
        fetch = self._fetch
        return None if fetch is None else fetch.forwarder.begun_to_come(fetch, self._part, beginning, missing)

    def failed(self, outcome: Unreachable) -> None:
        self._settled(outcome, True)

    def _settled(self, outcome: RawResponse | Unreachable, owned: bool) -> None:
        fetch, taker, waiting, part = self._fetch, self.taker, self._waiting, self._part
        kept_at = part.way.kept_at
        is_there = len(waiting) > 0 and waiting.get(kept_at) is self
        if is_there and (fetch is not None or taker is not None):
            del waiting[kept_at]
        if taker is not None:
            taker(outcome, owned)
        elif fetch is not None:
            fetch.forwarder.came(fetch, part, outcome, owned)
        elif is_there:
            self.keep(outcome if owned else owned_copy(outcome))


def owned_copy(outcome: Outcome) -> Outcome:
    """The same outcome, copied out of the receive buffer."""
    if not isinstance(outcome, RawResponse):
        return outcome
    return RawResponse(memoryview(bytearray(outcome.frame)), outcome.body_offset, outcome.version)
