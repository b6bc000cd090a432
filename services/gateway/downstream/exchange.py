"""Carries out one plan: takes its commands, gives it their results, and ends with its answer.

An exchange runs on callbacks, without tasks: most requests need one upstream call, and their plan is resumed in the
very read that brought the answer. Bytes that the plan may read later are copied out of the receive buffer here.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog

from services.gateway import clock, metrics
from services.gateway.authorization.alone import refused_answer
from services.gateway.downstream.control_changes import ControlChanges
from services.gateway.downstream.conversions import Conversions
from services.gateway.requests.changes import Change, NotChanged
from services.gateway.requests.conversions import Convert
from services.gateway.requests.data_keys import FindKeys
from services.gateway.requests.plan import (
    Answer,
    Ask,
    Call,
    Close,
    Command,
    Forget,
    Gather,
    Outcome,
    Plan,
    RawResponse,
    Refresh,
    Stale,
    Unreachable,
)
from services.gateway.requests.topic_names import TopicNames
from services.gateway.upstream.clusters import Clusters
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.left_behind import LeftBehind, Taker
from services.gateway.upstream.questions import decoded
from services.gateway.wire.primitives import WireError
from services.gateway.wire.schema import Kind, Struct, message_of

log = structlog.get_logger(__name__)

NO_NAMES: Mapping[str, TopicNames] = MappingProxyType({})

NO_WAY = NotChanged("FAILED_PRECONDITION", "the gateway has no router, and so no way to control: use meshctl")

OnEnd = Callable[["Exchange", Answer], None]


class Exchange:
    """One request's plan on its way. `on_asked` is called once, when its first calls have been sent or it has ended."""

    __slots__ = (
        "_changes",
        "_clusters",
        "_conversions",
        "_enough",
        "_lanes",
        "_left",
        "_missing",
        "_names",
        "_on_end",
        "_outcomes",
        "_plan",
        "_round",
        "_stepping",
        "_timer",
        "_waits_since",
        "client_id",
        "ended",
        "on_asked",
        "on_work",
        "upstream_s",
    )

    def __init__(
        self,
        plan: Plan,
        clusters: Clusters,
        conversions: Conversions,
        lanes: Lanes,
        client_id: str | None,
        on_end: OnEnd,
        names: Mapping[str, TopicNames] = NO_NAMES,
        changes: ControlChanges | None = None,
    ) -> None:
        """`names`: by cluster, where the client has other names for topics than the cluster. `changes`: the way to
        control, if there is one.
        """
        self._changes = changes
        self._plan = plan
        self._names = names
        self._clusters = clusters
        self._conversions = conversions
        self._lanes = lanes
        self._on_end = on_end
        self.client_id = client_id
        self.on_asked: Callable[[], None] | None = None
        self.on_work: Callable[[float, float], None] | None = None
        """Gets the seconds that each step after the first one takes."""
        self.ended = False
        self.upstream_s = 0.0
        """The time for which its plan has waited for clusters."""
        self._waits_since = 0.0
        """Since then the plan waits for clusters; 0: it does not."""
        self._round = 0
        """Counts commands: a callback of an earlier one finds that it is late."""
        self._outcomes: list[Outcome | None] = []
        self._missing = 0
        self._enough: Callable[[list[Outcome | None]], bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left: list[LeftBehind] = []
        """Resumable calls that this exchange waits for."""
        self._stepping = False

    def start(self) -> None:
        self._go_on(None)

    def abandon(self) -> None:
        """The client is gone."""
        if not self.ended:
            self.ended = True
            self._round += 1
            self._stop_timer()
            self._plan.close()

    def _step(self, result: Any) -> None:
        if self._waits_since:
            self.upstream_s += time.monotonic() - self._waits_since
            self._waits_since = 0.0
        on_work = self.on_work
        if on_work is None:
            self._go_on(result)
            return
        began = clock.now()
        self._go_on(result)
        on_work(began, clock.now())

    def _go_on(self, result: Any) -> None:
        """Resume the plan, and go on as long as its commands are done at once."""
        while not self.ended:
            try:
                command = self._plan.send(result)
            except StopIteration as stop:
                self._end(stop.value)
                return
            except WireError as error:
                self._end(Close(f"a request that can't be read: {error}"))
                return
            except Exception:  # a fault of ours in one request must not take the process along
                log.exception("a plan failed", client_id=self.client_id)
                self._end(Close("internal error, see the log line before"))
                return
            try:
                done, result = self._carry_out(command)
            except Exception:  # nor may it go up to the connection in whose read this happens
                log.exception("a command could not be carried out", client_id=self.client_id)
                self._plan.close()
                self._end(Close("internal error, see the log line before"))
                return
            if not done:
                if _asks_clusters(command):
                    self._waits_since = time.monotonic()
                return

    def _end(self, answer: Answer) -> None:
        self.ended = True
        self._asked()
        self._on_end(self, answer)

    def _asked(self) -> None:
        notify, self.on_asked = self.on_asked, None
        if notify is not None:
            notify()

    # --- commands ------------------------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> tuple[bool, Any]:
        """Whether it is done already, and its result if so."""
        self._round += 1
        match command:
            case Ask(calls, preliminary):
                return self._send(calls, None, preliminary=preliminary)
            case Gather(calls, enough, wait_s, since, waits_for):
                if waits_for:
                    metrics.pauses.labels(waits_for).inc()
                return self._gather(calls, enough, wait_s, since)
            case Refresh(cluster, topics, own_names):
                return self._refresh(cluster, topics, None if own_names else self._names.get(cluster))
            case Convert():
                return self._work(command, self._conversions)
            case FindKeys(keys, wanted):
                return self._later(partial(keys.find, wanted))
            case Change():
                if self._changes is None:
                    return True, NO_WAY
                return self._work(command, self._changes)
            case Stale(cluster, topics):
                self._clusters.doubt_topics(cluster, topics, self._names.get(cluster))
            case Forget(cluster, coordinator):
                self._clusters.forget_coordinator(cluster, coordinator)
        return True, None

    def _refresh(self, cluster: str, topics: tuple[str, ...], names: TopicNames | None) -> tuple[bool, Any]:
        return self._later(lambda done: self._clusters.refresh(cluster, topics, done, names))

    def _later(self, begin: Callable[[Callable[[Any], None]], None]) -> tuple[bool, Any]:
        """Begins work that may be done at once."""
        this = self._round
        found: list[Any] = []
        self._stepping = True

        def done(result: Any) -> None:
            if self._stepping:
                found.append(result)
            elif this == self._round:
                self._step(result)

        begin(done)
        self._stepping = False
        return (True, found[0]) if found else (False, None)

    def _work(self, work: Any, by: Conversions | ControlChanges) -> tuple[bool, Any]:
        this = self._round

        def done(result: Any) -> None:
            if this == self._round:
                self._step(result)

        by.submit(work, done)
        return False, None

    def _gather(self, calls: tuple[Call, ...], enough: Any, wait_s: float, since: float | None) -> tuple[bool, Any]:
        done, result = self._send(calls, enough, preliminary=True)  # a Produce sends its records by `Ask` alone
        if done:
            self._leave_behind()
        else:
            loop = asyncio.get_running_loop()
            end = (loop.time() if since is None else since) + wait_s
            self._timer = loop.call_at(end, self._time_is_up, self._round)
        return done, result

    def _send(self, calls: tuple[Call, ...], enough: Any, *, preliminary: bool = False) -> tuple[bool, Any]:
        self._outcomes = [None] * len(calls)
        self._missing = len(calls)
        self._enough = enough
        this = self._round
        alone = len(calls) == 1
        self._stepping = True
        for index, call in enumerate(calls):
            self._submit(this, index, call, alone)
        self._stepping = False
        if calls and not preliminary:
            self._asked()
        if enough is None:
            complete = self._missing == 0
        else:  # without any call, Gather is a way to wait
            complete = bool(calls) and (self._missing == 0 or enough(self._outcomes))
        return (True, tuple(self._outcomes)) if complete else (False, None)

    def _submit(self, this: int, index: int, call: Call, alone: bool) -> None:
        def take(outcome: Outcome, owned: bool) -> None:
            if isinstance(outcome, Unreachable) and outcome.refused:
                outcome, owned = self._refusal(call, outcome), True
            if call.on_answer is not None:
                call.on_answer()
            if this == self._round and not self.ended:
                self._arrived(this, index, _kept(call, outcome, owned, alone and not self._stepping))

        if call.resume_key is not None:
            self._submit_resumable(call, take)
            return
        self._clusters.submit(call, self._lanes, self.client_id, take, self._names.get(call.cluster))

    def _refusal(self, call: Call, outcome: Unreachable) -> Outcome:
        """The cluster does not let the client in: what a broker would say that allows the client nothing."""
        session = self._lanes.session
        if session is None or call.no_answer:
            return outcome
        try:
            return refused_answer(call, session, outcome.reason, self._clusters.on_refused)
        except WireError as error:
            return replace(outcome, reason=f"{outcome.reason}; {error}")

    def _submit_resumable(self, call: Call, take: Taker) -> None:
        place = (self._clusters.incarnation(call.cluster, self._lanes), call.target, call.lane)
        waiting = self._lanes.left_behind
        # what a topic is called may have changed since: then the question is another one
        names = self._names.get(call.cluster)
        key = (call.resume_key, names)
        left = waiting.get(place)
        if left is not None and left.key == key:
            if left.outcome is not None:
                del waiting[place]
                take(left.outcome, True)
            else:
                left.taker = take
                self._left.append(left)
            return
        self._lanes.drop_old_left_behind()
        mine = waiting[place] = LeftBehind(key, taker=take)
        self._left.append(mine)

        def settled(outcome: Outcome, owned: bool) -> None:
            taker = mine.taker
            if taker is not None:
                if waiting.get(place) is mine:
                    del waiting[place]
                taker(outcome, owned)
            elif waiting.get(place) is mine:
                mine.keep(_kept(call, outcome, owned, False))

        self._clusters.submit(call, self._lanes, self.client_id, settled, names)

    # --- outcomes ------------------------------------------------------------------------------------------------

    def _arrived(self, this: int, index: int, outcome: Outcome) -> None:
        if this != self._round or self.ended:
            return
        self._outcomes[index] = outcome
        self._missing -= 1
        if self._stepping:
            return
        if self._missing == 0 or (self._enough is not None and self._enough(self._outcomes)):
            self._resume()

    def _time_is_up(self, this: int) -> None:
        self._timer = None
        if this == self._round and not self.ended:
            self._resume()

    def _resume(self) -> None:
        self._stop_timer()
        self._leave_behind()
        self._round += 1
        self._step(tuple(self._outcomes))

    def _leave_behind(self) -> None:
        """The plan goes on without the calls that are not answered yet."""
        for left in self._left:
            left.taker = None
        self._left.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _asks_clusters(command: Command) -> bool:
    return isinstance(command, Refresh) or (isinstance(command, Ask | Gather) and bool(command.calls))


def _kept(call: Call, outcome: Outcome, owned: bool, now: bool) -> Outcome:
    """The outcome as the plan gets it: decoded unless it wants bytes. These are copied out of the receive buffer,
    unless the plan is resumed `now`, with them alone: then it may pass them on where they lie."""
    if not isinstance(outcome, RawResponse):
        return outcome
    if call.raw:
        return outcome if owned or now else replace(outcome, frame=memoryview(bytearray(outcome.frame)))
    return _message(call, outcome if owned else replace(outcome, frame=memoryview(bytearray(outcome.frame))))


def _message(call: Call, raw: RawResponse) -> Struct | Unreachable:
    spec = message_of(call.key, Kind.RESPONSE)
    if spec is None:
        raise TypeError(f"no response is declared for api key {call.key}")
    return decoded(raw, spec.cls, call.cluster)
