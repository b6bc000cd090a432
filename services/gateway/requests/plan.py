"""The interface between the meaning of a request and the I/O that carries it out.

Theory of operation
1. A handler is a generator function `handle(request, mesh)`. The handler yields *commands*, is resumed with their
   results and returns the *answer*. The handler opens no socket and waits for nothing: `mesh` is all that it knows, the
   time included.
2. `mesh` is one `MeshView` for the whole life of the request: a request finishes under the routing table that it
   started with. The view's knowledge about clusters (leaders, versions) is live and grows by `Refresh`.
3. A `Call` is one upstream request. Its outcome is the response message, a `RawResponse` if the call asked for bytes,
   or `Unreachable`. A handler never sees an exception of the network: it decides what an unreachable cluster means.
4. Every command ends within its bound, so every plan does. If the client disconnects, the generator is closed.
5. Calls of one lane to one broker arrive there in the order in which they were yielded (see `Lane`).
6. A handler is quick. Long computations run in another process (`Convert`).

Handlers write `yield from ask(call, MetadataResponse)`, or use a similar function below: it adds types.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from mesh.routing import RoutingTable
from mesh.validation.checks import V2
from services.gateway.requests.changes import Change
from services.gateway.requests.conversions import Convert
from services.gateway.requests.data_keys import FindKeys
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.nodes import VirtualNodes
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.wire.codec import decode, decode_prefix
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Struct, api_key_of

M = TypeVar("M", bound=Struct)
T = TypeVar("T")

CALL_TIMEOUT_S = 10.0
"""Bound, in seconds, of a call that names none: enough for any answer that a broker does not delay by design."""
ADMIN_SLACK_S = 5.0
"""Seconds beyond the time that a client gives the broker for an administrative request."""


# --- what comes in -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client. `frame` (size prefix, header, body) is the plan's own: it may be patched in place."""

    header: RequestHeader
    frame: memoryview
    magic: int = V2
    """The message format in which the client sent its records: the gateway has converted older ones to v2."""

    @property
    def api_key(self) -> int:
        return self.header.api_key

    @property
    def version(self) -> int:
        return self.header.api_version

    def decode(self, cls: type[M]) -> M:
        """The body as a message; byte fields are slices of `frame`. Raises WireError, which closes the connection.

        Bytes after the end of the message are ignored, as on brokers: librdkafka sends three such bytes with its
        Metadata for all topics.
        """
        message, _ = decode_prefix(cls, self.header.api_version, self.frame, self.header.body_offset)
        return message


@dataclass(frozen=True, slots=True)
class MeshView:
    """Everything that a handler may know."""

    table: RoutingTable
    """The routing table as the asking client sees it."""
    clusters: Mapping[str, KnownCluster]
    """Knowledge about each cluster of `table`, reachable or not, by the names that this client has for topics."""
    nodes: VirtualNodes
    """The brokers that this client is shown."""
    session: Session
    """The client connection that the request came from; each connection has one session."""
    memory: Memory
    """State of the gateway across requests, in bounded caches. The loss of an entry costs an upstream call. If seams,
    doubts or refusals overflow, a repeated batch may be stored twice, or a batch overtake an earlier one."""
    served: Mapping[int, VersionRange]
    """API key -> versions that this gateway offers now: those of its own table that all known clusters support."""
    mesh_id: str
    """The mesh's own Kafka cluster id."""
    now: float
    """Monotonic seconds when the request was started ..."""
    clock: Callable[[], float]
    """... and the present time by the same clock: after a call, long may have passed since the start."""
    time_ms: int
    """The time of day then, in ms since 1970."""
    random_bits: Callable[[int], int]
    poll_bytes: int
    """Most that a Fetch should ask for whose answer has to be gathered."""
    undecided: Callable[[str], bool] | None = None
    """Whether no cluster is chosen yet for a topic (`downstream.hold`); None: every topic is decided."""


# --- upstream calls ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """Any broker of the cluster that answers."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker with this id on its own cluster (a leader, as `ClusterKnowledge.leader` reports)."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Controller:
    """The cluster's controller, as its Metadata names it."""


class KeyType(Enum):
    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a group or transactional id: found on demand, remembered until `Forget`."""

    key: str
    key_type: KeyType = KeyType.GROUP


Target = AnyBroker | Broker | Controller | Coordinator


class Lane(Enum):
    """Which connection to the broker a call takes. A broker works on one request of a connection at a time."""

    SHARED = "shared"
    """One connection of the gateway to each broker, for short calls of all clients: metadata, describe. These calls
    have the gateway's own client id, so a broker's quota for one client stops no other."""
    CLIENT = "client"
    """A connection for this client connection alone: groups, commits, everything that must keep its order."""
    PRODUCE = "produce"
    """As CLIENT, for Produce alone: no other request may delay records."""
    FETCH = "fetch"
    """As CLIENT, for Fetch alone: its long polls may block."""
    BLOCKING = "blocking"
    """As CLIENT, for calls whose answers a broker delays by design (JoinGroup, SyncGroup)."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A request's own frame, sent as it is with another correlation id."""

    frame: memoryview


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request or an answer in pieces, as the scanner cuts and joins it; the I/O adds the header."""

    pieces: tuple[Buffer, ...]
    error_codes: Collection[int] = ()  # of an answer, as far as a plan has put some in


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one broker of one cluster."""

    cluster: str
    message: Struct | Verbatim | Body
    version: int
    target: Target = AnyBroker()
    lane: Lane = Lane.SHARED
    timeout_s: float = CALL_TIMEOUT_S
    raw: bool = False
    """The outcome shall be a RawResponse."""
    no_answer: bool = False
    """The broker will not answer (Produce with acks 0): the outcome is `Sent` as soon as the bytes are on their way."""
    api_key: int = -1
    """Only needed with `Verbatim` and `Body`; a message knows its own."""
    by_mesh: bool = False
    """The gateway's own work: it has the mesh's identity at the cluster, whoever the client is."""
    own_names: bool = False
    """Topics in the message have the cluster's own names already, and so do those in the answer."""
    on_answer: Callable[[], None] | None = None
    """Called as soon as the outcome is there; the plan may still wait for others."""
    resume_key: object = None
    """For `Gather`: identifies a call that may be left behind unanswered.

    The next call of the same lane with an equal key continues with the first one, and sends no second request.
    """

    @property
    def key(self) -> int:
        """The API's key, whatever the message is."""
        return api_key_of(self.message) if isinstance(self.message, Struct) else self.api_key


@dataclass(slots=True)
class RawResponse:
    """A response as it came: `frame` with its size prefix, `frame[body_offset:]` the body.

    Each answer of a broker makes one. It is not frozen, because that would take twice as long.

    As an answer of a plan it goes out with the client's correlation id. `frame` may be a window into a receive buffer:
    good until the plan waits again.
    """

    frame: memoryview
    body_offset: int
    version: int

    def decode(self, cls: type[M]) -> M:
        return decode(cls, self.version, self.frame, self.body_offset)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The call got no answer: cluster down, connection lost, bound passed, or a version that the broker lacks.

    The request may have been carried out unless `never_sent`.
    """

    cluster: str
    reason: str
    never_sent: bool = False
    refused: bool = False
    """The cluster does not let this client in. No plan sees this: the exchange makes a broker's refusal of it."""
    unsupported: bool = False
    """The cluster answers, but supports no version that can carry the whole call: another try does not help."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Outcome of a call with `no_answer`."""


Outcome = Struct | RawResponse | Unreachable | Sent


# --- commands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Sends these calls at once and waits for all outcomes. Result: tuple[Outcome, ...] in the order of the calls."""

    calls: tuple[Call, ...]
    preliminary: bool = False
    """The main calls of the request come later: a Produce behind this request must not overtake them."""


Enough = Callable[[Sequence[Outcome | None]], bool]


@dataclass(frozen=True, slots=True)
class Gather:
    """As Ask, but resumed as soon as `enough(outcomes so far)` or `wait_s` has passed. Result: one outcome or None
    for each call."""

    calls: tuple[Call, ...]
    enough: Enough
    wait_s: float
    since: float | None = None
    """The start of the wait by the clock of `MeshView.now`, if the wait has begun already."""
    waits_for: str = ""
    """The label of a pause before the plan asks again, for the metric `pauses`."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Brings the cluster's metadata for these topics up to date (never creates a topic). Result: None or Unreachable.
    Afterwards `mesh.clusters[cluster]` has all that the cluster reports about them."""

    cluster: str
    topics: tuple[str, ...]
    own_names: bool = False
    """The topics have the cluster's own names already."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The gateway's knowledge of these topics' leaders is wrong: it asks again before the next use.

    Result: None, at once.
    """

    cluster: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """This coordinator has moved: the gateway finds it again at the next call. Result: None, at once."""

    cluster: str
    coordinator: Coordinator


Command = Ask | Gather | Refresh | Stale | Forget | Convert | Change | FindKeys


# --- answers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The client expects no answer (acks 0)."""


@dataclass(frozen=True, slots=True)
class Close:
    """Closes the client's connection, after one log line with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Versioned:
    """A message in another version than the client asked for (ApiVersions with error 35 alone)."""

    message: Struct
    version: int


Answer = Struct | Versioned | RawResponse | Body | NoAnswer | Close

Plan = Generator[Command, Any, Answer]
Handle = Callable[[Request, MeshView], Plan]


# --- typed shorthand ---------------------------------------------------------------------------------------------


def ask(call: Call, cls: type[M], *, preliminary: bool = False) -> Generator[Command, Any, M | Unreachable]:
    """One call."""
    (outcome,) = yield Ask((call,), preliminary)
    return _typed(outcome, cls)


def admin_timeout_s(timeout_ms: int) -> float:
    """How long to wait for a broker to which the client gave this time-out."""
    return max(0, timeout_ms) / 1000 + ADMIN_SLACK_S


def ask_all(
    calls: Sequence[Call], cls: type[M], *, preliminary: bool = False
) -> Generator[Command, Any, list[M | Unreachable]]:
    """Several calls of one API, sent at the same time. Without calls it does not wait."""
    if not calls:
        return []
    outcomes = yield Ask(tuple(calls), preliminary)
    return [_typed(outcome, cls) for outcome in outcomes]


def ask_raw(call: Call) -> Generator[Command, Any, RawResponse | Unreachable]:
    """One call with `raw` set."""
    (outcome,) = yield Ask((call,))
    return outcome if isinstance(outcome, Unreachable) else _typed(outcome, RawResponse)


def refresh(
    cluster: str, topics: Sequence[str], *, own_names: bool = False
) -> Generator[Command, Any, Unreachable | None]:
    result: Unreachable | None = yield Refresh(cluster, tuple(topics), own_names)
    return result


def _typed(outcome: object, cls: type[T]) -> T | Unreachable:
    if isinstance(outcome, (cls, Unreachable)):
        return outcome
    raise TypeError(f"a call was answered with {type(outcome).__name__} where {cls.__name__} was expected")
