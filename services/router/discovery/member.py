"""One data plane as its router leads it: a state machine without I/O. Messages go in, orders come out.

Theory of operation
1. A member is in one state, named after the message that the member waits for. `TRANSITIONS` lists the valid messages
   of each state; every other message breaks the protocol and ends the stream with the reason.
2. The first order is Apply of the table in force, also when the member already runs that revision: the answer shows
   that the stream works. A member that runs a newer revision than this router knows gets no order until the router has
   caught up: no member is led back. The same holds for a member that has answered HELD for a revision that this router
   has not read. If that move was given up meanwhile, a Release follows the table in force.
3. A pending table makes a Hold. While the member holds, the router only sends the end of the rollout: Switch if the
   pending table came into force, else Release. If another table is in force by then, the router sends that table
   afterwards. If the member's table is newer than the pending table (a cluster changed meanwhile), it gets no Switch,
   but the table in force. The same holds if stitched logs have changed since the Hold: the cut of a move adds a part,
   which has to come into force with the rule, not behind it.
   The table in force shows whether a revision came into force: rule versions or pasts begin or end at that revision. So
   states may be skipped without harm. A pending table that is tried first (`RoutingState.canary`) makes a Try on the
   members that take part, nothing on others. A canary takes minutes: if a cluster changes meanwhile, the router sends
   the new table at once, and then the Try again.
4. After a refused Switch the router sends Apply: the member had ended the hold by itself, and must not stay on the
   table before. Any other refusal stands until there is another table: the member knows best which table it can't run.
5. If a member of an older release would ignore parts of a table, the router does not send the table. The table counts
   as refused, with the reason, and the member keeps its table. Half of a rule is another rule.
6. Answers come in the order of the orders. One to an order that was overtaken (a HELD that crossed a Release) is
   ignored; one to an order never given breaks the protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from mesh.routing import RoutingState, RoutingTable, came_into_force
from mesh.routing.codec import TABLE_FORMAT, format_needed
from mesh.rpc import quotas, topic_moves

SHORTEST_HOLD_MS = 1000
"""A pending table is always held, however late its member comes: until control ends the rollout, nobody may write."""
MAX_UNANSWERED = 256
"""Orders without an answer; the router ends the stream of a member that leaves more unanswered."""

TOO_OLD = (
    "its release is older than the router's, and would pass over ACLs, quotas or rules about records, over what rules "
    "ask of clients, or over where topics have lived: upgrade it; until then it goes on with the table that it has"
)


class ProtocolError(Exception):
    """The member broke the protocol; the text names its message and the expected one."""


class MemberState(Enum):
    """The message for which a member waits."""

    GREETING = "its own hello"
    ADMISSION = "a table that is not older than its own"
    NEWS = "the next table"
    ROLLOUT_END = "switch or release of what it holds or tries"


class Answer(Enum):
    """A member's answer to an order."""

    APPLIED = "applied"
    HELD = "held"
    TRYING = "trying"
    REFUSED = "refused"


# Messages to a member's state machine.


@dataclass(frozen=True, slots=True)
class Hello:
    """The member is there and runs `revision` (0: none)."""

    revision: int
    table_format: int = TABLE_FORMAT
    """The table format that the member understands."""
    held_revision: int = 0
    """The revision that the member answered with HELD, while it does not know the end of that move; 0: none."""


@dataclass(frozen=True, slots=True)
class News:
    """The router's state of the log."""

    state: RoutingState
    hold_ms: int
    """How much longer the pending table may be held."""
    decided_at: float | None = None
    """Time of the decision, in seconds since 1970; None when it is too old to measure."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The member's answer to the order of `revision`."""

    revision: int
    answer: Answer
    at: float
    """Seconds since 1970."""
    reason: str = ""


Message = Hello | News | Answered


# Orders to a member.


@dataclass(frozen=True, slots=True)
class Apply:
    table: RoutingTable


@dataclass(frozen=True, slots=True)
class Hold:
    table: RoutingTable
    hold_ms: int


@dataclass(frozen=True, slots=True)
class Try:
    table: RoutingTable
    permille: int


@dataclass(frozen=True, slots=True)
class Switch:
    revision: int
    producers: topic_moves.TopicMoveProducers | None = None
    """The producers of a topic that has moved with its records."""


@dataclass(frozen=True, slots=True)
class Release:
    revision: int


@dataclass(frozen=True, slots=True)
class Divide:
    """The member's parts of quotas. They are no part of a rollout, and have no answer."""

    parts: quotas.QuotaParts


Order = Apply | Hold | Try | Switch | Release | Divide


@dataclass(frozen=True, slots=True)
class Standing:
    """The phase of a member by its own answers, as reported to control."""

    revision: int = 0
    answer: Answer | None = None
    reason: str = ""
    lag_s: float | None = None
    """From the decision to the answer; None when unknown."""


@dataclass(frozen=True, slots=True)
class _Due:
    """An answer that is still to come."""

    revision: int
    answer: Answer
    decided_at: float | None
    to_switch: bool = False


class Member:
    """The machine. `receive` takes a message and returns the orders that follow from it."""

    def __init__(self, name: str, news: News | None) -> None:
        """`name`: as in members/{name}."""
        self._name = name
        self.state = MemberState.GREETING
        self.standing = Standing()
        self._news = news
        self._runs = 0
        self._reads = 0
        self._held_before = 0
        """The revision that the member had answered with HELD before this stream."""
        self._spoken_for = False
        """Whether its standing is a refusal that this router set, not the member."""
        self._told: RoutingTable | None = None
        self._held: RoutingTable | None = None
        self._due: deque[_Due] = deque()
        self._last_ordered = 0

    def receive(self, message: Message) -> tuple[Order, ...]:
        """The orders that follow, in order. ProtocolError ends the stream."""
        transition = TRANSITIONS.get((self.state, type(message)))
        if transition is None:
            raise ProtocolError(f"{type(message).__name__} came while the router waits for {self.state.value}")
        return transition(self, message)

    def _remember(self, news: News) -> tuple[Order, ...]:
        self._news = news
        return ()

    def _greet(self, hello: Hello) -> tuple[Order, ...]:
        self._runs, self._reads, self._held_before = hello.revision, hello.table_format, hello.held_revision
        self.standing = Standing(hello.revision, Answer.APPLIED if hello.revision else None)
        self.state = MemberState.ADMISSION
        if self._news is None:
            return ()
        return self._admit(replace(self._news, decided_at=None))

    def _admit(self, news: News) -> tuple[Order, ...]:
        if news.state.effective.revision < self._runs or news.state.position < self._held_before:
            return self._remember(news)
        self.state = MemberState.NEWS
        held, pending = self._held_before, news.state.pending
        if held and (pending is None or pending.revision != held) and not came_into_force(held, news.state.effective):
            orders = self._follow(news)  # the table in force first: nothing is released under an older one
            return (*orders[:1], Release(held), *orders[1:])
        return self._follow(news)

    def _follow(self, news: News) -> tuple[Order, ...]:
        self._news = news
        orders: list[Order] = []
        self._speak_for_itself()
        if self._is_beyond(news.state.effective):
            return ()
        if news.state.effective is not self._told:
            orders.append(self._apply(news.state.effective, news.decided_at))
        pending, canary = news.state.pending, news.state.canary
        if pending is not None and self._is_beyond(pending):
            return tuple(orders)
        if pending is not None and canary is not None:
            if canary.concerns(self._name):
                self.state, self._held = MemberState.ROLLOUT_END, pending
                self._expect(pending.revision, Answer.TRYING, news.decided_at)
                orders.append(Try(pending, canary.permille))
        elif pending is not None:
            self.state, self._held = MemberState.ROLLOUT_END, pending
            self._expect(pending.revision, Answer.HELD, news.decided_at)
            orders.append(Hold(pending, max(news.hold_ms, SHORTEST_HOLD_MS)))
        return tuple(orders)

    def _speak_for_itself(self) -> None:
        if self._spoken_for:
            self._spoken_for = False
            self.standing = Standing(self._runs, Answer.APPLIED if self._runs else None)

    def _is_beyond(self, table: RoutingTable) -> bool:
        """Whether the member would pass over something of the table; that is its standing then."""
        if format_needed(table) <= self._reads:
            return False
        self._spoken_for = True
        self.standing = Standing(table.revision, Answer.REFUSED, TOO_OLD)
        return True

    def _end_rollout(self, news: News) -> tuple[Order, ...]:
        held, pending = self._held, news.state.pending
        assert held is not None  # the state says so
        if pending is not None and pending.revision == held.revision:
            is_newer = news.state.effective is not self._told
            return self._follow(news) if news.state.canary is not None and is_newer else self._remember(news)
        self.state, self._held = MemberState.NEWS, None
        if not came_into_force(held.revision, news.state.effective):
            return (self._release(held), *self._follow(news))
        if self._told is not None and self._told.revision > held.revision:
            return self._follow(news)
        if news.state.effective.policies.stitch_policy != held.policies.stitch_policy:
            return self._follow(news)
        return (self._switch(held, news), *self._follow(news))

    def _apply(self, table: RoutingTable, decided_at: float | None) -> Apply:
        self._told = table
        self._expect(table.revision, Answer.APPLIED, decided_at)
        return Apply(table)

    def _switch(self, held: RoutingTable, news: News) -> Switch:
        self._told = news.state.effective if news.state.effective == held else held
        self._expect(held.revision, Answer.APPLIED, news.decided_at, to_switch=True)
        handover = news.state.handover
        return Switch(held.revision, handover.producers if handover and handover.revision == held.revision else None)

    def _release(self, held: RoutingTable) -> Release:
        self._due = deque(due for due in self._due if due.answer not in (Answer.HELD, Answer.TRYING))
        if self.standing.revision == held.revision:
            self.standing = Standing(self._runs, Answer.APPLIED if self._runs else None)
        return Release(held.revision)

    def _expect(self, revision: int, answer: Answer, decided_at: float | None, *, to_switch: bool = False) -> None:
        if len(self._due) >= MAX_UNANSWERED:
            raise ProtocolError(
                f"{MAX_UNANSWERED} orders have no answer; the first is of revision {self._due[0].revision}"
            )
        self._due.append(_Due(revision, answer, decided_at, to_switch))
        self._last_ordered = max(self._last_ordered, revision)

    def _answered(self, message: Answered) -> tuple[Order, ...]:
        if message.revision > self._last_ordered:
            said = f"{message.answer.name} of revision {message.revision}"
            raise ProtocolError(f"{said}, which was not ordered; the last one was {self._last_ordered}")
        due = next((due for due in self._due if _fits(message, due)), None)
        if due is None:
            return ()
        while self._due.popleft() is not due:
            pass
        if message.answer is Answer.APPLIED:
            self._runs = message.revision
        lag = None if due.decided_at is None else max(0.0, message.at - due.decided_at)
        if not self._spoken_for:
            self.standing = Standing(message.revision, message.answer, message.reason, lag)
        if due.to_switch and message.answer is Answer.REFUSED:
            return self._start_over()
        return ()

    def _start_over(self) -> tuple[Order, ...]:
        """The table in force, and the hold if there is one, as for a member that has just come."""
        assert self._news is not None  # there were orders
        self.state, self._told, self._held = MemberState.NEWS, None, None
        return self._follow(self._news)


def _fits(message: Answered, due: _Due) -> bool:
    return message.revision == due.revision and message.answer in (due.answer, Answer.REFUSED)


TRANSITIONS: dict[tuple[MemberState, type[Message]], Callable[..., tuple[Order, ...]]] = {
    (MemberState.GREETING, News): Member._remember,
    (MemberState.GREETING, Hello): Member._greet,
    (MemberState.ADMISSION, News): Member._admit,
    (MemberState.NEWS, News): Member._follow,
    (MemberState.NEWS, Answered): Member._answered,
    (MemberState.ROLLOUT_END, News): Member._end_rollout,
    (MemberState.ROLLOUT_END, Answered): Member._answered,
}
"""The messages that are valid in each state, and the reaction to each."""
