"""Commands about standbys of clusters, the loop that keeps them, and the fail-over.

Theory of operation
1. The event of a topic makes its copy a record rule (`mesh/record_rules.py`): routers copy until the standby ends.
2. The leading control looks every few seconds: new topics get their copies, and groups get their positions.
3. A fail-over ends all copies by an event, and goes on as `failing_over.py` says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog
from prometheus_client import Gauge

from mesh import durations
from mesh.record_rules import standby_copy_of
from mesh.routing import Place
from mesh.routing.policies import STANDBY_POLICY
from mesh.rpc import events, standbys, topic_moves
from mesh.topic_logs.brokers import CopySetbackError
from services.control.decisions.leading import looks
from services.control.decisions.members.formats import too_old
from services.control.decisions.members.members import Members
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.standbys.automatic import AutomaticFailOvers
from services.control.decisions.standbys.entries import Answer, Entries, in_events
from services.control.decisions.standbys.failing_over import FailOvers
from services.control.decisions.standbys.likeness import Likeness
from services.control.decisions.standbys.reports import StandbyReports
from services.control.decisions.topic_moves.cut import Groups
from services.control.decisions.topic_moves.preparation import SETTINGS
from services.control.domain.errors import Conflict, NotAllowed, Refusal, Unavailable, Unfollowed
from services.control.domain.standbys.standbys import (
    FAILING_OVER,
    FOLLOWING,
    MOST_TOPICS,
    ended,
    failing_over,
    named,
    started,
    strayed,
    topic_of,
    wanted,
    with_lag,
)
from services.control.domain.topic_moves.moves import Side
from services.control.domain.topics.topics import SeenTopic, is_internal, seen_topic
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 1.0
"""Seconds between two checks of the standbys; the positions of groups are so old at least."""
DEAD_WITHIN = 3.0
"""Seconds in which a cluster has to answer control, or its fail-over is possible."""
ENDS_WITHIN = 30.0
"""Seconds of attempts in one call. Control goes on behind it."""
NO_ROUTER = "no router has begun the copy; start a router, or see to the routers' connections with control"

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


class StandbyDecisions:
    """The decisions about standbys of clusters."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleDecisions,
        connections: Connections,
        progress: RecordProgress,
        own_topics: Sequence[str],
        members: Members,
        reports: StandbyReports,
    ) -> None:
        """`own_topics`: the topics of the mesh itself, which have no copies."""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._connections = connections
        self._progress = progress
        self._own_topics = frozenset(own_topics)
        self._members = members
        self._entries = Entries(journal)
        self._fail_overs = FailOvers(journal, rules, connections, members, reports, self._entries)
        self._likeness = Likeness(journal, connections, self._entries)
        self._automatic = AutomaticFailOvers(reports, self._fail_overs, self._answers, self._begin_by_itself)
        self._problems: dict[str, str] = {}
        """Why a standby, or its fail-over, stands."""

    async def start(self, spec: standbys.StandbySpec, caller: Caller, answer: Answer) -> standbys.Standby:
        """Begins a standby. Its topics come with the next look."""
        self._check_understood()
        view = await self._journal.first_time(caller)
        clusters = view.state.effective.clusters
        homes = {name for name, each in clusters.items() if each.home}
        event = started(view.standbys, spec, clusters, homes, caller.actor, caller.reason, self.clock())
        await self._entries.append(event.standby.name, [event], caller, answer)
        return event.standby

    async def end(self, name: str, caller: Caller, answer: Answer) -> standbys.Standby:
        """Ends a standby; the answer is the standby as it was."""
        view = await self._journal.first_time(caller)
        event, before = ended(view.standbys, name), self.shown(named(view.standbys, name))
        await self._entries.append(name, [event], caller, lambda _: answer(before))
        self._automatic.forget(name)
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
                await self._fail_overs.carry_out(name, caller, answer)
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
        waits = self._automatic.why_waiting(standby.name)
        if waits and standby.state == FOLLOWING:
            after.problem = f"control does not fail over by itself: {waits}"
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
                shown = self.shown(standby)
                self._count(shown)
                try:
                    if standby.state == FOLLOWING:
                        await self._automatic.look(shown)
                    await self._see_to(name, self._journal.view.standbys.get(name, standby))
                except (Refusal, StoreUnavailableError, TimeoutError, UnreachableError, CopySetbackError) as error:
                    self._problems[name] = str(error) or "no answer in time"
                    log.info("control checks a standby again later", standby=name, reason=str(error))
                else:
                    self._problems.pop(name, None)

    async def _see_to(self, name: str, standby: standbys.Standby) -> None:
        if standby.state == FAILING_OVER:
            await self._fail_overs.carry_out(name, Caller(CONTROL))
        if standby.state != FOLLOWING:
            return
        view = self._journal.view
        await self._entries.set(name, strayed(standby, view.state.effective, view.topic_moves))
        await self._entries.set(name, await self._new_topics(name))
        groups: set[str] = set()
        for each in self._journal.view.standbys[name].topics:
            if not each.left:
                followed = self._groups_of(each)
                await followed.follow()
                groups.update(followed.before)
        await self._likeness.follow(name, groups)

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

    def _groups_of(self, topic: standbys.StandbyTopic) -> Groups:
        """The groups of a topic, followed as at the cut of a move."""
        move = topic_moves.MoveWithRecords(name=standby_copy_of("", topic.topic), copy=topic.copy)
        return Groups(self._connections, move, self._journal.view.state.effective)

    def _check_understood(self) -> None:
        """A gateway of an older release would not report what it acknowledged."""
        for kind, name, version in too_old(self._members.all(), STANDBY_POLICY.table_format):
            raise NotAllowed(
                "ROUTER_TOO_OLD" if kind == "router" else "GATEWAY_TOO_OLD",
                f"members/{name}",
                f"{kind} {name!r} is of release {version or 'unknown'}, which knows no standbys: nobody could count "
                "the loss of a fail-over. Upgrade it, or stop it, then retry",
            )

    async def _refuse_alive(self, cluster: str) -> None:
        """A cluster that answers can be drained, which loses nothing."""
        if not await self._answers(cluster):
            return
        text = f"{cluster!r} answers control, and a fail-over would lose records; drain it: `meshctl cluster drain`"
        raise NotAllowed("CLUSTER_ANSWERS", f"clusters/{cluster}", text)

    async def _answers(self, cluster: str) -> bool:
        try:
            async with asyncio.timeout(DEAD_WITHIN):
                await self._connections.topics(self._journal.view.state.effective.clusters[cluster])
        except (UnreachableError, TimeoutError):
            return False
        return True

    async def _begin_by_itself(self, standby: standbys.Standby, reason: str) -> None:
        event = failing_over(self._journal.view.standbys, standby.name, standby.spec.target_cluster)
        await self._note_ends(standby.name, Caller(CONTROL, reason), begun=event)

    async def _note_ends(self, name: str, caller: Caller, begun: events.FailOverBegun) -> None:
        """Begins the fail-over. The ends that routers saw are noted with it: they are forgotten with the copies."""
        shown = self.shown(named(self._journal.view.standbys, name))
        known = [each for each in shown.topics if not each.left]
        await self._entries.append(name, [begun, *in_events(name, known)], caller)

    def _count(self, shown: standbys.Standby) -> None:
        cluster = shown.spec.source_cluster
        copied = [each for each in shown.topics if not each.left]
        topics_gauge.labels(cluster).set(len(copied))
        lag_gauge.labels(cluster).set(sum(each.lag_records for each in copied))
        seconds_gauge.labels(cluster).set(max((durations.in_s(each.lag) for each in copied), default=0))
        standing_gauge.labels(cluster).set(sum(bool(each.problem) for each in copied))
