"""The steps of a fail-over. A control that dies amid it is followed by one that goes on where it stopped.

Theory of operation
1. The event that begins it has ended all copies. Control then ends the copiers' right to write: a marker of the next
   epoch in each partition makes the target refuse a copier that has not heard of it. The ends before these markers are
   the ends of the copies. An event has them before the next topics are closed, so no topic is closed twice.
2. Groups whose positions are behind the end of a copy get that end.
3. The rules lead the topics to their copies, as one change. Before a gateway holds, it reports how far the dead cluster
   has acknowledged the topics. So when all hold, control knows it of each gateway that it waited for.
4. Gateways that have been away for some time may be as dead as the cluster: the change does not wait for them. The last
   event names them, since they may have acknowledged more than they reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import structlog

from mesh.record_rules import standby_copy_of
from mesh.routing.codec import cluster_to_proto
from mesh.routing.policies import STANDBY_POLICY
from mesh.rpc import events, standbys
from mesh.topic_logs.batches import MINTED, Writer
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from services.control.decisions.members.members import Members
from services.control.decisions.members.rollouts import COMEBACK_TIME
from services.control.decisions.rules.commands import RuleDecisions
from services.control.decisions.rules.moves import ChangeWishes
from services.control.decisions.standbys.entries import Answer, Entries, in_events
from services.control.decisions.standbys.reports import StandbyReports
from services.control.domain.errors import Unavailable
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.standbys.losses import counted
from services.control.domain.standbys.standbys import FAILING_OVER, IN_ONE_EVENT, named, switches, with_lag
from services.control.store.drafts import Caller
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, connection_settings
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.member_offsets import MemberOffsets
from services.control.upstream.offsets import Position

HOLD_WITHIN = 10.0
"""Seconds that gateways get for their hold: requests to a dead cluster have no answer, and end by their time-outs."""
CLIENT_ID = "mesh.control"

log = structlog.get_logger(__name__)


class _FailOverCut:
    """Between the hold of all gateways and their switch: gateways hear that the old cluster is not to be asked."""

    budget_s = HOLD_WITHIN
    lacks = ""

    def __init__(self, record: Callable[[], Awaitable[None]]) -> None:
        self._record = record

    async def reach(self) -> None:
        """See Cut."""
        await self._record()


class FailOvers:
    """Carries fail-overs out that have begun."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleDecisions,
        connections: Connections,
        members: Members,
        reports: StandbyReports,
        entries: Entries,
    ) -> None:
        self._journal = journal
        self._rules = rules
        self._connections = connections
        self._members = members
        self._reports = reports
        self._entries = entries
        self._at_work = asyncio.Lock()

    async def carry_out(self, name: str, caller: Caller, answer: Answer = lambda _: None) -> None:
        """The steps that are left; none if the standby does not fail over."""
        step = replace(caller, request_id="", digest=b"")
        async with self._at_work:
            standby = named(self._journal.view.standbys, name)
            if standby.state != FAILING_OVER:
                return
            await self._close(name, standby)
            standby = named(self._journal.view.standbys, name)
            await self._bound_groups(_copied(standby))

            async def command(rules: RuleSet) -> RuleSetDecision:
                return rules.change(*switches(standby), allow_shadowed=True)

            held = events.FailOverHeld(name=name, source_cluster=standby.spec.source_cluster)
            away = self._members.away()
            silent = frozenset(each for each, seconds in away.items() if seconds >= COMEBACK_TIME)
            wishes = ChangeWishes(accept_skip=True, allow_unreachable=True, without_members=silent)
            cut = _FailOverCut(lambda: self._entries.append(name, [held], step))
            await self._rules.change(command, wishes, step, lambda _: None, cut=cut)
            lost = self.counted(_copied(named(self._journal.view.standbys, name)), silent)
            ended = events.FailOverEnded(name=name, silent_gateways=sorted(silent))
            await self._entries.append(name, [*in_events(name, lost), ended], caller, answer)
            log.warning("a cluster has failed over", standby=name, target=standby.spec.target_cluster)

    def counted(
        self, topics: Sequence[standbys.StandbyTopic], silent: Collection[str] = ()
    ) -> list[standbys.StandbyTopic]:
        """The topics with the records that the fail-over loses: all gateways but those have reported their ends."""
        policy = STANDBY_POLICY.of(self._journal.view.state.effective.policies)
        since = {(each.cluster_name, each.topic): each.since_revision for each in policy.logs}
        logs = (self._reports.log_of(of.topic, since.get((of.copy.source_cluster, of.topic), 0)) for of in topics)
        return [counted(of, log, someone_is_silent=bool(silent)) for of, log in zip(topics, logs, strict=True)]

    async def _close(self, name: str, standby: standbys.Standby) -> None:
        """No copier writes to the copies from now on."""
        open_ = [each for each in _copied(standby) if not each.closed]
        spec = cluster_to_proto(self._journal.view.state.effective.clusters[standby.spec.target_cluster]).spec
        try:
            async with Brokers(spec, CLIENT_ID) as target:
                for first in range(0, len(open_), IN_ONE_EVENT):
                    some = open_[first : first + IN_ONE_EVENT]
                    await self._entries.set(name, [await self._closed(target, each) for each in some])
        except CopySetbackError as error:
            raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; control tries the fail-over again") from None

    async def _closed(self, target: Brokers, topic: standbys.StandbyTopic) -> standbys.StandbyTopic:
        """The topic with the ends of its copies."""
        name = topic.copy.target_topic
        numbers = await target.partitions(name)
        saw = {each.partition: each.end for each in topic.partitions}
        after = standbys.StandbyTopic()
        after.CopyFrom(topic)
        after.problem, after.closed = "", True
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


def _copied(standby: standbys.Standby) -> list[standbys.StandbyTopic]:
    return [each for each in standby.topics if not each.left]
