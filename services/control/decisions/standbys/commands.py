"""Commands about standbys of clusters, the loop that keeps them, and the fail-over.

Theory of operation
1. The event of a topic makes its copy a record rule (`mesh/record_rules.py`): routers copy until the standby ends.
2. The leading control looks every few seconds: new topics get their copies, and groups get their positions.
3. A fail-over ends all copies by an event. Control then ends the copiers' right to write: a marker of the next epoch in
   each partition makes the target refuse a copier that has not heard of it. The ends before these markers are the ends
   of the copies, and an event has them.
4. Then the rules lead the topics to their copies, as one change of rules. A control that takes over goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import structlog
from prometheus_client import Gauge

from mesh.record_rules import standby_copy_of
from mesh.routing import Place
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import events, standbys, topic_moves
from mesh.topic_logs.batches import MINTED, Writer
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from services.control.decisions.leading import looks
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.rules.moves import ChangeWishes
from services.control.decisions.topic_moves.cut import Groups
from services.control.decisions.topic_moves.preparation import SETTINGS
from services.control.domain.errors import Conflict, NotAllowed, Refusal, Unavailable, Unfollowed
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.standbys.standbys import (
    FAILING_OVER,
    FOLLOWING,
    IN_ONE_EVENT,
    MOST_TOPICS,
    ended,
    failing_over,
    named,
    started,
    strayed,
    switches,
    topic_of,
    wanted,
    with_lag,
)
from services.control.domain.topic_moves.moves import Side
from services.control.domain.topics.topics import SeenTopic, is_internal, seen_topic
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError, connection_settings
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.member_offsets import MemberOffsets
from services.control.upstream.offsets import Position

LOOK_EVERY = 1.0
"""Seconds between two checks of the standbys; the positions of groups are so old at least."""
DEAD_WITHIN = 3.0
"""Seconds in which a cluster has to answer control, or its fail-over is possible."""
ENDS_WITHIN = 30.0
"""Seconds of attempts in one call. Control goes on behind it."""
HOLD_WITHIN = 10.0
"""Seconds that gateways get for their hold: requests to a dead cluster have no answer, and end by their time-outs."""
NO_ROUTER = "no router has begun the copy; start a router, or see to the routers' connections with control"
CLIENT_ID = "mesh.control"

StandbyEvent = (
    events.StandbyStarted
    | events.StandbyTopicsSet
    | events.StandbyEnded
    | events.FailOverBegun
    | events.FailOverHeld
    | events.FailOverEnded
)
Answer = Callable[[standbys.Standby], StoredAnswer | None]
"""The answer to store for a request_id, given the standby."""

log = structlog.get_logger(__name__)
topics_gauge = Gauge("kafka_mesh_control_standby_topics", "Topics of standbys that have copies.", ["cluster"])
lag_gauge = Gauge(
    "kafka_mesh_control_standby_lag_records", "Records that the copies of a standby lack, as far as known.", ["cluster"]
)
seconds_gauge = Gauge(
    "kafka_mesh_control_standby_lag_seconds", "The most seconds that a copy of a standby is behind.", ["cluster"]
)
standing_gauge = Gauge(
    "kafka_mesh_control_standby_copies_standing", "Topics of a standby whose copies do not go on.", ["cluster"]
)


class _FailOverCut:
    """Between the hold of all gateways and their switch: gateways hear that the old cluster is not to be asked."""

    budget_s = HOLD_WITHIN
    lacks = ""

    def __init__(self, record: Callable[[], Awaitable[None]]) -> None:
        self._record = record

    async def reach(self) -> None:
        """See Cut."""
        await self._record()


class StandbyDecisions:
    """The decisions about standbys of clusters."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleDecisions,
        connections: Connections,
        progress: RecordProgress,
        own_topics: Sequence[str],
    ) -> None:
        """`own_topics`: the topics of the mesh itself, which have no copies."""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._rules = rules
        self._connections = connections
        self._progress = progress
        self._own_topics = frozenset(own_topics)
        self._problems: dict[str, str] = {}
        """Why a standby, or its fail-over, stands."""
        self._failing_over = asyncio.Lock()

    async def start(self, spec: standbys.StandbySpec, caller: Caller, answer: Answer) -> standbys.Standby:
        """Begins a standby. Its topics come with the next look."""
        view = await self._journal.first_time(caller)
        clusters = view.state.effective.clusters
        homes = {name for name, each in clusters.items() if each.home}
        event = started(view.standbys, spec, clusters, homes, caller.actor, caller.reason, self.clock())
        await self._append(event.standby.name, event, caller, answer)
        return event.standby

    async def end(self, name: str, caller: Caller, answer: Answer) -> standbys.Standby:
        """Ends a standby; the answer is the standby as it was."""
        view = await self._journal.first_time(caller)
        event, before = ended(view.standbys, name), self.shown(named(view.standbys, name))
        await self._append(name, event, caller, lambda _: answer(before))
        return before

    async def fail_over(self, name: str, target: str, caller: Caller, answer: Answer) -> standbys.Standby:
        """Leads the topics of a dead cluster to their copies."""
        view = await self._journal.first_time(caller)
        standby = named(view.standbys, name)
        if standby.state != FAILING_OVER or target != standby.spec.target_cluster:
            event = failing_over(view.standbys, name, target)
            await self._refuse_alive(standby.spec.source_cluster)
            await self._note_ends(name, caller, begun=event)
        latest = time.monotonic() + ENDS_WITHIN
        while True:
            try:
                await self._carry_out(name, caller, answer)
                return self.shown(named(self._journal.view.standbys, name))
            except (Conflict, Unavailable, Unfollowed) as error:
                if time.monotonic() > latest:
                    raise
                log.info("control tries a fail-over again", standby=name, reason=str(error))
                await asyncio.sleep(LOOK_EVERY)

    async def plan(self, name: str, target: str) -> standbys.Standby:
        """The standby as a fail-over would begin with it now. Changes nothing."""
        known = self._journal.view.standbys
        failing_over(known, name, target)
        return self.shown(named(known, name))

    def shown(self, standby: standbys.Standby) -> standbys.Standby:
        """The standby with the lag of its copies."""
        after = standbys.Standby()
        after.CopyFrom(standby)
        after.problem = self._problems.get(standby.name, "")
        for each in after.topics:
            if standby.state == FOLLOWING and not each.left:
                self._measure(standby.name, each)
            with_lag(each)
        return after

    def _measure(self, name: str, topic: standbys.StandbyTopic) -> None:
        progress = self._progress.of(standby_copy_of(name, topic.topic))
        topic.problem = NO_ROUTER if progress is None else progress.problem
        if progress is None:
            return
        topic.partitions.extend(
            standbys.StandbyPartition(partition=each.partition, position=each.position, end=each.end)
            for each in progress.partitions
        )
        if progress.HasField("tail_ms"):
            topic.lag.FromMilliseconds(progress.tail_ms)

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            known = self._journal.view.standbys
            self._problems = {name: why for name, why in self._problems.items() if name in known}
            for name, standby in known.items():
                self._count(self.shown(standby))
                try:
                    await self._see_to(name, standby)
                except (Refusal, StoreUnavailableError, TimeoutError, UnreachableError, CopySetbackError) as error:
                    self._problems[name] = str(error) or "no answer in time"
                    log.info("control checks a standby again later", standby=name, reason=str(error))
                else:
                    self._problems.pop(name, None)

    async def _see_to(self, name: str, standby: standbys.Standby) -> None:
        if standby.state == FAILING_OVER:
            await self._carry_out(name, Caller(CONTROL))
        if standby.state != FOLLOWING:
            return
        view = self._journal.view
        await self._set(name, strayed(standby, view.state.effective, view.topic_moves))
        await self._set(name, await self._new_topics(name))
        for each in self._journal.view.standbys[name].topics:
            if not each.left:
                await self._groups_of(each).follow()

    async def _new_topics(self, name: str) -> list[standbys.StandbyTopic]:
        """The topics that have come since the last look, with their copies made."""
        view = self._journal.view
        standby, table = view.standbys[name], view.state.effective
        source, target = (table.clusters[each] for each in (standby.spec.source_cluster, standby.spec.target_cluster))
        here, there = await asyncio.gather(self._connections.topics(source), self._connections.topics(target))
        known = {each.topic for each in standby.topics}
        seen = [
            found
            for topic, partitions in here.items()
            if not is_internal(topic)
            and topic not in self._own_topics
            and (found := seen_topic(table, Place(source.name, topic), partitions)) is not None
        ]
        fresh = [each for each in wanted(standby, seen, view.topic_moves) if each.name not in known]
        fresh = fresh[: MOST_TOPICS - len(known)]
        if not fresh:
            return []
        names = [each.place.upstream_topic for each in fresh]
        settings = await self._connections.effective_settings(source, names, SETTINGS)
        new = [topic_of(standby, each, *self._sides(each, target.name, settings, there)) for each in fresh]
        absent = [each.copy.topic for each in new if not each.left and each.copy.topic not in there]
        if absent:
            own = await self._connections.topic_settings(source, absent)
            await self._connections.create_topics(target, {topic: (here[topic], own[topic]) for topic in absent})
        return new

    def _sides(
        self, seen: SeenTopic, target: str, settings: dict[str, dict[str, str]], there: dict[str, int]
    ) -> tuple[Side, Side]:
        topic = seen.place.upstream_topic
        here = Side(seen.place, seen.partitions, settings.get(topic, {}))
        return here, Side(Place(target, topic), there.get(topic, 0), {})

    async def _set(self, name: str, topics: Sequence[standbys.StandbyTopic]) -> None:
        for some in _in_events(topics):
            await self._append(name, events.StandbyTopicsSet(name=name, topics=some), Caller(CONTROL))

    def _groups_of(self, topic: standbys.StandbyTopic) -> Groups:
        """The groups of a topic, followed as at the cut of a move."""
        move = topic_moves.MoveWithRecords(name=standby_copy_of("", topic.topic), copy=topic.copy)
        return Groups(self._connections, move, self._journal.view.state.effective)

    async def _refuse_alive(self, cluster: str) -> None:
        """A cluster that answers can be drained, which loses nothing."""
        try:
            async with asyncio.timeout(DEAD_WITHIN):
                await self._connections.topics(self._journal.view.state.effective.clusters[cluster])
        except (UnreachableError, TimeoutError):
            return
        text = f"{cluster!r} answers control, and a fail-over would lose records; drain it: `meshctl cluster drain`"
        raise NotAllowed("CLUSTER_ANSWERS", f"clusters/{cluster}", text)

    async def _note_ends(self, name: str, caller: Caller, begun: events.FailOverBegun) -> None:
        """Begins the fail-over. The ends that routers saw are noted with it: they are forgotten with the copies."""
        shown = self.shown(named(self._journal.view.standbys, name))
        known = [each for each in shown.topics if not each.left]
        notes = [events.StandbyTopicsSet(name=name, topics=some) for some in _in_events(known)]
        await self._append_all(name, [begun, *notes], caller, lambda _: None)

    async def _carry_out(self, name: str, caller: Caller, answer: Answer = lambda _: None) -> None:
        step = replace(caller, request_id="", digest=b"")
        async with self._failing_over:
            standby = named(self._journal.view.standbys, name)
            if standby.state != FAILING_OVER:
                return
            spec = cluster_to_proto(self._journal.view.state.effective.clusters[standby.spec.target_cluster]).spec
            try:
                async with Brokers(spec, CLIENT_ID) as target:
                    topics = [await self._fenced(target, each) for each in standby.topics if not each.left]
            except CopySetbackError as error:
                raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; control tries the fail-over again") from None
            await self._set(name, topics)
            await self._bound_groups(topics)
            standby = named(self._journal.view.standbys, name)

            async def command(rules: RuleSet) -> RuleSetDecision:
                return rules.change(*switches(standby), allow_shadowed=True)

            held = events.FailOverHeld(name=name, source_cluster=standby.spec.source_cluster)
            wishes = ChangeWishes(accept_skip=True, allow_unreachable=True)
            cut = _FailOverCut(lambda: self._append(name, held, step))
            await self._rules.change(command, wishes, step, lambda _: None, cut=cut)
            await self._append(name, events.FailOverEnded(name=name), caller, lambda each: answer(self.shown(each)))
            log.warning("a cluster has failed over", standby=name, target=standby.spec.target_cluster)

    async def _fenced(self, target: Brokers, topic: standbys.StandbyTopic) -> standbys.StandbyTopic:
        """The topic with the ends of its copies. No copier writes there from now on."""
        name = topic.copy.target_topic
        numbers = await target.partitions(name)
        saw = {each.partition: each.end for each in topic.partitions}
        after = standbys.StandbyTopic()
        after.CopyFrom(topic)
        after.problem = ""
        del after.partitions[:]
        for number, producers in (await target.producers_of(name, numbers)).items():
            _, end = await target.range(name, number)
            for each in producers:
                if each.producer_id & MINTED:
                    _, end = await target.range(name, number)
                    writer = Writer(each.producer_id, each.epoch, 0).anew()
                    await target.mark(name, number, writer, 1)
            after.partitions.append(
                standbys.StandbyPartition(partition=number, position=end, end=max(end, saw.get(number, 0)))
            )
        return with_lag(after)

    async def _bound_groups(self, topics: Sequence[standbys.StandbyTopic]) -> None:
        """Groups whose positions are behind the end of a copy go on at its end."""
        clusters = self._journal.view.state.effective.clusters
        for topic in topics:
            cluster, name = clusters[topic.copy.target_cluster], topic.copy.target_topic
            ends = {each.partition: each.position for each in topic.partitions}
            found = await self._connections.stable_positions(cluster, name)
            for group, positions in found.by_group.items():
                late = {
                    number: Position(ends[number], each.metadata)
                    for number, each in positions.items()
                    if each.offset > ends.get(number, each.offset)
                }
                if late:
                    members = MemberOffsets(connection_settings(cluster), f"mesh.move.{standby_copy_of('', name)}")
                    try:
                        await self._connections.set_positions(cluster, group, name, late, members)
                    except GroupRefusedError as error:
                        log.warning("a group gets no position on the target of a move", group=group, reason=str(error))

    def _count(self, shown: standbys.Standby) -> None:
        cluster = shown.spec.source_cluster
        copied = [each for each in shown.topics if not each.left]
        topics_gauge.labels(cluster).set(len(copied))
        lag_gauge.labels(cluster).set(sum(each.lag_records for each in copied))
        seconds_gauge.labels(cluster).set(max((each.lag.ToMilliseconds() / 1000 for each in copied), default=0))
        standing_gauge.labels(cluster).set(sum(bool(each.problem) for each in copied))

    async def _append(self, name: str, event: StandbyEvent, caller: Caller, answer: Answer = lambda _: None) -> None:
        await self._append_all(name, [event], caller, answer)

    async def _append_all(self, name: str, new: Sequence[StandbyEvent], caller: Caller, answer: Answer) -> None:
        view = self._journal.view
        if not isinstance(new[0], events.StandbyStarted) and name not in view.standbys:
            raise Conflict("STANDBY_HAS_ENDED", f"{name} has ended meanwhile")
        await self._journal.append(
            [Draft(name, each) for each in new],
            caller,
            view,
            rests_on=lambda view: view.standbys.get(name),
            answer=lambda _, view: answer(view.standbys.get(name, standbys.Standby(name=name))),
        )


def _in_events(topics: Sequence[standbys.StandbyTopic]) -> Iterator[Sequence[standbys.StandbyTopic]]:
    """Parts that fit in one event each."""
    left = iter(topics)
    while some := list(islice(left, IN_ONE_EVENT)):
        yield some
