"""Commands about fail-backs of clusters, and the loop that leads each open fail-back to its end.

Theory of operation
1. Control compares no log before every gateway runs the rules of the fail-over. A gateway that is away may still write
   to the cluster that came back: it serves its clients by the last table that it has.
2. One topic after the other gets ready (`reconciling.py`). An event says each step.
3. A drain moves the topics that are ready. One transaction begins the drain, and says so.
4. A control that takes over goes on from the events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge

from mesh.routing import UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import drains, events, fail_backs
from mesh.topic_logs.batches import ForeignBatchError
from mesh.topic_logs.brokers import Brokers, CopySetbackError, TooLargeError
from mesh.topic_logs.pace import Pace
from services.control.decisions.drains.commands import DrainDecisions
from services.control.decisions.fail_backs.reconciling import OpenTransactionError, Reconciling
from services.control.decisions.leading import looks
from services.control.decisions.members.members import Members
from services.control.decisions.topic_moves.commands import Batch, TopicMoveDecisions
from services.control.domain.drains.drains import LEFT as DRAIN_LEFT
from services.control.domain.drains.drains import completed
from services.control.domain.errors import Conflict, InvalidField, NotAllowed, Refusal, Unavailable
from services.control.domain.fail_backs.fail_backs import CANCELLED as FAIL_BACK_CANCELLED
from services.control.domain.fail_backs.fail_backs import (
    ENDED,
    LEFT,
    MOVED,
    MOVING,
    READY,
    RECONCILING,
    RECREATING,
    TOPIC_RECONCILING,
    WAITING,
    WORDS,
    beginning,
    drain_of,
    end_of,
    get,
    in_events,
    is_open,
    left,
    of_state,
    refuse_cut,
    standby_of,
    started,
    with_drain,
)
from services.control.domain.members.rollouts import behind
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 0.5
"""Seconds between two checks of the open fail-backs."""
CLIENT_ID = "mesh.control"
TO_DO = (WAITING, TOPIC_RECONCILING, RECREATING)
"""The states of topics that control is to lead on."""

Answer = Callable[[fail_backs.FailBack], StoredAnswer | None]
"""The answer to store for a request_id, given the fail-back."""

log = structlog.get_logger(__name__)
ended_total = Counter("kafka_mesh_control_fail_backs_total", "Fail-backs of clusters that have ended.", ["outcome"])
open_gauge = Gauge("kafka_mesh_control_fail_backs_open", "Fail-backs of clusters that have not ended.")
standing_gauge = Gauge("kafka_mesh_control_fail_backs_standing", "Open fail-backs that do not go on.")


class FailBackDecisions:
    """The decisions about fail-backs of clusters."""

    def __init__(
        self,
        journal: Journal,
        connections: Connections,
        members: Members,
        moves: TopicMoveDecisions,
        drains: DrainDecisions,
        check_members: Callable[[Collection[str]], None],
    ) -> None:
        """`check_members`: refuses members that control does not know."""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._connections = connections
        self._members = members
        self._moves = moves
        self._drains = drains
        self._check_members = check_members
        self._problems: dict[str, str] = {}
        """Why a fail-back stands."""

    async def plan(self, spec: fail_backs.FailBackSpec) -> fail_backs.FailBack:
        """The fail-back that the order would begin: the way of each topic, and its offsets that may have strays."""
        fail_back = self._begun(spec, Caller(""))
        fail_back.name = ""
        fail_back.problem = self._unfenced(fail_back)
        try:
            async with self._reconciling(fail_back) as reconciling:
                topics = [await reconciling.planned(fail_back, each) for each in fail_back.topics]
        except CopySetbackError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the fail-back can't be planned") from None
        del fail_back.topics[:]
        fail_back.topics.extend(topics)
        return fail_back

    async def start(self, spec: fail_backs.FailBackSpec, caller: Caller, answer: Answer) -> fail_backs.FailBack:
        """Begins a fail-back. Refused while the cluster does not answer."""
        await self._journal.first_time(caller)
        fail_back = self._begun(spec, caller)
        try:
            await self._connections.topics(self._cluster(spec.cluster))
        except UnreachableError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; a cluster fails back when it is back") from None
        await self._append(fail_back.name, beginning(fail_back), caller, answer)
        return fail_back

    async def cancel(self, name: str, caller: Caller, answer: Answer) -> fail_backs.FailBack:
        """Ends a fail-back before its first cut."""
        view = await self._journal.first_time(caller)
        fail_back = get(view.fail_backs, name)
        moves = refuse_cut(fail_back, view.drains, view.topic_moves)
        if fail_back.state == RECONCILING:
            end = events.FailBackEnded(name=name, state=FAIL_BACK_CANCELLED)
            await self._append(name, [end], caller, answer)
            ended_total.labels(WORDS[FAIL_BACK_CANCELLED]).inc()
            return self.shown(get(self._journal.view.fail_backs, name))
        await self._drains.cancel(fail_back.drain, caller, lambda _: answer(fail_back))
        for move in moves:
            await self._moves.roll_back(move, f"{name} was cancelled")
        return self.shown(fail_back)

    def shown(self, fail_back: fail_backs.FailBack) -> fail_backs.FailBack:
        """The fail-back with the progress of its drain."""
        after = fail_backs.FailBack()
        after.CopyFrom(fail_back)
        if is_open(fail_back):
            after.problem = self._problems.get(fail_back.name, "")
        if fail_back.state == MOVING:
            known = self._journal.view.drains
            moving = {each.topic: each for each in with_drain(fail_back, known)}
            for each in after.topics:
                each.CopyFrom(moving.get(each.topic, each))
            drain = known.open.get(fail_back.drain)
            after.problem = after.problem or ("" if drain is None else drain.problem)
        return after

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            known = {name: each for name, each in self._journal.view.fail_backs.items() if is_open(each)}
            self._problems = {name: why for name, why in self._problems.items() if name in known}
            open_gauge.set(len(known))
            standing_gauge.set(len(self._problems))
            for name in known:
                try:
                    await self._see_to(name)
                except (
                    Refusal, StoreUnavailableError, TimeoutError, UnreachableError, CopySetbackError,
                    OpenTransactionError,
                ) as error:  # fmt: skip
                    self._problems[name] = str(error) or "no answer in time"
                    log.info("control checks a fail-back again later", fail_back=name, reason=str(error))
                else:
                    self._problems.pop(name, None)

    async def _see_to(self, name: str) -> None:
        fail_back = self._journal.view.fail_backs[name]
        if fail_back.state == MOVING:
            await self._end_with_drain(fail_back)
            return
        if self._journal.view.frozen is not None:
            return
        problem = self._unfenced(fail_back)
        if problem:
            raise Conflict("GATEWAYS_ARE_BEHIND", problem)
        waits: Exception | None = None
        if of_state(fail_back, *TO_DO):
            async with self._reconciling(fail_back) as reconciling:
                for each in of_state(fail_back, *TO_DO):
                    try:
                        await self._made_ready(reconciling, name, each.topic)
                    except (CopySetbackError, OpenTransactionError) as error:  # the other topics need not wait
                        waits = error
        if waits is not None:
            raise waits
        await self._move(get(self._journal.view.fail_backs, name))

    def _begun(self, spec: fail_backs.FailBackSpec, caller: Caller) -> fail_backs.FailBack:
        view = self._journal.view
        fail_back = started(
            view.fail_backs, view.standbys, spec, view.state.effective, view.rules_revision, caller.actor,
            caller.reason, self.clock(),
        )  # fmt: skip
        completed(drain_of(fail_back), view.state.effective.clusters)
        self._check_members(spec.moves.without_members)
        return fail_back

    def _unfenced(self, fail_back: fail_backs.FailBack) -> str:
        """The gateways that may still write to the cluster that came back; empty if there are none."""
        if not self._members.ever_reported:
            return "no router has reported its gateways to this control yet"
        without = fail_back.spec.moves.without_members
        late = behind(fail_back.revision, self._members.gateways(), self._members.away(), without)
        if not late:
            return ""
        names = ", ".join(f"{name} {how}" for name, how in late.items())
        return (
            f"gateways do not run the rules of the fail-over (revision {fail_back.revision}), and may still write to "
            f"{fail_back.spec.cluster!r}: {names}. Bring them back, or stop them; for one whose process has ended for "
            "certain, cancel, and begin again with --without NAME"
        )

    async def _made_ready(self, reconciling: Reconciling, name: str, topic_name: str) -> None:
        """Leads one topic from where it is to READY, or leaves it."""
        while True:
            fail_back = get(self._journal.view.fail_backs, name)
            [topic] = [each for each in fail_back.topics if each.topic == topic_name]
            if topic.state not in TO_DO:
                return
            try:
                after = await reconciling.step(fail_back, topic)
            except (NotAllowed, ForeignBatchError, TooLargeError) as error:
                after = left(topic, str(error))
                log.warning("a topic of a fail-back stays", fail_back=name, topic=topic_name, reason=str(error))
            await self._set(name, after)

    async def _move(self, fail_back: fail_backs.FailBack) -> None:
        """Begins the drain."""
        ready = [each.topic for each in of_state(fail_back, READY)]
        spec, name = drain_of(fail_back), fail_back.name
        known = self._members.known()  # a gateway that has stopped in order since is not known any more
        spec.without_members[:] = [each for each in spec.without_members if each in known]
        batch = Batch(
            lambda drain: Draft(name, events.FailBackMoving(name=name, drain=drain)),
            lambda view: view.fail_backs.get(name),
        )
        caller = Caller(fail_back.actor, f"{name}: {fail_back.reason}" if fail_back.reason else name)
        try:
            if ready:
                await self._drains.start(spec, caller, lambda _: None, ready, batch)
                return
        except (NotAllowed, InvalidField) as refusal:
            if isinstance(refusal, NotAllowed) and refusal.kind != "NOTHING_TO_DRAIN":
                raise
            reasons = await self._why_left(spec, ready, refusal)
            await self._set(name, *(left(each, reasons[each.topic]) for each in of_state(fail_back, READY)))
        await self._end(get(self._journal.view.fail_backs, name), [], ENDED)

    async def _why_left(self, spec: drains.DrainSpec, topics: Sequence[str], refusal: Refusal) -> dict[str, str]:
        reasons = dict.fromkeys(topics, refusal.message)
        try:
            plan = await self._drains.plan(spec, topics)
        except InvalidField:  # the rules lead none of them there any more
            return reasons
        return reasons | {each.topic: each.problem for each in plan.topics if each.state == DRAIN_LEFT}

    async def _end_with_drain(self, fail_back: fail_backs.FailBack) -> None:
        known = self._journal.view.drains
        state = end_of(fail_back, known)
        if state is not None:
            await self._end(fail_back, with_drain(fail_back, known), state)

    async def _end(
        self,
        fail_back: fail_backs.FailBack,
        topics: Sequence[fail_backs.FailBackTopic],
        state: fail_backs.FailBackState.ValueType,
    ) -> None:
        """Ends the fail-back; also the standby, if all topics are back."""
        name, after = fail_back.name, {each.topic: each for each in (*fail_back.topics, *topics)}
        drafts = [Draft(name, each) for each in in_events(name, topics)]
        drafts.append(Draft(name, events.FailBackEnded(name=name, state=state)))
        standby = standby_of(fail_back)
        if standby in self._journal.view.standbys and all(each.state == MOVED for each in after.values()):
            drafts.append(Draft(standby, events.StandbyEnded(name=standby)))
        await self._append_drafts(name, drafts, Caller(CONTROL), lambda _: None)
        stay = sum(each.state == LEFT for each in after.values())
        ended_total.labels(WORDS[state]).inc()
        log.info("a fail-back has ended", fail_back=name, outcome=WORDS[state], topics_left=stay)

    async def _set(self, name: str, *topics: fail_backs.FailBackTopic) -> None:
        await self._append(name, list(in_events(name, topics)), Caller(CONTROL))

    async def _append(self, name: str, new: Sequence[Message], caller: Caller, answer: Answer = lambda _: None) -> None:
        await self._append_drafts(name, [Draft(name, each) for each in new], caller, answer)

    async def _append_drafts(self, name: str, drafts: Sequence[Draft], caller: Caller, answer: Answer) -> None:
        view = self._journal.view
        if not isinstance(drafts[0].payload, events.FailBackStarted):
            self._check_open(name)
        await self._journal.append(
            drafts,
            caller,
            view,
            rests_on=lambda view: (view.fail_backs.get(name), view.standbys.get(f"standbys/{name.partition('/')[2]}")),
            answer=lambda _, view: answer(get(view.fail_backs, name)),
        )

    def _check_open(self, name: str) -> None:
        fail_back = self._journal.view.fail_backs.get(name)
        if fail_back is None or not is_open(fail_back):
            raise Conflict("FAIL_BACK_HAS_ENDED", f"{name} has ended meanwhile")
        if self._journal.why_not_leading:
            raise Conflict("FAIL_BACK_HAS_ENDED", f"{name} goes on at another control: {self._journal.why_not_leading}")

    @asynccontextmanager
    async def _reconciling(self, fail_back: fail_backs.FailBack) -> AsyncIterator[Reconciling]:
        clusters = self._cluster(fail_back.spec.cluster), self._cluster(fail_back.clients_cluster)
        async with (
            Brokers(cluster_to_proto(clusters[0]).spec, CLIENT_ID) as here,
            Brokers(cluster_to_proto(clusters[1]).spec, CLIENT_ID) as there,
        ):
            pace = Pace(fail_back.spec.moves.bytes_per_second)
            check = partial(self._check_open, fail_back.name)
            yield Reconciling(here, there, self._connections, clusters, pace, check)

    def _cluster(self, name: str) -> UpstreamCluster:
        clusters = self._journal.view.state.effective.clusters
        if name not in clusters:
            raise Unavailable("CLUSTER_UNREACHABLE", f"cluster {name!r} is not registered any more")
        return clusters[name]
