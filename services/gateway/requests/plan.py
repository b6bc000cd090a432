"""The interface between what a request means and the I/O that carries it out.

Theory of operation
1. A handler is a generator function `handle(request, mesh)`. It yields *commands*, is resumed with their results and
   returns the *answer*. It opens no socket, reads no clock and waits for nothing: `mesh` is all that it knows.
2. `mesh` is one `MeshView` for the whole life of the request: a request finishes under the routing table that it
   started with. What the view says about clusters (leaders, versions) is live and grows by `Refresh`.
3. A `Call` is one upstream request. Its outcome is the response message, a `RawResponse` if the call asked for bytes,
   or `Unreachable`. A handler never sees an exception of the network: it decides what an unreachable cluster means.
4. Every command ends within its bound, so every plan does. When the client goes away the generator is closed.
5. Calls of one lane to one broker arrive there in the order in which they were yielded (see `Lane`).

6. A handler is quick. What takes long is computed elsewhere (`Convert`).

Handlers write `yield from ask(call, MetadataResponse)` and its sisters below: same commands, with types.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, TypeVarTuple

from mesh.routing import RoutingTable
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.nodes import VirtualNodes
from services.gateway.requests.topic_names import KnownCluster
from services.gateway.wire.codec import decode, decode_prefix
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.primitives import Buffer
from services.gateway.wire.schema import Struct, api_key_of

M = TypeVar("M", bound=Struct)

CALL_TIMEOUT_S = 10.0
"""Bound of a call that names none: the brokers' answer to anything that does not wait by design."""
ADMIN_SLACK_S = 5.0
"""On top of the time that a client gives the broker for an administrative request."""


# --- what comes in -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client. `frame` (size prefix, header, body) is the plan's own: it may be patched in place."""

    header: RequestHeader
    frame: memoryview

    @property
    def api_key(self) -> int:
        return self.header.api_key

    @property
    def version(self) -> int:
        return self.header.api_version

    def decode(self, cls: type[M]) -> M:
        """The body as a message; byte fields are slices of `frame`. Raises WireError, which closes the connection.

        Bytes after its end are let be, as brokers do: librdkafka sends three with its Metadata for all topics.
        """
        message, _ = decode_prefix(cls, self.header.api_version, self.frame, self.header.body_offset)
        return message


@dataclass(frozen=True, slots=True)
class MeshView:
    """All that a handler may know."""

    table: RoutingTable
    """As the client who asks sees it."""
    clusters: Mapping[str, KnownCluster]
    """What is known about each cluster of `table`, reachable or not, by the names that this client has for topics."""
    nodes: VirtualNodes
    """The brokers that this client is shown."""
    session: Session
    """Who asks: one for each client connection."""
    memory: Memory
    """What the gateway remembers over requests, in bounded caches; losing it costs a question, never a record."""
    served: Mapping[int, VersionRange]
    """API key -> versions that this gateway offers now: its own table cut down to what all known clusters speak."""
    mesh_id: str
    """The mesh's own Kafka cluster id."""
    now: float
    """Monotonic seconds when the request was started."""
    time_ms: int
    """The time of day then, in ms since 1970."""
    random_bits: Callable[[int], int]
    poll_bytes: int
    """Most that a Fetch should ask for whose answer has to be gathered."""
    undecided: Callable[[str], bool] | None = None
    """Whether nobody knows yet on which cluster a topic lives (`downstream.hold`); None: no topic is so."""


# --- upstream calls ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """Whichever broker of the cluster answers."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker with this id on its own cluster (a leader, as `ClusterKnowledge.leader` tells)."""

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
    """One connection of the gateway to each broker, for short questions of everyone: metadata, admin, describe."""
    CLIENT = "client"
    """A connection of this client connection's own: groups, commits, everything that must keep its order."""
    PRODUCE = "produce"
    """As CLIENT, for Produce alone: nothing may stand before records."""
    FETCH = "fetch"
    """As CLIENT, for Fetch alone: its long polls may block."""
    BLOCKING = "blocking"
    """As CLIENT, for calls that a broker answers late by design (JoinGroup, SyncGroup)."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A request's own frame, sent as it is with another correlation id."""

    frame: memoryview


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request or an answer in pieces, as the scanner cuts and joins it; the I/O adds the header."""

    pieces: tuple[Buffer, ...]


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
    own_names: bool = False
    """The topics in it are called as on the cluster already, and so they are in the answer."""
    resume_key: object = None
    """For `Gather`: a call that was left behind unanswered is taken up again by the next one of the same lane with an
    equal key, instead of being sent twice."""

    @property
    def key(self) -> int:
        """The API's, whatever the message is."""
        return api_key_of(self.message) if isinstance(self.message, Struct) else self.api_key


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response as it came: `frame` with its size prefix, `frame[body_offset:]` the body. As an answer it goes out
    with the client's correlation id. `frame` may be a window into a receive buffer: good until the plan waits again.
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
    unsupported: bool = False
    """The cluster answers, but does not speak a version that says all of the call: asking again does not help."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Outcome of a call with `no_answer`."""


Outcome = Struct | RawResponse | Unreachable | Sent


# --- commands ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Send these calls at once and wait for all outcomes. Result: tuple[Outcome, ...] in the order of the calls."""

    calls: tuple[Call, ...]
    preliminary: bool = False
    """The calls that the request is about come later: Produce behind it must not overtake them."""


Enough = Callable[[Sequence[Outcome | None]], bool]


@dataclass(frozen=True, slots=True)
class Gather:
    """As Ask, but resumed as soon as `enough(outcomes so far)` or `wait_s` has passed. Result: one outcome or None
    for each call."""

    calls: tuple[Call, ...]
    enough: Enough
    wait_s: float
    since: float | None = None
    """By the clock of `MeshView.now`, if the wait has begun already."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Bring the cluster's metadata for these topics up to date (never creates a topic). Result: None or Unreachable.
    Afterwards `mesh.clusters[cluster]` knows what there is to know."""

    cluster: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """What we believe about these topics' leaders is wrong: ask again before the next use. Result: None, at once."""

    cluster: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """This coordinator has moved: find it again at the next call. Result: None, at once."""

    cluster: str
    coordinator: Coordinator


@dataclass(frozen=True, slots=True)
class Convert:
    """Work that would keep the event loop: `function`, pure and of a module's top level, is run in another process.
    Arguments and result are plain data, with no view into a buffer. Result: what it returns, or NotConverted."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NotConverted:
    """The function did not come to its end: there was no room, or no time."""

    reason: str


Command = Ask | Gather | Refresh | Stale | Forget | Convert


# --- answers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The client expects none (acks 0)."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the client's connection, after one log line that says why."""

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
    """How long to wait for a broker that was given so long by the client."""
    return max(0, timeout_ms) / 1000 + ADMIN_SLACK_S


def ask_all(
    calls: Sequence[Call], cls: type[M], *, preliminary: bool = False
) -> Generator[Command, Any, list[M | Unreachable]]:
    """Several calls of one API, side by side. No calls: no waiting."""
    if not calls:
        return []
    outcomes = yield Ask(tuple(calls), preliminary)
    return [_typed(outcome, cls) for outcome in outcomes]


def ask_raw(call: Call) -> Generator[Command, Any, RawResponse | Unreachable]:
    """One call with `raw` set."""
    (outcome,) = yield Ask((call,))
    return outcome if isinstance(outcome, Unreachable) else _typed(outcome, RawResponse)


def refresh(cluster: str, topics: Sequence[str]) -> Generator[Command, Any, Unreachable | None]:
    result: Unreachable | None = yield Refresh(cluster, tuple(topics))
    return result


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def convert(function: Callable[[*Ts], T], *arguments: *Ts) -> Generator[Command, Any, T | NotConverted]:
    result: T | NotConverted = yield Convert(function, arguments)
    return result


def _typed(outcome: object, cls: type[T]) -> T | Unreachable:
    if isinstance(outcome, (cls, Unreachable)):
        return outcome
    raise TypeError(f"a call was answered with {type(outcome).__name__} where {cls.__name__} was expected")
