"""Holding Produce of topics that are about to move, and commits of groups' offsets in them.

A move must not lose or reorder records: the old cluster must answer all its requests before any request goes to the
new cluster. So while a hold lasts, Produce requests that name a moving topic wait unstarted. The hold is *complete*
when all such requests that started before the hold are answered. Then the table is switched (or the move given up) and
the hold released: the waiting requests start under the table in force.

A group's offsets are with its topic, so they move, too. Commits of them wait and are refused as Produce is: what the
old cluster says about groups within the hold is the last word (control's `topic_moves/cut`).

A hold whose gateway has said HELD does not end by itself, for control may have decided to switch. When the hold's time
is over, requests wait no longer. They are refused with an error that clients retry, until a router reports how the move
has ended (`refuse`).

A Produce may write dead letters, too, which the old cluster must have before the cut. So a Produce that names a topic
is held as well if the topic of its dead letters moves.

A large request may be on its way to the old cluster while it still comes from its client (`forwarding`). Such a client
gets `PATIENCE_S` to send the rest; then the request is broken off, and the client sends it again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from mesh.routing import ClientIdentity, RoutingTable
from services.gateway import metrics
from services.gateway.requests.plan import Request
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages.offset_commit import OffsetCommitRequest
from services.gateway.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from services.gateway.wire.primitives import WireError
from services.gateway.wire.scanner import scan_produce

PATIENCE_S: Final = 0.15
"""A hold should take a quarter of a second at most (p99)."""

COMMITS: Final[Mapping[int, type[OffsetCommitRequest | TxnOffsetCommitRequest]]] = {
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest,
    ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest,
}

NameOf = Callable[[bytes, RoutingTable], str | None]
"""The name of the topic with this id, if clients that see this table know the topic."""
LettersOf = Callable[[str], Iterable[str]]
"""The topics to which dead letters of a topic may be written."""


class NamedTopic(Protocol):
    """A topic in a request: by its name, or by its id."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...


class Underway(Protocol):
    """A Produce or a commit that has started, and the client that sent it."""

    @property
    def what(self) -> Request | tuple[str, ...]:
        """The request, or the topics that it names."""
        ...

    @property
    def client(self) -> ClientIdentity: ...

    @property
    def break_off(self) -> Callable[[], None] | None:
        """Gives up a request that has not come as a whole yet; None if it has."""
        ...


class Started(NamedTuple):
    """A Produce or a commit that goes by its plan."""

    what: Request
    client: ClientIdentity
    break_off: None = None


class Hold:
    """One hold, from the table in force to the one to come."""

    def __init__(self, before: RoutingTable, after: RoutingTable, name_of: NameOf, letters_of: LettersOf) -> None:
        self.before = before
        self.after = after
        self._name_of = name_of
        self._letters_of = letters_of
        self.complete = asyncio.Event()
        self._draining: set[object] = set()
        self._waiting: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._patience: asyncio.TimerHandle | None = None
        self.refuses = False
        """Requests that name a moving topic are refused, and do not wait."""

    def concerns(self, request: Request, client: ClientIdentity) -> bool:
        """Whether a request writes to a topic that moves for this client. A request that can't be read is not held."""
        try:
            topics = _topics(request)
        except WireError:
            return False
        before, after = self.before.for_client(client), self.after.for_client(client)
        for topic in topics:
            name = topic.name or self._name_of(topic.topic_id, before)
            letters = self._letters_of(name) if name is not None and request.header.api_key == ApiKey.PRODUCE else ()
            if name is None or any(_moves(each, before, after) for each in (name, *letters)):
                return True
        return False

    def _moves_some(self, what: Request | tuple[str, ...], client: ClientIdentity) -> bool:
        if isinstance(what, Request):
            return self.concerns(what, client)
        before, after = self.before.for_client(client), self.after.for_client(client)
        return any(_moves(topic, before, after) for topic in what)

    def drain(self, started: Mapping[object, Underway]) -> None:
        """Begin: these requests are on their way."""
        concerned = {who: each for who, each in started.items() if self._moves_some(each.what, each.client)}
        self._draining = set(concerned)
        slow = [each.break_off for each in concerned.values() if each.break_off is not None]
        if slow:
            self._patience = self._loop.call_later(PATIENCE_S, self._lose_patience, slow)
        self._check()

    def _lose_patience(self, slow: list[Callable[[], None]]) -> None:
        for break_off in slow:
            break_off()

    def answered(self, who: object) -> None:
        self._draining.discard(who)
        self._check()

    def _check(self) -> None:
        if not self._draining:
            self.complete.set()

    def wait(self, wake: Callable[[], None]) -> None:
        """A request waits; `wake` is called at the release."""
        self._waiting.append(wake)
        metrics.held_requests.inc()

    def moving(self, client: ClientIdentity) -> Callable[[str], bool]:
        """Whether a topic moves for this client."""
        before, after = self.before.for_client(client), self.after.for_client(client)
        return lambda topic: _moves(topic, before, after)

    def moves_for_some(self, topic: str) -> bool:
        """Whether a topic moves for any client."""
        kinds = (None, *self.before.conditions, *self.after.conditions)
        return any(_moves(topic, self.before.for_clients(kind), self.after.for_clients(kind)) for kind in kinds)

    def refuse(self) -> None:
        """From now on no request waits for the end of this move."""
        self.refuses = True
        metrics.undecided_moves.set(1)
        self._wake()

    def release(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if self.refuses:
            metrics.undecided_moves.set(0)
        metrics.hold_seconds.observe(self._loop.time() - self._began)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        metrics.held_requests.dec(len(waiting))
        for wake in waiting:
            wake()


def _topics(request: Request) -> Iterable[NamedTopic]:
    commit = COMMITS.get(request.header.api_key)
    if commit is not None:
        return request.decode(commit).topics
    return scan_produce(request.frame, request.version, request.header.body_offset, len(request.frame)).topics


def _moves(topic: str, before: RoutingTable, after: RoutingTable) -> bool:
    """Whether the topic moves to another cluster, or to a later visit of the same one: a table may skip revisions."""
    here, there = before.route(topic), after.route(topic)
    return (here and here.stay) != (there and there.stay)
